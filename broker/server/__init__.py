"""Policy over cext.partition.partitions: the partitions that this node serves, and the threads
beside the native handlers.

Read replica_manager.py, request_handlers.py, job_threads.py, decode_pool.py,
background.py.
"""
