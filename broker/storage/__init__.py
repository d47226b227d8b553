"""Policy over cext.log.log_handle: directories, checkpoints, opening and recovery, flush and
retention.

Read log_dirs.py, checkpoints.py, log_manager.py, retention.py.
"""
