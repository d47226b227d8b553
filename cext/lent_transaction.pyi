"""Nothing here is for Python: see lent_transaction.pxd."""
