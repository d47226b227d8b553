"""Compaction: the map of keys, the two walks over old segments, the swap of segments."""
