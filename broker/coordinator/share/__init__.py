"""Share groups (KIP-932): members acquire records and acknowledge them one by one.

share_partition.py is the state of one partition in one group; share_state.py stores it;
share_partitions.py reads the log and delivers records; sessions.py, waiting.py and dead_letters.py
have the requests; share_group.py and share_groups.py are the groups' members.
"""
