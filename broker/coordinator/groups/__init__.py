"""Groups: their members, the partitions of each member, and the committed offsets.

Start with classic_group.py (the state of a group), then rebalance.py (joining, syncing, leaving),
offsets.py (committed offsets), group_records.py (records of __consumer_offsets) and coordinator.py
(the GroupCoordinator, which handlers call).

What consumer groups (KIP-848), share groups (KIP-932) and streams groups (KIP-1071) have in common
is in membership.py (who is a member), member_position.py (a member on its way to its target),
member_timers.py (session and rebalance timeouts), member_records.py, group_writes.py,
topic_views.py, target_assignment.py and commit_checks.py.

Consumer groups are in consumer_member.py and consumer_group.py (their state),
consumer_heartbeats.py (the steps of a heartbeat), consumer_regexes.py and consumer_records.py.
Members and groups that change the protocol are in classic_members.py and migration.py. Share groups
are in coordinator/share, streams groups in coordinator/streams; streams_kind.py says what this
package uses of the latter.
"""
