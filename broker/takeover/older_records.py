"""Writes records of internal topics as Kafka 2.8 reads them, for an export in ZooKeeper mode.

Kafka 2.8 cannot load a partition of __consumer_offsets with a type of record that it does not know,
nor one of __transaction_state with states in version 1, which transaction.version 1 and 2 write. So
types that came later (groups of KIP-848, share groups, streams groups) are left out, and later
versions of values become the last one that 2.8 has. Kafka 3.9 reads these too.

    TransactionLog 1 -> 0    loses the producer's previous and next id, its next epoch, and the
                             client's transaction.version: what a Kafka without that feature writes
    OffsetCommit 4 -> 3      loses the topic's id
    GroupMetadata 4 -> 3     loses nothing

Offsets, timestamps, leader epochs, producers and transactions of the batches stay, and so does a
batch without a record left, as after compaction. Batches move in the file: the exported partition
has no .index and no .timeindex of a segment that was changed, and Kafka makes them at its start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from barnabas.cext.codec.wire import MalformedMessage, UnwritableMessage
from barnabas.cext.record.records import CorruptRecords, Record
from barnabas.storage.log_dirs import FailedDirectory
from barnabas.takeover.stored_batches import DamagedSegment, batches_of, mapped
from barnabas.wire.batches import APPEND_TIME, Batch, encode_batch
from barnabas.wire.internal import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    RecordType,
    UnknownRecord,
    read_key,
)

# The largest version of a value that Kafka 2.8 reads, by type.
READABLE: Mapping[str, Mapping[str, int]] = {
    CONSUMER_OFFSETS: {"LegacyOffsetCommit": 3, "OffsetCommit": 3, "GroupMetadata": 3},
    TRANSACTION_STATE: {"TransactionLog": 0},
}
INT32_MAX = 2**31 - 1
LATER = {
    "TransactionLog": {
        "previousProducerId": -1,
        "nextProducerId": -1,
        "nextProducerEpoch": -1,
        "clientTransactionVersion": 0,
    },
}


def older(topic: str, path: Path) -> bytes | None:
    """Returns the content of a segment of an internal topic for Kafka 2.8; None when it is readable
    as it is. What begins with bytes that are no batch stays. Raises FailedDirectory."""
    parts: list[bytes] = []
    is_changed = False
    done = 0
    try:
        for batch in batches_of(path):
            whole = bytes(batch.data[batch.start : batch.start + batch.size_bytes])
            made = None if batch.control else _older_batch(topic, batch)
            is_changed |= made is not None
            parts.append(whole if made is None else made)
            done += len(whole)
    except (DamagedSegment, CorruptRecords):
        pass  # Kafka recovers it as it does its own
    if not is_changed:
        return None
    parts.append(bytes(mapped(path)[done:]))
    return b"".join(parts)


def _older_batch(topic: str, batch: Batch) -> bytes | None:
    records = list(batch.records)
    kept = list(_older_records(topic, records))
    if kept == records:
        return None
    is_append_time = batch.timestamp_type == APPEND_TIME
    if not 0 <= batch.last_offset - batch.base_offset <= INT32_MAX:
        raise CorruptRecords("the offsets of a wrapper are too far apart for a batch", batch.start)
    return encode_batch(
        kept,
        base_offset=batch.base_offset,
        codec=batch.codec if kept else 0,
        timestamp_type=batch.timestamp_type or 0,
        append_time=batch.max_timestamp if is_append_time else None,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.transactional,
        leader_epoch=batch.leader_epoch,
        keep_offsets=True,
        base_timestamp=batch.base_timestamp,
        delete_horizon=batch.delete_horizon,
        last_offset_delta=batch.last_offset - batch.base_offset,
        max_timestamp=None if is_append_time else batch.max_timestamp,
    )


def _older_records(topic: str, records: list[Record]) -> Iterator[Record]:
    """Yields the same records where nothing changes."""
    for record in records:
        try:
            kind, _key = read_key(topic, record.key or b"")
            version_max = READABLE[topic].get(kind.name)
            if version_max is None:
                continue
            if record.value is None:
                yield record
                continue
            version, value = kind.read_value(record.value)
            if version > version_max:
                record = Record(
                    kind.encode_value(_without_later(kind, value), version_max),
                    record.key,
                    timestamp=record.timestamp,
                    headers=record.headers,
                    offset=record.offset,
                )
        except (UnknownRecord, MalformedMessage, UnwritableMessage):
            continue
        yield record


def _without_later(kind: RecordType, value: Any) -> Any:
    for name, default in LATER.get(kind.name, {}).items():
        setattr(value, name, default)
    for part in (value, *getattr(value, "members", ())):
        part.unknown = ()  # tagged fields of a later Kafka
    return value


def write(content: bytes, target: Path) -> None:
    """Writes a new file. Raises FailedDirectory."""
    try:
        with open(target, "xb", buffering=0) as file:
            view = memoryview(content)
            while view:
                view = view[file.write(view) :]
    except OSError as error:
        raise FailedDirectory(f"cannot write {target}", error) from error
