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

from collections.abc import Iterable
from functools import partial
from typing import Any

from barnabas.cext.codec.wire_struct import Struct
from barnabas.coordinator.groups.group_records import Entry, value_at
from barnabas.coordinator.groups.member_position import STABLE, UNKNOWN_STATE, UNRELEASED
from barnabas.coordinator.groups.member_records import (
    Kind,
    Replay,
    beginning,
    client_fields,
    client_of,
    entry,
    epochs_of,
    forget_current,
    forget_member,
    forget_target,
    member_entries,
    owned_rows,
    partition_rows,
    read_target_epoch,
    tombstones,
)
from barnabas.coordinator.streams.streams_group import FIRST_EPOCH, StreamsGroup
from barnabas.coordinator.streams.streams_member import Endpoint, StreamsMember
from barnabas.coordinator.streams.tasks import OwnedTasks, TaskEpochs, TaskSets, of_rows
from barnabas.coordinator.streams.topology import InternalTopic, Topology

GROUP = "StreamsGroupMetadata"
MEMBER = "StreamsGroupMemberMetadata"
TARGET_EPOCH = "StreamsGroupTargetAssignmentMetadata"
TARGET = "StreamsGroupTargetAssignmentMember"
CURRENT = "StreamsGroupCurrentMemberAssignment"
TOPOLOGY = "StreamsGroupTopology"


# -- writing --------------------------------------------------------------------------------------


def group_entry(group: StreamsGroup) -> Entry:
    """Returns the record of the group's epoch."""
    config = value_at(GROUP).struct("lastAssignmentConfigs")
    return entry(
        GROUP,
        group.group_id,
        epoch=group.epoch,
        metadataHash=group.metadata_hash,
        validatedTopologyEpoch=group.validated_epoch,
        lastAssignmentConfigs=[config(key=k, value=v) for k, v in group.assignment_configs.items()],
        storedDescriptionTopologyEpoch=group.stored_description_epoch,
        failedDescriptionTopologyEpoch=group.failed_description_epoch,
    )


def member_entry(group_id: str, member: StreamsMember) -> Entry:
    """Returns the record of a member's metadata."""
    message = value_at(MEMBER)
    tag = message.struct("clientTags")
    endpoint = None
    if member.endpoint is not None:
        endpoint = message.struct("userEndpoint")(
            host=member.endpoint.host, port=member.endpoint.port
        )
    return entry(
        MEMBER,
        group_id,
        member.member_id,
        **client_fields(member),
        topologyEpoch=member.topology_epoch,
        processId=member.process_id,
        userEndpoint=endpoint,
        clientTags=[tag(key=k, value=v) for k, v in member.tags],
    )


def target_entry(group_id: str, member_id: str, target: TaskSets) -> Entry:
    """Returns the record of a member's target assignment."""
    names = ("activeTasks", "standbyTasks", "warmupTasks")
    fields = {name: partition_rows(TARGET, name, t) for name, t in zip(names, target, strict=True)}
    return entry(TARGET, group_id, member_id, **fields)


def current_entry(group_id: str, member: StreamsMember) -> Entry:
    """Returns the record of a member's current assignment."""
    fields: dict[str, Any] = {}
    rows, epoch_rows = partial(partition_rows, CURRENT), partial(owned_rows, CURRENT)
    for owned, suffix in ((member.assigned, ""), (member.revoking, "PendingRevocation")):
        for role, rows_of in (("active", epoch_rows), ("standby", rows), ("warmup", rows)):
            name = f"{role}Tasks{suffix}"
            fields[name] = rows_of(name, getattr(owned, role))
    return entry(
        CURRENT,
        group_id,
        member.member_id,
        memberEpoch=member.epoch,
        previousMemberEpoch=member.previous_epoch,
        state=member.state,
        **fields,
    )


KIND = Kind(TARGET_EPOCH, (CURRENT, TARGET, MEMBER), member_entry, target_entry, current_entry)


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
    return entry(TOPOLOGY, group_id, epoch=topology.epoch, subtopologies=rows)


def member_tombstones(group_id: str, member_id: str) -> list[Entry]:
    """Returns the tombstones of a member's three records."""
    return tombstones(KIND.of_members, group_id, member_id)


def group_tombstones(group: StreamsGroup) -> list[Entry]:
    """Returns tombstones for everything that the log may hold of a group, the group itself last."""
    entries: list[Entry] = []
    for member_id in {*group.members, *group.writes.removed_members}:
        entries += member_tombstones(group.group_id, member_id)
    return entries + tombstones((TARGET_EPOCH, TOPOLOGY, GROUP), group.group_id)


def whole_group(group: StreamsGroup) -> list[Entry]:
    """Returns all records of a group that is new to the log, or whose log lacks changes."""
    entries = [*beginning(group), group_entry(group)]
    if group.topology is not None:
        entries.append(topology_entry(group.group_id, group.topology))
    return entries + member_entries(KIND, group)


# -- reading --------------------------------------------------------------------------------------


def _read_group(group: StreamsGroup, _member_id: str, value: Struct) -> None:
    group.epoch, group.metadata_hash = value.epoch, value.metadataHash
    group.validated_epoch = value.validatedTopologyEpoch
    group.assignment_configs = {row.key: row.value for row in value.lastAssignmentConfigs or ()}
    group.stored_description_epoch = value.storedDescriptionTopologyEpoch
    group.failed_description_epoch = value.failedDescriptionTopologyEpoch


def _read_topology(group: StreamsGroup, _member_id: str, value: Struct) -> None:
    group.topology = Topology.of(value)


def _read_member(group: StreamsGroup, member_id: str, value: Struct) -> None:
    endpoint = value.userEndpoint
    before = group.members.get(member_id) or StreamsMember(member_id)
    member = before._replace(
        **client_of(value),
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
    """Returns active tasks with their epochs."""
    return {row.subtopologyId: epochs_of(row, member_epoch) for row in rows if row.partitions}


def _forget_target_epoch(group: StreamsGroup, _member_id: str) -> None:
    group.target_epoch, group.assigned_ms = FIRST_EPOCH, 0


def _forget_topology(group: StreamsGroup, _member_id: str) -> None:
    group.topology = None


# The coordinator itself removes the group.
replay: Replay[StreamsGroup] = Replay(
    values={
        GROUP: _read_group,
        TARGET_EPOCH: read_target_epoch,
        MEMBER: _read_member,
        TARGET: _read_target,
        CURRENT: _read_current,
        TOPOLOGY: _read_topology,
    },
    tombstones={
        MEMBER: forget_member,
        TARGET: forget_target,
        CURRENT: forget_current,
        TARGET_EPOCH: _forget_target_epoch,
        TOPOLOGY: _forget_topology,
    },
)
