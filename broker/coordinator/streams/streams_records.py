"""Streams groups as records of __consumer_offsets, with Kafka's schemas.

| type of key (int16)               | key           | value (version 0)                            |
|-----------------------------------|---------------|----------------------------------------------|
| 17 group                          | group         | epoch, hash of its topics' metadata, ready |
|                                   |               | topology's epoch, settings                   |
| 19 member                         | group, member | client, process, endpoint, tags              |
| 20 target assignment's epoch      | group         | epoch, time                                  |
| 21 target assignment of a member  | group, member | tasks in each role                           |
| 22 current assignment of a member | group, member | epochs, state, tasks in each role            |
| 23 topology                       | group         | subtopologies and their topics               |

A null value deletes the key. A change of a group is one batch unless it exceeds the limit of a
batch. Its group record comes first, so that a change that a crash cut short is detected: the target
is older than the group, and is computed again. Next: streams_heartbeats.py writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from barnabas.cext.codec.wire_struct import Struct
from barnabas.cext.record.records import Record
from barnabas.coordinator.groups.group_records import Entry, group_key, keys_of, value_at, values_of
from barnabas.coordinator.streams.streams_group import FIRST_EPOCH, StreamsGroup
from barnabas.coordinator.streams.streams_member import (
    JOIN,
    STABLE,
    UNKNOWN_STATE,
    UNRELEASED,
    Endpoint,
    StreamsMember,
)
from barnabas.coordinator.streams.tasks import (
    NOTHING_OWNED,
    OwnedTasks,
    TaskEpochs,
    Tasks,
    TaskSets,
    of_rows,
)
from barnabas.coordinator.streams.topology import InternalTopic, Topology

GROUP = "StreamsGroupMetadata"
MEMBER = "StreamsGroupMemberMetadata"
TARGET_EPOCH = "StreamsGroupTargetAssignmentMetadata"
TARGET = "StreamsGroupTargetAssignmentMember"
CURRENT = "StreamsGroupCurrentMemberAssignment"
TOPOLOGY = "StreamsGroupTopology"
NAMES = {17: GROUP, 19: MEMBER, 20: TARGET_EPOCH, 21: TARGET, 22: CURRENT, 23: TOPOLOGY}
OF_MEMBERS = (MEMBER, TARGET, CURRENT)
VERSION = 0


# -- writing --------------------------------------------------------------------------------------


def key(name: str, group_id: str, member_id: str | None = None) -> bytes:
    """Returns the key of a record. `member_id`: if the key has one."""
    head, program, cls = keys_of(name)
    if member_id is None:
        return head + program.encode(cls(groupId=group_id))
    return head + program.encode(cls(groupId=group_id, memberId=member_id))


def _value(name: str, **fields: Any) -> bytes:
    head, program = values_of(name, VERSION)
    return head + program.encode(program.cls(**fields))


def group_entry(group: StreamsGroup) -> Entry:
    """Returns the record of the group's epoch."""
    config = value_at(GROUP).struct("lastAssignmentConfigs")
    value = _value(
        GROUP,
        epoch=group.epoch,
        metadataHash=group.metadata_hash,
        validatedTopologyEpoch=group.validated_epoch,
        lastAssignmentConfigs=[config(key=k, value=v) for k, v in group.assignment_configs.items()],
        storedDescriptionTopologyEpoch=group.stored_description_epoch,
        failedDescriptionTopologyEpoch=group.failed_description_epoch,
    )
    return key(GROUP, group.group_id), value


def target_epoch_entry(group: StreamsGroup) -> Entry:
    """Returns the record of the target assignment's epoch."""
    value = _value(
        TARGET_EPOCH, assignmentEpoch=group.target_epoch, assignmentTimestamp=group.assigned_ms
    )
    return key(TARGET_EPOCH, group.group_id), value


def member_entry(group_id: str, member: StreamsMember) -> Entry:
    """Returns the record of a member's metadata."""
    message = value_at(MEMBER)
    tag = message.struct("clientTags")
    endpoint = None
    if member.endpoint is not None:
        endpoint = message.struct("userEndpoint")(
            host=member.endpoint.host, port=member.endpoint.port
        )
    value = _value(
        MEMBER,
        instanceId=member.instance_id,
        rackId=member.rack_id,
        clientId=member.client_id,
        clientHost=member.client_host,
        rebalanceTimeoutMs=member.rebalance_timeout_ms,
        topologyEpoch=member.topology_epoch,
        processId=member.process_id,
        userEndpoint=endpoint,
        clientTags=[tag(key=k, value=v) for k, v in member.tags],
    )
    return key(MEMBER, group_id, member.member_id), value


def target_entry(group_id: str, member_id: str, target: TaskSets) -> Entry:
    """Returns the record of a member's target assignment."""
    names = ("activeTasks", "standbyTasks", "warmupTasks")
    fields = {name: _rows(TARGET, name, t) for name, t in zip(names, target, strict=True)}
    return key(TARGET, group_id, member_id), _value(TARGET, **fields)


def current_entry(group_id: str, member: StreamsMember) -> Entry:
    """Returns the record of a member's current assignment."""
    fields: dict[str, list[Struct]] = {}
    for owned, suffix in ((member.assigned, ""), (member.revoking, "PendingRevocation")):
        name = f"activeTasks{suffix}"
        row = value_at(CURRENT).struct(name)
        fields[name] = [
            row(
                subtopologyId=subtopology,
                partitions=list(epochs),
                assignmentEpochs=list(epochs.values()),
            )
            for subtopology, epochs in owned.active.items()
        ]
        fields[f"standbyTasks{suffix}"] = _rows(CURRENT, f"standbyTasks{suffix}", owned.standby)
        fields[f"warmupTasks{suffix}"] = _rows(CURRENT, f"warmupTasks{suffix}", owned.warmup)
    value = _value(
        CURRENT,
        memberEpoch=member.epoch,
        previousMemberEpoch=member.previous_epoch,
        state=member.state,
        **fields,
    )
    return key(CURRENT, group_id, member.member_id), value


def _rows(message: str, field: str, tasks: Tasks) -> list[Struct]:
    row = value_at(message).struct(field)
    return [row(subtopologyId=name, partitions=sorted(found)) for name, found in tasks.items()]


def topology_entry(group_id: str, topology: Topology) -> Entry:
    """Returns the record of the group's topology."""
    message = value_at(TOPOLOGY)
    copartition = message.struct("subtopologies.copartitionGroups")

    def topics(field: str, rows: Iterable[InternalTopic]) -> list[Struct]:
        row_of = message.struct(f"subtopologies.{field}")
        config_of = message.struct(f"subtopologies.{field}.topicConfigs")
        return [
            row_of(
                name=row.name,
                partitions=row.partition_count,
                replicationFactor=row.replication_factor,
                topicConfigs=[config_of(key=k, value=v) for k, v in row.configs],
            )
            for row in rows
        ]

    rows = [
        message.struct("subtopologies")(
            subtopologyId=row.subtopology_id,
            sourceTopics=list(row.sources),
            sourceTopicRegex=list(row.regexes),
            stateChangelogTopics=topics("stateChangelogTopics", row.changelogs),
            repartitionSinkTopics=list(row.repartition_sinks),
            repartitionSourceTopics=topics("repartitionSourceTopics", row.repartition_sources),
            copartitionGroups=[
                copartition(
                    sourceTopics=list(one.sources),
                    sourceTopicRegex=list(one.regexes),
                    repartitionSourceTopics=list(one.repartition_sources),
                )
                for one in row.copartitions
            ],
        )
        for row in topology.subtopologies.values()
    ]
    return key(TOPOLOGY, group_id), _value(TOPOLOGY, epoch=topology.epoch, subtopologies=rows)


def member_tombstones(group_id: str, member_id: str) -> list[Entry]:
    """Returns the tombstones of a member's three records."""
    return [(key(name, group_id, member_id), None) for name in (CURRENT, TARGET, MEMBER)]


def group_tombstones(group: StreamsGroup) -> list[Entry]:
    """Returns tombstones for everything that the log may hold of a group, the group itself last."""
    entries: list[Entry] = []
    for member_id in {*group.members, *group.unwritten}:
        entries += member_tombstones(group.group_id, member_id)
    return entries + [(key(name, group.group_id), None) for name in (TARGET_EPOCH, TOPOLOGY, GROUP)]


def beginning(group: StreamsGroup) -> list[Entry]:
    """Returns the tombstone that precedes a group that is new to the log. It ends a classic group
    of that name, whose own tombstone may have failed."""
    return [(group_key(group.group_id), None)] if group.fresh else []


def whole_group(group: StreamsGroup) -> list[Entry]:
    """Returns all records of a group that is new to the log, or whose log lacks changes."""
    group_id = group.group_id
    entries = [*beginning(group), group_entry(group)]
    if group.topology is not None:
        entries.append(topology_entry(group_id, group.topology))
    for member_id in group.unwritten - group.members.keys():
        entries += member_tombstones(group_id, member_id)
    entries += [member_entry(group_id, member) for member in group.members.values()]
    entries += [target_entry(group_id, m, target) for m, target in group.target.items()]
    entries.append(target_epoch_entry(group))
    entries += [current_entry(group_id, member) for member in group.members.values()]
    return entries


# -- reading --------------------------------------------------------------------------------------


class StreamsRecord(NamedTuple):
    """A record of a streams group: its key, and the fields of its value; None is a tombstone."""

    name: str
    group_id: str
    member_id: str
    value: Struct | None

    @property
    def group_type(self) -> Literal["streams"]:
        return "streams"

    @property
    def ends_group(self) -> bool:
        return self.name == GROUP and self.value is None


def read_streams_record(record: Record) -> StreamsRecord | None:
    """Decodes a record. Returns None for a type that is not of streams groups. Raises
    ValueError."""
    data = record.key or b""
    name = NAMES.get(data[0] << 8 | data[1]) if len(data) >= 2 else None
    if name is None:
        return None
    found = keys_of(name)[1].decode(data, 2)[0]
    value = None
    if record.value is not None:
        if len(record.value) < 2:
            raise ValueError(f"a value of {name} of {len(record.value)} bytes")
        version = record.value[0] << 8 | record.value[1]
        value = values_of(name, version)[1].decode(record.value, 2)[0]
    member_id = found.memberId if name in OF_MEMBERS else ""
    return StreamsRecord(name, found.groupId, member_id, value)


def replay(group: StreamsGroup, record: StreamsRecord) -> None:
    """Applies a record to a group that is being loaded."""
    if record.value is not None:
        _READ[record.name](group, record.member_id, record.value)
    elif record.name in _FORGET:
        _FORGET[record.name](group, record.member_id)


def _read_group(group: StreamsGroup, _member_id: str, value: Struct) -> None:
    group.epoch, group.metadata_hash = value.epoch, value.metadataHash
    group.validated_epoch = value.validatedTopologyEpoch
    group.assignment_configs = {row.key: row.value for row in value.lastAssignmentConfigs or ()}
    group.stored_description_epoch = value.storedDescriptionTopologyEpoch
    group.failed_description_epoch = value.failedDescriptionTopologyEpoch


def _read_target_epoch(group: StreamsGroup, _member_id: str, value: Struct) -> None:
    group.target_epoch, group.assigned_ms = value.assignmentEpoch, value.assignmentTimestamp


def _read_topology(group: StreamsGroup, _member_id: str, value: Struct) -> None:
    group.topology = Topology.of(value)


def _read_member(group: StreamsGroup, member_id: str, value: Struct) -> None:
    endpoint = value.userEndpoint
    before = group.members.get(member_id) or StreamsMember(member_id)
    member = before._replace(
        instance_id=value.instanceId,
        rack_id=value.rackId,
        client_id=value.clientId,
        client_host=value.clientHost,
        rebalance_timeout_ms=value.rebalanceTimeoutMs,
        topology_epoch=value.topologyEpoch,
        process_id=value.processId,
        endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        tags=tuple(sorted((row.key, row.value) for row in value.clientTags)),
    )
    group.put(member, is_replay=True)


def _read_target(group: StreamsGroup, member_id: str, value: Struct) -> None:
    group.target[member_id] = TaskSets(
        of_rows(value.activeTasks), of_rows(value.standbyTasks), of_rows(value.warmupTasks)
    )


def _read_current(group: StreamsGroup, member_id: str, value: Struct) -> None:
    before = group.members.get(member_id) or StreamsMember(member_id)
    member = before._replace(
        state=value.state if STABLE <= value.state <= UNRELEASED else UNKNOWN_STATE,
        epoch=value.memberEpoch,
        previous_epoch=value.previousMemberEpoch,
        assigned=OwnedTasks(
            _epochs(value.activeTasks, value.memberEpoch),
            of_rows(value.standbyTasks),
            of_rows(value.warmupTasks),
        ),
        revoking=OwnedTasks(
            _epochs(value.activeTasksPendingRevocation, value.memberEpoch),
            of_rows(value.standbyTasksPendingRevocation),
            of_rows(value.warmupTasksPendingRevocation),
        ),
    )
    group.put(member, is_replay=True)


def _epochs(rows: Iterable[Struct], member_epoch: int) -> TaskEpochs:
    """Returns active tasks with their epochs. Kafka 4.1 wrote none: then each task has the member's
    epoch."""
    found: dict[str, Mapping[int, int]] = {}
    for row in rows:
        epochs = row.assignmentEpochs
        if epochs is None or len(epochs) != len(row.partitions):
            epochs = [member_epoch] * len(row.partitions)
        if row.partitions:
            found[row.subtopologyId] = dict(zip(row.partitions, epochs, strict=True))
    return found


def _forget_member(group: StreamsGroup, member_id: str) -> None:
    target = group.target.get(member_id)
    group.remove(member_id)
    if target is not None:
        group.target[member_id] = target


def _forget_target(group: StreamsGroup, member_id: str) -> None:
    group.target.pop(member_id, None)


def _forget_current(group: StreamsGroup, member_id: str) -> None:
    member = group.members.get(member_id)
    if member is not None:
        fresh = member._replace(
            state=STABLE,
            epoch=JOIN,
            previous_epoch=0,
            assigned=NOTHING_OWNED,
            revoking=NOTHING_OWNED,
        )
        group.put(fresh, is_replay=True)


def _forget_target_epoch(group: StreamsGroup, _member_id: str) -> None:
    group.target_epoch, group.assigned_ms = FIRST_EPOCH, 0


def _forget_topology(group: StreamsGroup, _member_id: str) -> None:
    group.topology = None


_READ: dict[str, Callable[[StreamsGroup, str, Struct], None]] = {
    GROUP: _read_group,
    TARGET_EPOCH: _read_target_epoch,
    MEMBER: _read_member,
    TARGET: _read_target,
    CURRENT: _read_current,
    TOPOLOGY: _read_topology,
}
_FORGET: dict[str, Callable[[StreamsGroup, str], None]] = {
    MEMBER: _forget_member,
    TARGET: _forget_target,
    CURRENT: _forget_current,
    TARGET_EPOCH: _forget_target_epoch,
    TOPOLOGY: _forget_topology,
}
