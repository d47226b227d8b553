"""Fetch on network threads: sessions, cold reads, interception."""
