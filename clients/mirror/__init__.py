"""`barnabas mirror` copies topics of many clusters into one. Start with mirror.py, then
source.py."""
