"""Groups: their members, the partitions of each member, and the committed offsets.

Start with classic_group.py (the state of a group), then rebalance.py (joining, syncing, leaving),
offsets.py (committed offsets), group_records.py (records of __consumer_offsets) and coordinator.py
(the GroupCoordinator, which handlers call).

Groups of the consumer protocol (KIP-848) are in consumer_member.py and consumer_group.py (their
state), topic_views.py and target_assignment.py (the assignment of partitions),
consumer_heartbeats.py (the steps of a heartbeat), consumer_regexes.py, consumer_records.py and
group_writes.py. Members and groups that change the protocol are in classic_members.py and
migration.py. Groups of the streams protocol (KIP-1071) are in coordinator/streams; streams_kind.py
says what this package uses of them.
"""
