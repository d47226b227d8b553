"""Nothing here is for Python: see truncation.pxd."""
