"""What the internal topics of a source hold: groups, their offsets, and open transactions.

The newest record of a key counts, as for the coordinators that load these topics. Records that this
build does not know are left out, as there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from barnabas.cext.codec.wire import MalformedMessage
from barnabas.cext.record.records import CorruptRecords
from barnabas.takeover.import_plan import PlannedPartition
from barnabas.takeover.stored_batches import DamagedSegment, batches_of
from barnabas.wire.internal import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    UnknownRecord,
    read_key,
)

# TransactionStatus: begun, or decided and not yet marked in every partition
OPEN = {1: "ongoing", 2: "committing", 3: "aborting"}

GROUPS = (
    "GroupMetadata",
    "ConsumerGroupMetadata",
    "ShareGroupMetadata",
    "StreamsGroupMetadata",
)


class InternalFacts(NamedTuple):
    """`open_transactions`: by transactional id, what they are at."""

    groups: int
    offsets: int
    open_transactions: dict[str, str]


def internal_facts(partitions: Sequence[PlannedPartition]) -> InternalFacts:
    """Reads the internal topics among the partitions. Raises FailedDirectory."""
    offsets: dict[tuple[str, str, int], bool] = {}
    groups: dict[str, bool] = {}
    states: dict[str, str | None] = {}
    for kind, key, value in _rows(partitions, CONSUMER_OFFSETS):
        if kind in ("OffsetCommit", "LegacyOffsetCommit"):  # the second is of Kafka 0.8
            offsets[key.group, key.topic, key.partition] = value is not None
        elif kind in GROUPS:
            groups[getattr(key, "groupId", None) or key.group] = value is not None
    for _kind, key, value in _rows(partitions, TRANSACTION_STATE):
        states[key.transactionalId] = None if value is None else OPEN.get(value.transactionStatus)
    kept = [name for name, is_there in offsets.items() if is_there]
    named = {name for name, is_there in groups.items() if is_there} | {name[0] for name in kept}
    still_open = {name: state for name, state in sorted(states.items()) if state is not None}
    return InternalFacts(len(named), len(kept), still_open)


def _rows(partitions: Sequence[PlannedPartition], topic: str) -> Iterator[tuple[str, Any, Any]]:
    """Yields the type, the key and the value of each record; None for a tombstone."""
    for row in partitions:
        if row.topic != topic:
            continue
        for file in row.files:
            if not file.is_segment:
                continue
            try:
                for batch in batches_of(file.path):
                    if batch.control:
                        continue
                    for record in batch.records:
                        try:
                            kind, key = read_key(topic, record.key or b"")
                            value = (
                                None if record.value is None else kind.read_value(record.value)[1]
                            )
                        except (UnknownRecord, MalformedMessage):
                            continue
                        yield kind.name, key, value
            except (DamagedSegment, CorruptRecords):
                continue  # the import itself names the damage
