"""Share groups (KIP-932): records handed to one member at a time and acknowledged one by one.

share_partition.py is the state of one partition in one group; share_state.py stores it;
share_partitions.py reads the log and delivers records; sessions.py, waiting.py and dead_letters.py
have the requests; share_group.py and share_groups.py are the groups' members.
"""
