"""Nothing here is for Python: see conn.pxd."""
