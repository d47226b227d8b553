"""Compaction: the map of keys, the two passes over old segments, and the replacement of
segments."""
