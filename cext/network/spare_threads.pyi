"""Nothing here is for Python: see acceptor.pxd."""
