"""Listeners, network threads, connections, and the queue of requests that Python handles."""
