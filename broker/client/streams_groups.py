"""Streams groups (KIP-1071) for administrators: members, and the partitions of their tasks."""

from collections.abc import Iterable, Mapping

from barnabas.client.cluster import Cluster
from barnabas.client.groups import Group, GroupMember, describe_group, description_of
from barnabas.errors import GroupIdNotFound, UnknownTopicOrPartition
from barnabas.wire import Struct

DESCRIBE = 89
PROTOCOL = "streams"
ASSIGNOR_FROM = 1  # the version that names it


def describe_committing_group(cluster: Cluster, group_id: str) -> Group:
    """Returns a group that commits offsets, of any protocol, with its members. Raises
    GroupIdNotFound, KafkaError, ClientError."""
    try:
        return describe_group(cluster, group_id)
    except GroupIdNotFound:
        found = describe_streams_group(cluster, group_id)
        if found is None:
            raise
        return found


def describe_streams_group(cluster: Cluster, group_id: str) -> Group | None:
    """Returns a group of the streams protocol; None when there is no such group, or the brokers do
    not support the protocol. A member's assignment has the partitions that its active tasks read.
    Raises KafkaError, ClientError."""
    row = description_of(cluster, DESCRIBE, group_id)
    if row is None:
        return None
    inputs = _inputs(cluster, row)
    members = [
        GroupMember(
            m.memberId,
            m.instanceId,
            m.clientId,
            m.clientHost,
            _partitions(inputs, m.assignment.activeTasks),
            epoch=m.memberEpoch,
            target=_partitions(inputs, m.targetAssignment.activeTasks),
            kind=PROTOCOL,
        )
        for m in row.members
    ]
    return Group(
        group_id,
        row.groupState,
        PROTOCOL,
        row.assignorName or "",
        members,
        kind=PROTOCOL,
        epoch=row.groupEpoch,
        target_epoch=row.assignmentEpoch,
    )


def _inputs(cluster: Cluster, group: Struct) -> dict[str, dict[str, int]]:
    """Returns the input topics of each subtopology, with their numbers of partitions."""
    found: dict[str, dict[str, int]] = {}
    for row in () if group.topology is None else group.topology.subtopologies or ():
        names = (*row.sourceTopics, *(topic.name for topic in row.repartitionSourceTopics))
        found[row.subtopologyId] = {name: _partition_count(cluster, name) for name in names}
    return found


def _partition_count(cluster: Cluster, topic: str) -> int:
    try:
        return len(cluster.topic(topic).partitions)
    except UnknownTopicOrPartition:
        return 0


def _partitions(
    inputs: Mapping[str, Mapping[str, int]], tasks: Iterable[Struct]
) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for row in tasks:
        for topic, count in inputs.get(row.subtopologyId, {}).items():
            owned = tuple(sorted(p for p in row.partitions if p < count))
            if owned:
                found[topic] = owned
    return found
