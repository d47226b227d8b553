"""Nothing here is for Python: see transaction_check.pxd."""
