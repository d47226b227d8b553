"""Nothing here is for Python: see follower_append.pxd."""
