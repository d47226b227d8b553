"""Nothing here is for Python: see memory_limit.pxd."""
