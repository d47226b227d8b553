"""Nothing here is for Python: see column_table.pxd."""
