"""`barnabas mirror` copies topics of many clusters into one. Read on: mirror.py, source.py."""
