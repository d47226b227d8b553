"""Nothing here is for Python: see leader_epochs.pxd."""
