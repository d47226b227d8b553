"""Nothing here is for Python: see crc_check.pxd."""
