"""Nothing here is for Python: see local_log.pxd."""
