"""Consumer groups: list, describe (with members' partitions), committed offsets, resets, deletion.

Requests for a group go to its coordinator; the client looks the coordinator up again when it has
moved. Functions raise KafkaError, ClientError.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from barnabas.client.cluster import Cluster
from barnabas.client.connection import Connection
from barnabas.client.failures import NotSpokenByBroker, raise_for
from barnabas.errors import GroupIdNotFound, NonEmptyGroup, UnsupportedVersion
from barnabas.wire import Struct, request

T = TypeVar("T")
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10
DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS = 15, 16, 42
DESCRIBE_CONSUMERS = 69
CLASSIC_MEMBER = 0
GROUP, TRANSACTION = 0, 1  # kinds of coordinators
# The newest versions that have one group and use names of topics.
COORDINATOR_HIGH, FETCH_HIGH, COMMIT_HIGH = 3, 7, 9
DEAD = "Dead"
RESETTABLE = ("Empty", DEAD)

Offsets = dict[str, dict[int, int]]  # topic, partition


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One group as ListGroups (16) describes it. `kind`: classic, consumer or share; `coordinator`:
    the id of its broker."""

    group_id: str
    protocol_type: str
    state: str  # "" from brokers before Kafka 2.6
    kind: str  # "" from brokers before Kafka 4.0
    coordinator: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member of a group. `assignment`: topic -> partitions that the member has; `kind`: the
    protocol that the member uses: classic, consumer or streams."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: Mapping[str, tuple[int, ...]]
    # Only of consumer groups (KIP-848) and streams groups (KIP-1071):
    epoch: int | None = None
    target: Mapping[str, tuple[int, ...]] | None = None  # its target assignment
    kind: str = "classic"


@dataclass(frozen=True, slots=True)
class Group:
    """A group with its members, of any protocol. `assignor`: the protocol name of a classic group;
    `epoch`, `target_epoch`: the group epoch and the epoch of the target assignment."""

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    members: list[GroupMember] = field(default_factory=list)
    kind: str = "classic"
    # Only of consumer and streams groups:
    epoch: int | None = None
    target_epoch: int | None = None


def list_groups(cluster: Cluster) -> list[GroupListing]:
    """Returns the groups of all brokers, sorted by id; the user sees those that it may describe.
    Raises the first error of a broker (KafkaError, ClientError)."""

    def of(node_id: int) -> Callable[[], list[GroupListing]]:
        def step() -> list[GroupListing]:
            answer = cluster.connection_to(node_id).call(LIST_GROUPS, request(LIST_GROUPS).cls())
            raise_for(answer.errorCode, f"broker {node_id}")
            return [
                GroupListing(g.groupId, g.protocolType, g.groupState, g.groupType, node_id)
                for g in answer.groups
            ]

        return step

    cluster.refresh([])
    found = [row for node_id in cluster.brokers for row in cluster.retrying(of(node_id))]
    return sorted(found, key=lambda row: row.group_id)


def describe_group(cluster: Cluster, group_id: str) -> Group:
    """Returns a group of the classic or the consumer protocol with its members. Raises
    GroupIdNotFound when there is none, also for brokers before KIP-1043, which answer with the
    state Dead; KafkaError, ClientError."""

    def step(connection: Connection) -> Struct:
        body = request(DESCRIBE_GROUPS).cls(groups=[group_id])
        (row,) = connection.call(DESCRIBE_GROUPS, body).groups
        raise_for(row.errorCode, f"group {group_id}", row.errorMessage)
        return row

    try:
        row = with_coordinator(cluster, group_id, step)
        if row.groupState == DEAD:
            raise GroupIdNotFound(f"group {group_id}: {GroupIdNotFound.meaning}")
    except GroupIdNotFound:
        found = describe_consumer_group(cluster, group_id)  # perhaps of the other protocol
        if found is None:
            raise
        return found
    members = [
        GroupMember(m.memberId, m.groupInstanceId, m.clientId, m.clientHost, assignment_of(m))
        for m in row.members
    ]
    return Group(group_id, row.groupState, row.protocolType, row.protocolData, members)


def description_of(cluster: Cluster, key: int, group_id: str) -> Struct | None:
    """Returns the row of a group of the consumer or the streams protocol. `key`: the API that
    describes it. None when there is no such group, or the brokers do not support the protocol."""

    def step(connection: Connection) -> Struct | None:
        body = request(key).cls(groupIds=[group_id])
        try:
            (row,) = connection.call(key, body).groups
        except NotSpokenByBroker:
            return None
        if row.errorCode in (GroupIdNotFound.code, UnsupportedVersion.code):
            return None
        raise_for(row.errorCode, f"group {group_id}", row.errorMessage)
        return row

    return with_coordinator(cluster, group_id, step)


def describe_consumer_group(cluster: Cluster, group_id: str) -> Group | None:
    """Returns a group of the consumer protocol (KIP-848); None when there is no such group, or the
    brokers do not support the protocol."""
    row = description_of(cluster, DESCRIBE_CONSUMERS, group_id)
    if row is None:
        return None

    def owned(assignment: Struct) -> dict[str, tuple[int, ...]]:
        return {topic.topicName: tuple(topic.partitions) for topic in assignment.topicPartitions}

    members = [
        GroupMember(
            m.memberId,
            m.instanceId,
            m.clientId,
            m.clientHost,
            owned(m.assignment),
            m.memberEpoch,
            owned(m.targetAssignment),
            "classic" if m.memberType == CLASSIC_MEMBER else "consumer",
        )
        for m in row.members
    ]
    return Group(
        group_id,
        row.groupState,
        "consumer",
        row.assignorName,
        members,
        "consumer",
        row.groupEpoch,
        row.assignmentEpoch,
    )


def assignment_of(member: Struct) -> dict[str, tuple[int, ...]]:
    """Returns topic -> partitions of the bytes `memberAssignment` that a leader wrote
    (ConsumerProtocolAssignment); an empty dict when the bytes cannot be parsed, as for other
    protocol types."""
    data = bytes(member.memberAssignment)
    found: dict[str, tuple[int, ...]] = {}
    try:
        at = 6
        for _ in range(struct.unpack_from(">i", data, 2)[0]):
            size = struct.unpack_from(">h", data, at)[0]
            name = data[at + 2 : at + 2 + size].decode()
            at += 2 + size
            count = struct.unpack_from(">i", data, at)[0]
            found[name] = struct.unpack_from(f">{count}i", data, at + 4)
            at += 4 + 4 * count
    except (struct.error, UnicodeDecodeError):
        return {}
    return found


def committed_offsets(cluster: Cluster, group_id: str) -> Offsets:
    """Returns all committed offsets of a group: topic -> partition -> offset of the next record to
    read. An unknown group has none. Raises KafkaError, ClientError."""

    def step(connection: Connection) -> Offsets:
        body = request(OFFSET_FETCH).cls(groupId=group_id, topics=None)
        answer = connection.call(OFFSET_FETCH, body, low=2, high=FETCH_HIGH)
        raise_for(answer.errorCode, f"group {group_id}")
        found: Offsets = {}
        for topic in answer.topics:
            for row in topic.partitions:
                raise_for(row.errorCode, f"partition {row.partitionIndex} of topic {topic.name}")
                found.setdefault(topic.name, {})[row.partitionIndex] = row.committedOffset
        return found

    return with_coordinator(cluster, group_id, step)


def commit_offsets(cluster: Cluster, group_id: str, offsets: Offsets) -> None:
    """Sets committed offsets of a group without members: topic -> partition -> offset. Raises
    NonEmptyGroup while the group has members, UnknownTopicOrPartition, ClientError."""

    def step(connection: Connection) -> None:
        message = request(OFFSET_COMMIT)
        row = message.struct("topics.partitions")
        topics = [
            message.struct("topics")(
                name=name,
                partitions=[
                    row(partitionIndex=index, committedOffset=offset, committedMetadata="")
                    for index, offset in partitions.items()
                ],
            )
            for name, partitions in offsets.items()
        ]
        body = message.cls(groupId=group_id, topics=topics)
        answer = connection.call(OFFSET_COMMIT, body, low=2, high=COMMIT_HIGH)
        for topic in answer.topics:
            for row in topic.partitions:
                what = f"partition {row.partitionIndex} of topic {topic.name}"
                raise_for(row.errorCode, what)

    state = _state(cluster, group_id)
    if state not in RESETTABLE:
        raise NonEmptyGroup(f"group {group_id} has members (it is {state}): stop them first")
    with_coordinator(cluster, group_id, step)


def _state(cluster: Cluster, group_id: str) -> str:
    try:
        return describe_group(cluster, group_id).state
    except GroupIdNotFound:
        return DEAD


def delete_groups(cluster: Cluster, group_ids: Iterable[str]) -> None:
    """Deletes groups with their committed offsets. Raises the first GroupIdNotFound or
    NonEmptyGroup after it has tried all groups; another error at once."""

    def of(group_id: str) -> Callable[[Connection], None]:
        def step(connection: Connection) -> None:
            body = request(DELETE_GROUPS).cls(groupsNames=[group_id])
            (row,) = connection.call(DELETE_GROUPS, body).results
            raise_for(row.errorCode, f"group {group_id}", row.errorMessage)

        return step

    refused: list[Exception] = []
    for group_id in group_ids:
        try:
            with_coordinator(cluster, group_id, of(group_id))
        except (GroupIdNotFound, NonEmptyGroup) as error:
            refused.append(error)
    for refusal in refused:
        raise refusal


def with_coordinator(
    cluster: Cluster, name: str, step: Callable[[Connection], T], *, kind: int = GROUP
) -> T:
    """Returns what `step` returns for a connection to the coordinator of a group or a transactional
    id (`kind`: GROUP or TRANSACTION). Finds the coordinator and calls `step` again after retriable
    errors, within the timeout of the cluster, and raises the last error."""
    what = "group" if kind == GROUP else "transactional id"
    fields = {} if kind == GROUP else {"keyType": kind}

    def found() -> T:
        body = request(FIND_COORDINATOR).cls(key=name, **fields)
        answer = cluster.any_connection().call(
            FIND_COORDINATOR, body, low=1 if fields else 0, high=COORDINATOR_HIGH
        )
        raise_for(answer.errorCode, f"the coordinator of {what} {name}")
        return step(cluster.connection_to(answer.nodeId))

    return cluster.retrying(found)
