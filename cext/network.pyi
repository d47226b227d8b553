"""Nothing here is for Python: see network.pxd."""
