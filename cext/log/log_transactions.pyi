"""Nothing here is for Python: see log_transactions.pxd."""
