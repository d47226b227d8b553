"""Nothing here is for Python: see fetch_request.pxd."""
