"""Nothing here is for Python: see batch_at.pxd."""
