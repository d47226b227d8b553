"""Nothing here is for Python: see linked_file.pxd."""
