"""Computes the addresses of a partition for clients of Kafka 0.7 again, and compares `addresses07`.

From the first entry at or above the log's start on, each entry has to have the address of the one
before it and the bytes of the messages of 0.7 in between (legacy07/addresses.py). Below the end of
imported segments (legacy07/original_segments.py) their messages are counted instead, and their CRCs
are compared. Batches that are damaged end the check: they are reported as such.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from barnabas.cext.record.messages07 import MissingRecords, messages_size
from barnabas.cext.record.records import CorruptRecords
from barnabas.legacy07.original_segments import OriginalSegments
from barnabas.storage.address_index import AddressIndex, DamagedIndex
from barnabas.takeover.stored_batches import INFLATED_BYTES_MAX, DamagedSegment, batches_of
from barnabas.wire import compression
from barnabas.wire.batches import Batch


class _Visible:
    """Which batches consumers see. `aborted`: producer id and first offset of transactions."""

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._to_come = sorted(aborted, key=lambda row: row[1], reverse=True)
        self._active: set[int] = set()

    def has(self, batch: Batch) -> bool:
        while self._to_come and self._to_come[-1][1] <= batch.last_offset:
            self._active.add(self._to_come.pop()[0])
        if batch.control:
            self._active.discard(batch.producer_id)
            return False
        return not (batch.transactional and batch.producer_id in self._active)


def address_problems(
    index: AddressIndex,
    directory: Path,
    segments: Iterable[Path],
    log_start: int,
    aborted: Iterable[tuple[int, int]],
) -> Iterator[str]:
    """Yields what is wrong with entries, in plain words. `segments`: the .log files, the oldest
    first. Raises OSError, FailedDirectory."""
    rows = zip(index.offsets, index.addresses, strict=True)
    entries = [row for row in rows if row[0] >= log_start]
    originals = OriginalSegments(directory, INFLATED_BYTES_MAX)
    try:
        yield from _in_originals(entries, originals, log_start)
    except DamagedIndex as error:
        yield str(error)
    entries = [row for row in entries if row[1] >= originals.end]
    if entries:
        try:
            yield from _in_log(entries, index.magic, segments, _Visible(aborted))
        except (DamagedSegment, CorruptRecords, MissingRecords):
            return


def _in_originals(
    entries: list[tuple[int, int]], originals: OriginalSegments, log_start: int
) -> Iterator[str]:
    for (first, start), (last, end) in zip(entries, entries[1:], strict=False):
        if not originals.has(start) or end > originals.end:
            continue
        count, expected = originals.count(start, end), last - first
        # A start of the log can be inside a wrapper.
        if count < expected or (count > expected and first != log_start):
            yield (
                f"gives offset {last} the address {end}, but the segments of Kafka 0.7 have"
                f" {count} records from address {start} on, and not {expected}"
            )


def _in_log(
    entries: list[tuple[int, int]], magic: int, segments: Iterable[Path], visible: _Visible
) -> Iterator[str]:
    (at, address), *rest = entries
    for path in segments:
        for batch in batches_of(path):
            is_visible = visible.has(batch)
            if batch.last_offset < at:
                continue
            while rest and rest[0][0] <= batch.last_offset:
                offset, known = rest.pop(0)
                if is_visible and offset > at:
                    address += _size(batch, at, magic) - _size(batch, offset, magic)
                if address != known:
                    yield f"gives offset {offset} the address {known}, and its log has {address}"
                at, address = offset, known
            if is_visible:
                address += _size(batch, at, magic)
            at = batch.last_offset + 1
    for offset, known in rest[:1]:
        if offset == at and address != known:
            yield f"gives offset {offset} the address {known}, and its log has {address}"


def _size(batch: Batch, first_offset: int, magic: int) -> int:
    content = batch.body() if batch.codec != compression.NONE else None
    data = batch.data[batch.start : batch.start + batch.size_bytes]
    return messages_size(data, content, first_offset=first_offset, magic=magic)
