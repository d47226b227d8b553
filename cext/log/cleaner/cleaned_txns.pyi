"""Nothing here is for Python: see cleaned_txns.pxd."""
