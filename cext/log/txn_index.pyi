"""Nothing here is for Python: see txn_index.pxd."""
