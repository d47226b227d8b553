"""Subscriptions and assignments of the classic protocol, inside the bytes of Join- and SyncGroup.

Both begin with a version, and Kafka's schemas ConsumerProtocolSubscription and
ConsumerProtocolAssignment follow it. A version that is newer than the newest known one begins with
the fields of that one. Other bytes raise MalformedSubscription. While a group is classic the
coordinator passes the bytes on unchanged (subscription.py reads only the topics).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from barnabas.cext.codec.wire import MalformedMessage
from barnabas.cext.codec.wire_struct import Struct
from barnabas.wire.messages import by_name

SUBSCRIPTION, ASSIGNMENT = "ConsumerProtocolSubscription", "ConsumerProtocolAssignment"


class MalformedSubscription(ValueError):
    """The bytes are not a subscription, or not an assignment, of a consumer."""


class Subscription(NamedTuple):
    """The subscription of one member. `owned`: partitions by topic name."""

    topics: tuple[str, ...]
    owned: Mapping[str, frozenset[int]]
    rack_id: str | None
    version: int


def subscription_of(data: bytes) -> Subscription:
    """Decodes the metadata of a member. Raises MalformedSubscription."""
    version, fields = _fields(SUBSCRIPTION, data)
    owned: dict[str, frozenset[int]] = {}
    if version >= 1:
        for row in fields.ownedPartitions:
            owned[row.topic] = owned.get(row.topic, frozenset()) | frozenset(row.partitions)
    rack_id = fields.rackId if version >= 3 else None
    return Subscription(tuple(sorted(set(fields.topics))), owned, rack_id or None, version)


def assignment_of(data: bytes) -> dict[str, frozenset[int]]:
    """Decodes an assignment into partitions by topic. Empty bytes are an empty assignment. Raises
    MalformedSubscription."""
    if not data:
        return {}
    _, fields = _fields(ASSIGNMENT, data)
    return {row.topic: frozenset(row.partitions) for row in fields.assignedPartitions}


def assignment_bytes(assigned: Mapping[str, Collection[int]], version: int) -> bytes:
    """Encodes an assignment, partitions by topic name, in `version` or the newest known one."""
    message = by_name(ASSIGNMENT)
    version = min(version, message.version_max)
    row = message.struct("assignedPartitions")
    rows = [row(topic=t, partitions=sorted(assigned[t])) for t in sorted(assigned)]
    return version.to_bytes(2, "big") + message.encode(
        message.cls(assignedPartitions=rows), version
    )


def _fields(name: str, data: bytes) -> tuple[int, Struct]:
    message = by_name(name)
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or version < 0:
        raise MalformedSubscription(f"{len(data)} bytes are not a {name}")
    version = min(version, message.version_max)
    try:
        return version, message.program(version).decode(data, 2)[0]
    except MalformedMessage as error:
        raise MalformedSubscription(f"{name}: {error}") from error
