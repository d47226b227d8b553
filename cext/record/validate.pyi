"""Nothing here is for Python: see validate.pxd."""
