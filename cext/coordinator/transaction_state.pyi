"""Nothing here is for Python: see transaction_state.pxd."""
