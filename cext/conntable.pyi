"""Nothing here is for Python: see conntable.pxd."""
