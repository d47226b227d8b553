"""Produce on network threads: checks, append, delayed answers, decode jobs."""
