"""Nothing here is for Python: see request.pxd."""
