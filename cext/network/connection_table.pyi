"""Nothing here is for Python: see connection_table.pxd."""
