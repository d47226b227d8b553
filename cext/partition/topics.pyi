"""Nothing here is for Python: see topics.pxd."""
