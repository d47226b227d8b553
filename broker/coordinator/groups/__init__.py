"""Groups: their members, the partitions of each member, and the committed offsets.

Read on: classic_group.py (the state of a group), rebalance.py (joining, syncing, leaving),
offsets.py (what was committed), group_records.py (all of it as records of __consumer_offsets),
coordinator.py (which puts them together and is what handlers call).

Groups of the consumer protocol (KIP-848): consumer_member.py and consumer_group.py (their state),
topic_views.py and target_assignment.py (who is to read what), consumer_heartbeats.py (what happens
in a heartbeat), consumer_regexes.py, consumer_records.py, group_writes.py; classic_members.py
and migration.py, where both protocols meet.
"""
