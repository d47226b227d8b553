"""Nothing here is for Python: see produce_answer.pxd."""
