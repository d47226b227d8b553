"""Nothing here is for Python: see open_txns.pxd."""
