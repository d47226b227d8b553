"""Nothing here is for Python: see recover.pxd."""
