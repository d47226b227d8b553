"""Nothing here is for Python: see producers.pxd."""
