"""Topics of many clusters, copied into one: `barnabas mirror`. Read on: mirror.py, source.py."""
