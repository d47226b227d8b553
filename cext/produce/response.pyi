"""Nothing here is for Python: see response.pxd."""
