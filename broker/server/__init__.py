"""Policy over cext.partition.partitions: which partitions this node serves, and who runs beside the
lanes.

Read replica_manager.py, request_handlers.py, job_threads.py, decode_pool.py,
background.py.
"""
