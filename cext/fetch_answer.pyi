"""Nothing here is for Python: see fetch_answer.pxd."""
