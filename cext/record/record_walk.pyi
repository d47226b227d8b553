"""Nothing here is for Python: see record_walk.pxd."""
