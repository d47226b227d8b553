"""Nothing here is for Python: see cold_reads.pxd."""
