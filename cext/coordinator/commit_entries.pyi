"""Nothing here is for Python: see commit_entries.pxd."""
