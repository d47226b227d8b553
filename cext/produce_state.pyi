"""Nothing here is for Python: see produce_state.pxd."""
