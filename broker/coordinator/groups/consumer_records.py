"""Consumer groups as records of __consumer_offsets, with Kafka's schemas.

| type of key (int16)              | key             | value (version 0)                           |
|----------------------------------|-----------------|---------------------------------------------|
| 3 group                          | group           | epoch, hash of its topics' metadata         |
| 4 partition metadata             | group           | of Kafka 4.0; the hash replaced it. It is   |
|                                  |                 | skipped, and deleted with its group         |
| 5 member                         | group, member   | client, subscription                        |
| 6 target assignment's epoch      | group           | epoch, time                                 |
| 7 target assignment of a member  | group, member   | partitions by topic id                      |
| 8 current assignment of a member | group, member   | epochs, state, partitions with their epochs |
| 16 regular expression            | group, regex    | topics that it matches, version, time       |

A null value deletes the key; the tombstone of a classic group also ends a consumer group of that
name. A change of a group is one batch unless it exceeds the limit of a batch. Its group record
comes first, so that a change that a crash cut short is detected: the target is older than the
group, and is computed again. Next: consumer_heartbeats.py writes them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from barnabas.cext.codec.wire_struct import Struct
from barnabas.coordinator.groups.consumer_group import ConsumerGroup, Resolved
from barnabas.coordinator.groups.consumer_member import ClassicPart, ConsumerMember, Owned
from barnabas.coordinator.groups.group_records import Entry, value_at
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
    key_of,
    member_entries,
    owned_rows,
    partition_rows,
    read_target_epoch,
    tombstones,
)
from barnabas.coordinator.groups.target_assignment import Assignment

GROUP = "ConsumerGroupMetadata"
PARTITIONS = "ConsumerGroupPartitionMetadata"
MEMBER = "ConsumerGroupMemberMetadata"
TARGET_EPOCH = "ConsumerGroupTargetAssignmentMetadata"
TARGET = "ConsumerGroupTargetAssignmentMember"
CURRENT = "ConsumerGroupCurrentMemberAssignment"
REGEX = "ConsumerGroupRegularExpression"


# -- writing --------------------------------------------------------------------------------------


def group_entry(group: ConsumerGroup) -> Entry:
    """Returns the record of the group epoch."""
    return entry(GROUP, group.group_id, epoch=group.epoch, metadataHash=group.metadata_hash)


def member_entry(group_id: str, member: ConsumerMember) -> Entry:
    """Returns the record of a member's metadata."""
    message = value_at(MEMBER)
    classic = None
    if member.classic is not None:
        protocol = message.struct("classicMemberMetadata.supportedProtocols")
        classic = message.struct("classicMemberMetadata")(
            sessionTimeoutMs=member.classic.session_timeout_ms,
            supportedProtocols=[
                protocol(name=name, metadata=metadata)
                for name, metadata in member.classic.protocols
            ],
        )
    return entry(
        MEMBER,
        group_id,
        member.member_id,
        **client_fields(member),
        subscribedTopicNames=list(member.topics),
        subscribedTopicRegex=member.regex,
        serverAssignor=member.assignor,
        classicMemberMetadata=classic,
    )


def target_entry(group_id: str, member_id: str, target: Assignment) -> Entry:
    """Returns the record of a member's target assignment."""
    rows = partition_rows(TARGET, "topicPartitions", target)
    return entry(TARGET, group_id, member_id, topicPartitions=rows)


def current_entry(group_id: str, member: ConsumerMember) -> Entry:
    """Returns the record of a member's current assignment."""
    rows = partial(owned_rows, CURRENT)
    return entry(
        CURRENT,
        group_id,
        member.member_id,
        memberEpoch=member.epoch,
        previousMemberEpoch=member.previous_epoch,
        state=member.state,
        assignedPartitions=rows("assignedPartitions", member.assigned),
        partitionsPendingRevocation=rows("partitionsPendingRevocation", member.revoking),
    )


KIND = Kind(TARGET_EPOCH, (CURRENT, TARGET, MEMBER), member_entry, target_entry, current_entry)


def regex_entry(group_id: str, regex: str, resolved: Resolved) -> Entry:
    """Returns the record of the topics that a regular expression matched."""
    return entry(
        REGEX,
        group_id,
        regex,
        topics=sorted(resolved.topics),
        version=resolved.version,
        timestamp=resolved.at_ms,
    )


def member_tombstones(group_id: str, member_id: str) -> list[Entry]:
    """Returns the tombstones of a member's three records."""
    return tombstones(KIND.of_members, group_id, member_id)


def regex_tombstone(group_id: str, regex: str) -> Entry:
    """Returns the tombstone of a regular expression."""
    return key_of(REGEX, group_id, regex), None


def group_tombstones(group: ConsumerGroup) -> list[Entry]:
    """Returns tombstones for everything that the log may hold of a group, the group itself last."""
    group_id = group.group_id
    entries: list[Entry] = []
    for member_id in {*group.members, *group.writes.removed_members}:
        entries += member_tombstones(group_id, member_id)
    entries += [regex_tombstone(group_id, regex) for regex in group.resolved]
    return entries + tombstones((TARGET_EPOCH, PARTITIONS, GROUP), group_id)


def whole_group(group: ConsumerGroup) -> list[Entry]:
    """Returns all records of a group that is new to the log, or whose log lacks changes."""
    group_id = group.group_id
    regexes = [regex_tombstone(group_id, regex) for regex in group.writes.removed_regexes]
    regexes += [regex_entry(group_id, regex, row) for regex, row in group.resolved.items()]
    return [*beginning(group), group_entry(group), *member_entries(KIND, group, regexes)]


# -- reading --------------------------------------------------------------------------------------


def _read_group(group: ConsumerGroup, _part: str, value: Struct) -> None:
    group.epoch, group.metadata_hash = value.epoch, value.metadataHash


def _read_member(group: ConsumerGroup, member_id: str, value: Struct) -> None:
    classic = None
    if value.classicMemberMetadata is not None:
        row = value.classicMemberMetadata
        classic = ClassicPart(
            row.sessionTimeoutMs,
            tuple((p.name, bytes(p.metadata)) for p in row.supportedProtocols),
        )
    before = group.members.get(member_id) or ConsumerMember(member_id)
    member = before._replace(
        **client_of(value),
        topics=tuple(sorted(value.subscribedTopicNames)),
        regex=value.subscribedTopicRegex,
        assignor=value.serverAssignor,
        classic=classic,
    )
    group.put(member, is_replay=True)


def _read_target(group: ConsumerGroup, member_id: str, value: Struct) -> None:
    group.target[member_id] = {
        bytes(row.topicId): frozenset(row.partitions) for row in value.topicPartitions
    }


def _read_current(group: ConsumerGroup, member_id: str, value: Struct) -> None:
    before = group.members.get(member_id) or ConsumerMember(member_id)
    member = before._replace(
        state=value.state,
        epoch=value.memberEpoch,
        previous_epoch=value.previousMemberEpoch,
        assigned=_owned(value.assignedPartitions, value.memberEpoch),
        revoking=_owned(value.partitionsPendingRevocation, value.memberEpoch),
    )
    group.put(member, is_replay=True)


def _owned(rows: Iterable[Struct], member_epoch: int) -> Owned:
    """Returns the partitions with their epochs."""
    return {bytes(row.topicId): epochs_of(row, member_epoch) for row in rows if row.partitions}


def _read_regex(group: ConsumerGroup, regex: str, value: Struct) -> None:
    group.resolved[regex] = Resolved(frozenset(value.topics), value.version, value.timestamp)


def _forget_target_epoch(group: ConsumerGroup, _part: str) -> None:
    group.target_epoch = 0


def _forget_regex(group: ConsumerGroup, regex: str) -> None:
    group.resolved.pop(regex, None)


# The coordinator itself removes the group. Metadata of topics is skipped: the cluster state has it.
replay: Replay[ConsumerGroup] = Replay(
    values={
        GROUP: _read_group,
        TARGET_EPOCH: read_target_epoch,
        MEMBER: _read_member,
        TARGET: _read_target,
        CURRENT: _read_current,
        REGEX: _read_regex,
    },
    tombstones={
        MEMBER: forget_member,
        TARGET: forget_target,
        CURRENT: forget_current,
        TARGET_EPOCH: _forget_target_epoch,
        REGEX: _forget_regex,
    },
)
