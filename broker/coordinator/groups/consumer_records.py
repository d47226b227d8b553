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

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from barnabas.cext.codec.wire_struct import Struct
from barnabas.cext.record.records import Record
from barnabas.coordinator.groups.consumer_group import ConsumerGroup, Resolved
from barnabas.coordinator.groups.consumer_member import (
    JOIN,
    NOTHING,
    STABLE,
    ClassicPart,
    ConsumerMember,
    Owned,
    with_epoch,
)
from barnabas.coordinator.groups.group_records import Entry, group_key, keys_of, value_at, values_of
from barnabas.coordinator.groups.target_assignment import Assignment

GROUP = "ConsumerGroupMetadata"
PARTITIONS = "ConsumerGroupPartitionMetadata"
MEMBER = "ConsumerGroupMemberMetadata"
TARGET_EPOCH = "ConsumerGroupTargetAssignmentMetadata"
TARGET = "ConsumerGroupTargetAssignmentMember"
CURRENT = "ConsumerGroupCurrentMemberAssignment"
REGEX = "ConsumerGroupRegularExpression"
NAMES = {3: GROUP, 4: PARTITIONS, 5: MEMBER, 6: TARGET_EPOCH, 7: TARGET, 8: CURRENT, 16: REGEX}
VERSION = 0


# -- writing --------------------------------------------------------------------------------------


def key(name: str, group_id: str, part: str | None = None) -> bytes:
    """Returns the key of a record. `part`: the member id or regular expression, if the key has
    one."""
    head, program, cls = keys_of(name)
    if part is None:
        return head + program.encode(cls(groupId=group_id))
    if name == REGEX:
        return head + program.encode(cls(groupId=group_id, regularExpression=part))
    return head + program.encode(cls(groupId=group_id, memberId=part))


def _value(name: str, **fields: Any) -> bytes:
    head, program = values_of(name, VERSION)
    return head + program.encode(program.cls(**fields))


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> Entry:
    """Returns the record of the group epoch."""
    return key(GROUP, group_id), _value(GROUP, epoch=epoch, metadataHash=metadata_hash)


def target_epoch(group_id: str, epoch: int, now_ms: int) -> Entry:
    """Returns the record of the target assignment's epoch. `now_ms`: wall clock."""
    value = _value(TARGET_EPOCH, assignmentEpoch=epoch, assignmentTimestamp=now_ms)
    return key(TARGET_EPOCH, group_id), value


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
    value = _value(
        MEMBER,
        instanceId=member.instance_id,
        rackId=member.rack_id,
        clientId=member.client_id,
        clientHost=member.client_host,
        subscribedTopicNames=list(member.topics),
        subscribedTopicRegex=member.regex,
        rebalanceTimeoutMs=member.rebalance_timeout_ms,
        serverAssignor=member.assignor,
        classicMemberMetadata=classic,
    )
    return key(MEMBER, group_id, member.member_id), value


def target_entry(group_id: str, member_id: str, target: Assignment) -> Entry:
    """Returns the record of a member's target assignment."""
    row = value_at(TARGET).struct("topicPartitions")
    rows = [row(topicId=t, partitions=sorted(partitions)) for t, partitions in target.items()]
    return key(TARGET, group_id, member_id), _value(TARGET, topicPartitions=rows)


def current_entry(group_id: str, member: ConsumerMember) -> Entry:
    """Returns the record of a member's current assignment."""
    message = value_at(CURRENT)

    def rows(name: str, owned: Owned) -> list[Struct]:
        row = message.struct(name)
        return [
            row(topicId=t, partitions=list(epochs), assignmentEpochs=list(epochs.values()))
            for t, epochs in owned.items()
        ]

    value = _value(
        CURRENT,
        memberEpoch=member.epoch,
        previousMemberEpoch=member.previous_epoch,
        state=member.state,
        assignedPartitions=rows("assignedPartitions", member.assigned),
        partitionsPendingRevocation=rows("partitionsPendingRevocation", member.revoking),
    )
    return key(CURRENT, group_id, member.member_id), value


def regex_entry(group_id: str, regex: str, resolved: Resolved) -> Entry:
    """Returns the record of the topics that a regular expression matched."""
    value = _value(
        REGEX,
        topics=sorted(resolved.topics),
        version=resolved.version,
        timestamp=resolved.at_ms,
    )
    return key(REGEX, group_id, regex), value


def member_tombstones(group_id: str, member_id: str) -> list[Entry]:
    """Returns the tombstones of a member's three records."""
    return [(key(name, group_id, member_id), None) for name in (CURRENT, TARGET, MEMBER)]


def regex_tombstone(group_id: str, regex: str) -> Entry:
    """Returns the tombstone of a regular expression."""
    return key(REGEX, group_id, regex), None


def group_tombstones(group: ConsumerGroup) -> list[Entry]:
    """Returns tombstones for everything that the log may hold of a group, the group itself last."""
    group_id = group.group_id
    entries: list[Entry] = []
    for member_id in {*group.members, *group.unwritten}:
        entries += member_tombstones(group_id, member_id)
    entries += [regex_tombstone(group_id, regex) for regex in group.resolved]
    entries += [(key(name, group_id), None) for name in (TARGET_EPOCH, PARTITIONS, GROUP)]
    return entries


def beginning(group: ConsumerGroup) -> list[Entry]:
    """Returns the tombstones that precede a group that is new to the log. They end a former group
    of that name, of either protocol, whose own tombstones may have failed."""
    return [(group_key(group.group_id), None)] if group.fresh else []


def whole_group(group: ConsumerGroup) -> list[Entry]:
    """Returns all records of a group that is new to the log, or whose log lacks changes."""
    group_id = group.group_id
    entries = beginning(group)
    entries.append(group_epoch(group_id, group.epoch, group.metadata_hash))
    for member_id in group.unwritten - group.members.keys():
        entries += member_tombstones(group_id, member_id)
    entries += [member_entry(group_id, member) for member in group.members.values()]
    entries += [regex_tombstone(group_id, regex) for regex in group.unwritten_regexes]
    entries += [regex_entry(group_id, regex, row) for regex, row in group.resolved.items()]
    entries += [target_entry(group_id, m, target) for m, target in group.target.items()]
    entries.append(target_epoch(group_id, group.target_epoch, group.assigned_ms))
    entries += [current_entry(group_id, member) for member in group.members.values()]
    return entries


# -- reading --------------------------------------------------------------------------------------


class ConsumerRecord(NamedTuple):
    """A record of a consumer group: its key, and the fields of its value; None is a tombstone."""

    name: str
    group_id: str
    part: str | None  # the member id or regular expression
    value: Struct | None

    @property
    def group_type(self) -> Literal["consumer"]:
        return "consumer"

    @property
    def ends_group(self) -> bool:
        return self.name == GROUP and self.value is None


def read_consumer_record(record: Record) -> ConsumerRecord | None:
    """Decodes a record. Returns None for a type that is not of consumer groups. Raises
    ValueError."""
    data = record.key or b""
    name = NAMES.get(data[0] << 8 | data[1]) if len(data) >= 2 else None
    if name is None:
        return None
    found = keys_of(name)[1].decode(data, 2)[0]
    part = None
    if name == REGEX:
        part = found.regularExpression
    elif name in (MEMBER, TARGET, CURRENT):
        part = found.memberId
    value = None
    if record.value is not None:
        if len(record.value) < 2:
            raise ValueError(f"a value of {name} of {len(record.value)} bytes")
        version = record.value[0] << 8 | record.value[1]
        value = values_of(name, version)[1].decode(record.value, 2)[0]
    return ConsumerRecord(name, found.groupId, part, value)


def replay(group: ConsumerGroup, record: ConsumerRecord) -> None:
    """Applies a record to a group that is being loaded."""
    if record.value is None:
        _FORGET.get(record.name, _forget_group_row)(group, record.part or "")
    else:
        _READ.get(record.name, _pass_over)(group, record.part or "", record.value)


def _pass_over(group: ConsumerGroup, part: str, value: Struct) -> None:
    """Skips the metadata of topics that Kafka 4.0 stored: the cluster state has it."""


def _read_group(group: ConsumerGroup, _part: str, value: Struct) -> None:
    group.epoch, group.metadata_hash = value.epoch, value.metadataHash


def _read_target_epoch(group: ConsumerGroup, _part: str, value: Struct) -> None:
    group.target_epoch, group.assigned_ms = value.assignmentEpoch, value.assignmentTimestamp


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
        instance_id=value.instanceId,
        rack_id=value.rackId,
        client_id=value.clientId,
        client_host=value.clientHost,
        topics=tuple(sorted(value.subscribedTopicNames)),
        regex=value.subscribedTopicRegex,
        rebalance_timeout_ms=value.rebalanceTimeoutMs,
        assignor=value.serverAssignor,
        classic=classic,
    )
    group.put(member, replaying=True)


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
    group.put(member, replaying=True)


def _owned(rows: Iterable[Struct], member_epoch: int) -> Owned:
    """Returns the partitions with their epochs. Older brokers wrote no epochs: then each partition
    has the member's epoch."""
    found: dict[bytes, Mapping[int, int]] = {}
    for row in rows:
        epochs = row.assignmentEpochs
        if epochs is None or len(epochs) != len(row.partitions):
            found |= with_epoch({bytes(row.topicId): row.partitions}, member_epoch)
        elif row.partitions:
            found[bytes(row.topicId)] = dict(zip(row.partitions, epochs, strict=True))
    return found


def _read_regex(group: ConsumerGroup, regex: str, value: Struct) -> None:
    group.resolved[regex] = Resolved(frozenset(value.topics), value.version, value.timestamp)


def _forget_member(group: ConsumerGroup, member_id: str) -> None:
    target = group.target.get(member_id)
    group.remove(member_id)
    if target is not None:
        group.target[member_id] = target


def _forget_target(group: ConsumerGroup, member_id: str) -> None:
    group.target.pop(member_id, None)


def _forget_current(group: ConsumerGroup, member_id: str) -> None:
    member = group.members.get(member_id)
    if member is not None:
        fresh = member._replace(
            state=STABLE, epoch=JOIN, previous_epoch=-1, assigned=NOTHING, revoking=NOTHING
        )
        group.put(fresh, replaying=True)


def _forget_target_epoch(group: ConsumerGroup, _part: str) -> None:
    group.target_epoch = 0


def _forget_regex(group: ConsumerGroup, regex: str) -> None:
    group.resolved.pop(regex, None)


def _forget_group_row(group: ConsumerGroup, _part: str) -> None:
    """Does nothing: the coordinator removes the group itself."""


_READ: dict[str, Callable[[ConsumerGroup, str, Struct], None]] = {
    GROUP: _read_group,
    TARGET_EPOCH: _read_target_epoch,
    MEMBER: _read_member,
    TARGET: _read_target,
    CURRENT: _read_current,
    REGEX: _read_regex,
}
_FORGET: dict[str, Callable[[ConsumerGroup, str], None]] = {
    MEMBER: _forget_member,
    TARGET: _forget_target,
    CURRENT: _forget_current,
    TARGET_EPOCH: _forget_target_epoch,
    REGEX: _forget_regex,
}
