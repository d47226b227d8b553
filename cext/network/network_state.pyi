"""Nothing here is for Python: see network_state.pxd."""
