"""Nothing here is for Python: see lease.pxd."""
