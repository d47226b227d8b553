"""Checks the files of one segment against its batches, for check_partition.py.

A segment is read once, by cext/log/batch_walk.pyx. Of each batch the entries of the three indexes
that name it are compared with it, under the conditions by which the broker uses an entry
(cext/log/recover.pyx, cext/log/txn_index.pyx). Nothing is changed.
"""

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from barnabas.cext.log.batch_walk import ABORT, NO_MARKER, BatchWalk, WalkedBatch
from barnabas.cext.log.index import OffsetIndex, TimeIndex
from barnabas.cext.record.records import CorruptRecords
from barnabas.cli import log_files
from barnabas.wire.batches import decode_batches

BATCHES_A_READ = 1000
TRANSACTIONAL, CONTROL = 0x10, 0x20  # bits of the attributes of a batch
SPAN_MAX = 2**31  # offsets of a segment
PROBLEMS_MAX = 10  # of one index


class Problem(NamedTuple):
    """`suffix`: of the file with the problem. `is_last`: it concerns the last entry of an index,
    which an opening compares with its batch."""

    suffix: str
    position: int | None
    what: str
    is_last: bool = False


class Segment(NamedTuple):
    """The files of a segment. `log`: its .log, or the finished output of a compaction."""

    directory: Path
    base_offset: int
    log: Path

    def file(self, suffix: str) -> Path:
        name = f"{self.base_offset:020d}{suffix}"
        ending = ".swap" if self.log.name.endswith(".swap") else ""
        return self.log if suffix == ".log" else self.directory / (name + ending)


class IndexCheck:
    """The entries of the indexes of a segment, each compared when its batch comes by."""

    def __init__(self, segment: Segment, size_bytes: int) -> None:
        self.problems: list[Problem] = []
        self._base = segment.base_offset
        self._largest_ms = -1
        self._missing = size_bytes > 0
        self._places = deque(self._read_places(segment, size_bytes))
        self._times = deque(self._read_times(segment))
        self._aborts = deque(self._read_aborts(segment))
        self._firsts = deque(
            sorted((row["firstOffset"], row) for row in self._aborts if self._is_inside(row))
        )
        self.last_place = self._places[-1][1] if self._places else 0

    def _is_inside(self, row: log_files.Row) -> bool:
        return bool(row["firstOffset"] >= self._base)

    def _add(self, suffix: str, position: int | None, what: str, is_last: bool = False) -> None:
        self.problems.append(Problem(suffix, position, what, is_last))

    def _mapped(self, segment: Segment, suffix: str, entry_bytes: int) -> memoryview:
        try:
            data = log_files.mapped(segment.file(suffix))
        except FileNotFoundError:
            if self._missing:
                self._add(suffix, None, "the file is missing", True)
            return memoryview(b"")
        if len(data) % entry_bytes:
            what = f"{len(data)} bytes are not a multiple of {entry_bytes}"
            self._add(suffix, len(data) // entry_bytes * entry_bytes, what, True)
        return data

    def _read_places(self, segment: Segment, size_bytes: int) -> list[tuple[int, int]]:
        size = log_files.OFFSET_ENTRY.size
        index = OffsetIndex(self._mapped(segment, ".index", size))
        found = index.entries()
        sound = index.check(
            base_offset=self._base, offset_end=self._base + SPAN_MAX, log_size_bytes=size_bytes
        )
        if sound < len(found):
            self._add(
                ".index",
                sound * size,
                f"entry {sound} of {len(found)} does not ascend, or points behind the .log",
                True,
            )
        return found[:sound]

    def _read_times(self, segment: Segment) -> list[tuple[int, int]]:
        size = log_files.TIME_ENTRY.size
        index = TimeIndex(self._mapped(segment, ".timeindex", size))
        found = index.entries()
        sound = index.check(base_offset=self._base, offset_end=self._base + SPAN_MAX)
        if sound < len(found):
            what = f"entry {sound} of {len(found)} does not ascend"
            self._add(".timeindex", sound * size, what, True)
        return found[:sound]

    def _read_aborts(self, segment: Segment) -> list[log_files.Row]:
        path = segment.file(".txnindex")
        if not path.exists():
            return []
        found: list[log_files.Row] = []
        size = log_files.ABORTED_ENTRY.size
        for number, row in enumerate(log_files.aborted_transactions(log_files.mapped(path))):
            if "problem" in row:
                self._add(".txnindex", number * size, str(row["problem"]))
            elif found and row["lastOffset"] <= found[-1]["lastOffset"]:
                self._add(".txnindex", number * size, f"entry {number} does not ascend")
            else:
                found.append(row | {"position": number * size})
        return found

    def note(self, batch: WalkedBatch) -> None:
        """Compares the entries that name this batch with it. Batches come in the order of the
        log."""
        self._largest_ms = max(self._largest_ms, batch.max_timestamp)
        while self._places and self._places[0][1] <= batch.position:
            offset, position = self._places.popleft()
            if position != batch.position or batch.last_offset != self._base + offset:
                self._bad_entry(".index", f"offset {self._base + offset} at byte {position}")
        while self._times and self._base + self._times[0][1] <= batch.last_offset:
            moment, offset = self._times.popleft()
            if moment != batch.max_timestamp or moment != self._largest_ms:
                self._bad_entry(".timeindex", f"time {moment} of offset {self._base + offset}")
        while self._firsts and self._firsts[0][0] <= batch.last_offset:
            offset, row = self._firsts.popleft()
            if batch.base_offset <= offset:
                self._compare(row, batch, is_marker=False)
        while self._aborts and self._aborts[0]["lastOffset"] <= batch.last_offset:
            row = self._aborts.popleft()
            if batch.base_offset <= row["lastOffset"]:
                self._compare(row, batch, is_marker=True)

    def _bad_entry(self, suffix: str, entry: str) -> None:
        is_last = not (self._places if suffix == ".index" else self._times)
        known = sum(row.suffix == suffix for row in self.problems)
        if known < PROBLEMS_MAX:
            self._add(suffix, None, f"the entry of {entry} does not fit the .log", is_last)

    def _compare(self, row: log_files.Row, batch: WalkedBatch, *, is_marker: bool) -> None:
        wanted = TRANSACTIONAL | (CONTROL if is_marker else 0)
        kind = batch.attributes & (TRANSACTIONAL | CONTROL)
        if kind != wanted or batch.producer_id != row["producerId"] or batch.magic != 2:
            what = "no marker of" if is_marker else "no transaction of"
            self._add(
                ".txnindex",
                row["position"],
                f"at offset {row['lastOffset' if is_marker else 'firstOffset']} the .log has {what}"
                f" producer {row['producerId']}",
            )

    def end(self) -> None:
        """Reports entries behind the last batch."""
        for offset, position in list(self._places)[:PROBLEMS_MAX]:
            self._bad_entry(".index", f"offset {self._base + offset} at byte {position}")
        for moment, offset in list(self._times)[:PROBLEMS_MAX]:
            self._bad_entry(".timeindex", f"time {moment} of offset {self._base + offset}")
        for row in list(self._aborts)[:PROBLEMS_MAX]:
            what = f"the log has no offset {row['lastOffset']}"
            self._add(".txnindex", row["position"], what)


def aborted_in(segment: Segment) -> set[tuple[int, int]]:
    """Returns (producer id, offset of the marker) of the entries of a transaction index."""
    path = segment.file(".txnindex")
    if not path.exists():
        return set()
    rows = log_files.aborted_transactions(log_files.mapped(path))
    return {(row["producerId"], row["lastOffset"]) for row in rows if "problem" not in row}


def records_problem(walk: BatchWalk, batch: WalkedBatch) -> str | None:
    """Decodes the records of a batch; returns what is wrong with them."""
    data = walk.sound_bytes_at(batch.position, batch.size_bytes)
    try:
        for found in decode_batches(memoryview(data), size_max=log_files.INFLATED_BYTES_MAX):
            for _record in found.records:
                pass
    except CorruptRecords as error:
        return error.reason
    return None


class OpenTransactions:
    """Which transactions are open, by the batches of a log so far."""

    def __init__(self) -> None:
        self.first_offsets: dict[int, int] = {}

    def note(self, batch: WalkedBatch) -> int | None:
        """Returns the first offset of the transaction that this batch aborts; None for any other
        batch, and where the transaction began before the log."""
        if batch.marker != NO_MARKER:
            first = self.first_offsets.pop(batch.producer_id, None)
            return first if batch.marker == ABORT else None
        is_data = batch.attributes & (TRANSACTIONAL | CONTROL) == TRANSACTIONAL
        if is_data and batch.magic == 2 and batch.record_count > 0:
            self.first_offsets.setdefault(batch.producer_id, batch.base_offset)
        return None


def batches_of(walk: BatchWalk) -> Iterator[WalkedBatch]:
    """Yields the batches up to the next damage or the end."""
    while rows := walk.next_batches(BATCHES_A_READ):
        yield from rows
