"""Records of the groups whose members send heartbeats: consumer, share and streams groups.

A record of __consumer_offsets belongs to a group, or to one part of it: a member, or a regular
expression. What differs between the kinds are the fields: consumer_records.py, share/share_group.py
and streams/streams_records.py write the entries, and have a table each of the functions that apply
a value, or a tombstone, to a group that is being loaded. All values are of version 0.
Next: group_records.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from barnabas.cext.codec.wire_struct import Struct
from barnabas.cext.record.records import Record
from barnabas.coordinator.groups.group_records import (
    Entry,
    fields_of,
    group_key,
    keys_of,
    value_at,
    values_of,
)
from barnabas.coordinator.groups.group_writes import WrittenGroup
from barnabas.coordinator.groups.member_position import without_position
from barnabas.wire.internal import CONSUMER_OFFSETS, type_name

VERSION = 0
GroupType = Literal["consumer", "share", "streams"]
GROUP_TYPES: Mapping[str, GroupType] = {  # by the beginning of the names of their record types
    "ConsumerGroup": "consumer",
    "ShareGroup": "share",
    "StreamsGroup": "streams",
}


# -- writing --------------------------------------------------------------------------------------


def entry(name: str, /, *key: str, **fields: Any) -> Entry:
    """Returns a record. `key`: the group id, and the part of the group if the key has one."""
    head, program = values_of(name, VERSION)
    return key_of(name, *key), head + program.encode(program.cls(**fields))


def key_of(name: str, *key: str) -> bytes:
    """Returns the key of a record."""
    head, program, cls = keys_of(name)
    return head + program.encode(cls(**dict(zip(cls.layout.names, key, strict=True))))


def tombstones(names: Iterable[str], *key: str) -> list[Entry]:
    """Returns the tombstones of records of these types that have the same key."""
    return [(key_of(name, *key), None) for name in names]


class TargetedGroup(Protocol):
    """A group with a target assignment."""

    group_id: str
    target: dict[str, Any]
    target_epoch: int
    assigned_ms: int


class WrittenTargetedGroup(TargetedGroup, WrittenGroup, Protocol):
    """A group whose members and target are written."""

    @property
    def members(self) -> Mapping[str, Any]: ...  # by member id


class Kind(NamedTuple):
    """How one kind of groups writes the records of its members and of its target assignment."""

    target_epoch: str  # the names of the types of records
    of_members: tuple[str, str, str]  # the current assignment, the target, the metadata
    member_entry: Callable[[str, Any], Entry]  # of group id and member
    target_entry: Callable[[str, str, Any], Entry]  # of group id, member id and target
    current_entry: Callable[[str, Any], Entry]  # of group id and member


def target_epoch_entry(kind: Kind, group: TargetedGroup) -> Entry:
    """Returns the record of the target assignment's epoch."""
    return entry(
        kind.target_epoch,
        group.group_id,
        assignmentEpoch=group.target_epoch,
        assignmentTimestamp=group.assigned_ms,
    )


def take_target(
    kind: Kind, group: TargetedGroup, target: dict[str, Any], epoch: int, now_ms: int
) -> list[Entry]:
    """Gives the group a new target of this epoch. Returns the records of the changed targets and
    of the epoch. `now_ms`: wall clock."""
    entries = [
        kind.target_entry(group.group_id, member_id, row)
        for member_id, row in target.items()
        if group.target.get(member_id) != row
    ]
    group.target, group.target_epoch, group.assigned_ms = target, epoch, now_ms
    return [*entries, target_epoch_entry(kind, group)]


def member_entries(
    kind: Kind, group: WrittenTargetedGroup, between: Iterable[Entry] = ()
) -> list[Entry]:
    """Returns all records of the group's members and of its target, which follow the group's own
    record. `between`: records that precede the targets."""
    group_id, members = group.group_id, group.members.values()
    entries: list[Entry] = []
    for member_id in group.writes.removed_members - group.members.keys():
        entries += tombstones(kind.of_members, group_id, member_id)
    entries += [kind.member_entry(group_id, member) for member in members]
    entries += between
    entries += [kind.target_entry(group_id, m, target) for m, target in group.target.items()]
    entries.append(target_epoch_entry(kind, group))
    entries += [kind.current_entry(group_id, member) for member in members]
    return entries


def beginning(group: WrittenGroup) -> list[Entry]:
    """Returns the tombstone that precedes a group that is new to the log. It ends a group of
    another kind of that name, whose own tombstones may have failed."""
    return [(group_key(group.group_id), None)] if group.writes.fresh else []


CLIENT = {  # the fields of a member that its metadata record has in consumer and streams groups
    "instance_id": "instanceId",
    "rack_id": "rackId",
    "client_id": "clientId",
    "client_host": "clientHost",
    "rebalance_timeout_ms": "rebalanceTimeoutMs",
}


def client_fields(member: object) -> dict[str, Any]:
    """Returns the fields of a record that say who the member is."""
    return {field: getattr(member, name) for name, field in CLIENT.items()}


def client_of(value: Struct) -> dict[str, Any]:
    """Returns the fields of a member from its record."""
    return {name: getattr(value, field) for name, field in CLIENT.items()}


def partition_rows(
    name: str, field: str, assignment: Mapping[Any, Collection[int]]
) -> list[Struct]:
    """Returns the rows of a field: an id, which is the first field of a row, with its partitions.
    `assignment`: partitions by topic id or subtopology."""
    row = value_at(name).struct(field)
    of, partitions = row.layout.names[:2]
    return [row(**{of: key, partitions: sorted(rows)}) for key, rows in assignment.items()]


def owned_rows(name: str, field: str, owned: Mapping[Any, Mapping[int, int]]) -> list[Struct]:
    """Returns the rows of a field as `partition_rows` does, with the epoch at which each partition
    was assigned."""
    row = value_at(name).struct(field)
    of, partitions, epochs = row.layout.names
    return [
        row(**{of: key, partitions: list(rows), epochs: list(rows.values())})
        for key, rows in owned.items()
    ]


# -- reading --------------------------------------------------------------------------------------


class MemberRecord(NamedTuple):
    """A record of a group: its key, and the fields of its value; None is a tombstone."""

    group_type: GroupType
    name: str
    group_id: str
    part: str  # the member id or regular expression; "": the record belongs to the group
    value: Struct | None

    @property
    def ends_group(self) -> bool:
        """Returns whether it is the tombstone of the whole group."""
        return self.value is None and self.name.endswith("GroupMetadata")


@cache
def _type(number: int) -> tuple[GroupType, str] | None:
    """Returns the type of the group, and the name of the type of its records."""
    name = type_name(CONSUMER_OFFSETS, number) or ""
    found = [kind for beginning, kind in GROUP_TYPES.items() if name.startswith(beginning)]
    return (found[0], name) if found else None


def read_member_record(record: Record, *group_types: GroupType) -> MemberRecord | None:
    """Decodes a record of a group of these types. Returns None for one of other types. Raises
    ValueError."""
    data = record.key or b""
    found = _type(data[0] << 8 | data[1]) if len(data) >= 2 else None
    if found is None or found[0] not in group_types:
        return None
    group_type, name = found
    key = keys_of(name)[1].decode(data, 2)[0]
    group_id, *part = (getattr(key, field) for field in key.layout.names)
    value = None if record.value is None else fields_of(name, record.value)
    return MemberRecord(group_type, name, group_id, part[0] if part else "", value)


G = TypeVar("G")


class Replay(NamedTuple, Generic[G]):
    """How the records of one kind of groups are applied, by the names of their types. The functions
    take the group, the part of it that the record belongs to, and the value. A record of a type
    without a function changes nothing."""

    values: Mapping[str, Callable[[G, str, Struct], object]]
    tombstones: Mapping[str, Callable[[G, str], object]]

    def __call__(self, group: G, record: MemberRecord) -> None:
        """Applies a record to a group that is being loaded."""
        if record.value is not None:
            apply = self.values.get(record.name)
            if apply is not None:
                apply(group, record.part, record.value)
            return
        forget = self.tombstones.get(record.name)
        if forget is not None:
            forget(group, record.part)


class LoadedGroup(TargetedGroup, Protocol):
    """A group of members with positions."""

    @property
    def members(self) -> Mapping[str, Any]: ...
    def put(self, member: Any, is_replay: bool = ...) -> None: ...
    def remove(self, member_id: str) -> object: ...


def read_target_epoch(group: TargetedGroup, _part: str, value: Struct) -> None:
    group.target_epoch, group.assigned_ms = value.assignmentEpoch, value.assignmentTimestamp


def forget_member(group: LoadedGroup, member_id: str) -> None:
    """Applies the tombstone of a member's metadata. Its target has a tombstone of its own."""
    target = group.target.get(member_id)
    group.remove(member_id)
    if target is not None:
        group.target[member_id] = target


def forget_target(group: TargetedGroup, member_id: str) -> None:
    group.target.pop(member_id, None)


def forget_current(group: LoadedGroup, member_id: str) -> None:
    member = group.members.get(member_id)
    if member is not None:
        group.put(without_position(member, type(member)(member_id)), is_replay=True)


def epochs_of(row: Struct, member_epoch: int) -> Mapping[int, int]:
    """Returns the partitions of a row with their epochs. Older brokers wrote no epochs: then each
    partition has the member's epoch."""
    epochs = row.assignmentEpochs
    if epochs is None or len(epochs) != len(row.partitions):
        return dict.fromkeys(row.partitions, member_epoch)
    return dict(zip(row.partitions, epochs, strict=True))
