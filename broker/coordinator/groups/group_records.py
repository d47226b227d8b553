"""Groups and committed offsets as records of __consumer_offsets.

| type of key (int16)  | key                     | value, and the version written here            |
|----------------------|-------------------------|------------------------------------------------|
| 0, 1 offset commit   | group, topic, partition | offset, leader epoch, metadata, times: 3, or 1 |
|                      |                         | for a commit that named its own expiry         |
| 2 classic group      | group                   | generation, protocol, leader, members: 3       |

A null value deletes the key. Kafka 2.7 can read these versions too, so a directory can go back to
it. Records that Kafka wrote are read in every version. Unknown types are skipped: a newer broker
wrote them. consumer_records.py has the records of consumer groups. Next: coordinator.py, which
replays them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from barnabas.cext.codec.wire import Program
from barnabas.cext.codec.wire_struct import Struct
from barnabas.cext.record.records import Record
from barnabas.coordinator.groups.classic_group import EMPTY, STABLE, ClassicGroup, Member
from barnabas.wire.internal import CONSUMER_OFFSETS, record_type
from barnabas.wire.messages import Message

OFFSET_COMMIT = 1
GROUP_METADATA = 2
OFFSET_VERSION = 3
OFFSET_VERSION_WITH_EXPIRY = 1
GROUP_VERSION = 3
NEVER = -1

_INT16 = struct.Struct(">h")
Entry = tuple[bytes, bytes | None]


class Committed(NamedTuple):
    """One committed offset. Times are wall-clock ms. With `expire_ms` NEVER the broker's setting
    applies."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = NEVER


@cache
def keys_of(name: str) -> tuple[bytes, Program, type[Struct]]:
    """Returns the first bytes of a key of this type, the encoder of the rest, and its class."""
    found = record_type(CONSUMER_OFFSETS, name)
    return _INT16.pack(found.type), found.key.program(0), found.key.cls


@cache
def values_of(name: str, version: int) -> tuple[bytes, Program]:
    """Returns the first bytes of a value in this version, and the encoder of the rest."""
    return _INT16.pack(version), record_type(CONSUMER_OFFSETS, name).value.program(version)


def value_at(name: str) -> Message:
    """Returns the message of a value."""
    return record_type(CONSUMER_OFFSETS, name).value


def offset_key(group: str, topic: str, partition: int) -> bytes:
    """Returns the key of an offset commit's record."""
    head, program, cls = keys_of("OffsetCommit")
    return head + program.encode(cls(group=group, topic=topic, partition=partition))


def offset_value(committed: Committed) -> bytes:
    """Returns the value of an offset commit's record."""
    version = OFFSET_VERSION if committed.expire_ms == NEVER else OFFSET_VERSION_WITH_EXPIRY
    head, program = values_of("OffsetCommit", version)
    return head + program.encode(
        program.cls(
            offset=committed.offset,
            leaderEpoch=committed.leader_epoch if version == OFFSET_VERSION else -1,
            metadata=committed.metadata,
            commitTimestamp=committed.commit_ms,
            expireTimestamp=committed.expire_ms,
        )
    )


def group_key(group_id: str) -> bytes:
    """Returns the key of a classic group's record."""
    head, program, cls = keys_of("GroupMetadata")
    return head + program.encode(cls(group=group_id))


def group_entry(group: ClassicGroup, assignments: Mapping[str, bytes]) -> Entry:
    """Returns the record of a group's present state with these assignments."""
    message = record_type(CONSUMER_OFFSETS, "GroupMetadata").value
    row = message.struct("members")
    members = [
        row(
            memberId=member.member_id,
            groupInstanceId=member.instance_id,
            clientId=member.client_id,
            clientHost=member.client_host,
            rebalanceTimeout=member.rebalance_timeout_ms,
            sessionTimeout=member.session_timeout_ms,
            subscription=member.metadata(group.protocol_name),
            assignment=assignments.get(member.member_id, b""),
        )
        for member in group.members.values()
    ]
    value = message.cls(
        protocolType=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader,
        currentStateTimestamp=-1 if group.empty_since_ms is None else group.empty_since_ms,
        members=members,
    )
    head, program = values_of("GroupMetadata", GROUP_VERSION)
    return group_key(group.group_id), head + program.encode(value)


class OffsetRecord(NamedTuple):
    """A record of an offset. `committed` is None for a tombstone."""

    group_id: str
    topic: str
    partition: int
    committed: Committed | None


class GroupRecord(NamedTuple):
    """A record of a classic group. `group` is None for a tombstone."""

    group_id: str
    group: ClassicGroup | None


def read_record(record: Record) -> OffsetRecord | GroupRecord | None:
    """Decodes a record. Returns None for a type that is not of classic groups. Raises
    ValueError."""
    key, value = record.key, record.value
    if key is None or len(key) < 2:
        raise ValueError("a record of __consumer_offsets has a key of 2 bytes or more")
    number = key[0] << 8 | key[1]
    if number <= OFFSET_COMMIT:
        found = keys_of("OffsetCommit")[1].decode(key, 2)[0]
        return OffsetRecord(found.group, found.topic, found.partition, _committed(value))
    if number == GROUP_METADATA:
        group_id = keys_of("GroupMetadata")[1].decode(key, 2)[0].group
        return GroupRecord(group_id, _group(group_id, value))
    return None


def fields_of(name: str, value: bytes) -> Struct:
    """Decodes a value. Raises MalformedMessage, or UnsupportedVersion for a newer version."""
    if len(value) < 2:
        raise ValueError(f"a value of {name} of {len(value)} bytes")
    return values_of(name, value[0] << 8 | value[1])[1].decode(value, 2)[0]


def _committed(value: bytes | None) -> Committed | None:
    if value is None:
        return None
    found = fields_of("OffsetCommit", value)
    return Committed(
        found.offset,
        found.leaderEpoch,
        found.metadata,
        found.commitTimestamp,
        found.expireTimestamp,
    )


def _group(group_id: str, value: bytes | None) -> ClassicGroup | None:
    if value is None:
        return None
    found = fields_of("GroupMetadata", value)
    group = ClassicGroup(group_id)
    group.generation = found.generation
    group.protocol_type = found.protocolType or None
    group.protocol_name = found.protocol
    for row in found.members:
        rebalance_ms = row.rebalanceTimeout if row.rebalanceTimeout >= 0 else row.sessionTimeout
        group.add(
            Member(
                row.memberId,
                row.groupInstanceId,
                row.clientId,
                row.clientHost,
                rebalance_ms,
                row.sessionTimeout,
                ((found.protocol or "", row.subscription),),
                row.assignment,
            )
        )
    group.leader = found.leader if found.members else None
    group.state = STABLE if found.members else EMPTY
    timestamp_ms = found.currentStateTimestamp
    group.empty_since_ms = None if timestamp_ms < 0 else timestamp_ms
    group.restore_subscriptions()
    return group
