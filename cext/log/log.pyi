"""Nothing here is for Python: see log.pxd."""
