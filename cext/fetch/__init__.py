"""Fetch and ListOffsets on network threads: sessions, cold reads, interception."""
