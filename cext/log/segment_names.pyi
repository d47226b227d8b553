"""Nothing here is for Python: see segment_names.pxd."""
