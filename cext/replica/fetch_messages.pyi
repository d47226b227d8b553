"""Nothing here is for Python: see fetch_messages.pxd."""
