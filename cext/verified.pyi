"""Nothing here is for Python: see verified.pxd."""
