"""Nothing here is for Python: see durable_wait.pxd."""
