"""Decides which partitions cext.partition.partitions serves on this node, and owns the threads that
run beside the native handlers.

Read replica_manager.py, request_handlers.py, job_threads.py, decode_pool.py,
background.py.
"""
