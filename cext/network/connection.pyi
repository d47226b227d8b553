"""Nothing here is for Python: see connection.pxd."""
