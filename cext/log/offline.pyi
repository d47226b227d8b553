"""Nothing here is for Python: see offline.pxd."""
