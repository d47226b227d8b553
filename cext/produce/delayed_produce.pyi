"""Nothing here is for Python: see delayed_produce.pxd."""
