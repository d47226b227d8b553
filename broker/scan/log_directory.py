"""A partition's directory as somebody sees it who does not own it: which files, and when.

The broker rolls, deletes and swaps segments meanwhile. A listing is taken when two in a row are the
same and no swap is under way: between the renames of a swap neither the old nor the new name may be
there. Who has a segment open keeps its bytes; who comes too late for a name lists again.

    .txnindex   34 bytes an aborted transaction: version int16, producer id int64, first offset
                int64, last offset int64, last stable offset int64; ascending by last offset
"""

import os
import struct
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from barnabas.cext.mapped_segment import MappedSegment
from barnabas.scan.failures import DamagedFiles, NoFilesHere
from barnabas.wire.uuids import uuid_bytes

NAME_DIGITS = 20
TRIES, PAUSE_S = 100, 0.02  # a swap is a few renames
ABORTED_ENTRY = struct.Struct(">hqqqq")
NO_TOPIC_ID = bytes(16)

AbortedTransaction = tuple[int, int, int]  # producer id, first offset, last offset


def properties(path: Path) -> dict[str, str]:
    """`name=value` lines; nothing for a file that is not there."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    return dict(line.split("=", 1) for line in lines if "=" in line and line[:1] != "#")


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """The directory of one partition."""

    path: Path
    topic: str
    partition: int

    def topic_id(self) -> bytes:
        """Zeros where the directory says none (Kafka before 2.8)."""
        file = self.path / "partition.metadata"
        try:
            rows = dict(line.split(": ", 1) for line in file.read_text().splitlines() if line)
            return uuid_bytes(rows["topic_id"])
        except FileNotFoundError:
            return NO_TOPIC_ID
        except (ValueError, KeyError) as error:
            raise DamagedFiles(f"{file}: {error}") from error

    def segments(self) -> list[int]:
        """The base offsets of the segments, ascending."""
        before: list[str] = []
        for _ in range(TRIES):
            try:
                names = sorted(os.listdir(self.path))
            except FileNotFoundError:
                raise NoFilesHere(f"{self.path} is not there") from None
            if names == before and not any(name.endswith(".swap") for name in names):
                return [
                    int(name[:NAME_DIGITS])
                    for name in names
                    if name[NAME_DIGITS:] == ".log" and name[:NAME_DIGITS].isdecimal()
                ]
            if before:
                time.sleep(PAUSE_S)
            before = names
        raise DamagedFiles(f"{self.path}: segments are being swapped and it does not end")

    def _name(self, base_offset: int, suffix: str) -> Path:
        return self.path / f"{base_offset:0{NAME_DIGITS}d}{suffix}"

    def open_for(self, offset: int, after: MappedSegment | None = None) -> MappedSegment | None:
        """The segment that holds the offset or the next one behind it; None when `after`, which
        was read up to there, is the last. Raises NoFilesHere, OSError."""
        for _ in range(TRIES):
            bases = self.segments()
            if not bases:
                raise NoFilesHere(f"{self.path} holds no segment")
            base = max((base for base in bases if base <= offset), default=bases[0])
            if after is not None and base <= after.base_offset:
                later = [base for base in bases if base > after.base_offset]
                replaced = base == after.base_offset and not self._is_same(after)
                if not replaced and not later:
                    return None
                # A merged segment in the place of several may hold more than the one read.
                base = base if replaced else later[0]
            try:
                return MappedSegment(os.fspath(self._name(base, ".log")), base)
            except FileNotFoundError:  # deleted or swapped since the listing
                continue
        raise NoFilesHere(f"{self.path}: segments go faster than they can be opened")

    def byte_table(self) -> Callable[[int], int]:
        """For the log as it is now: how many of its bytes lie before an offset, as finely as the
        offset indexes know. Segments that go later are looked up no more."""
        bases = self.segments()
        sizes: list[int] = []
        for base in bases:
            try:
                sizes.append(os.stat(self._name(base, ".log")).st_size)
            except FileNotFoundError:
                sizes.append(0)
        before = [0, *accumulate(sizes)]

        def bytes_before(offset: int) -> int:
            at = bisect_right(bases, offset) - 1
            if at < 0:
                return 0
            try:
                with closing(
                    MappedSegment(os.fspath(self._name(bases[at], ".log")), bases[at])
                ) as segment:
                    return before[at] + segment.position_of(offset)
            except OSError:
                return before[at]

        return bytes_before

    def _is_same(self, segment: MappedSegment) -> bool:
        try:
            return os.stat(segment.path).st_ino == segment.inode
        except FileNotFoundError:
            return False

    def aborted(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions that reach into offsets [start, end)."""
        found: list[AbortedTransaction] = []
        bases = self.segments()
        first = max((base for base in bases if base <= start), default=0)
        for base in bases:
            if base < first:
                continue  # their markers lie below `start`
            for producer_id, begin, last, stable in self._aborted_of(base):
                if last >= start and begin < end:
                    found.append((producer_id, begin, last))
                if stable >= end:  # all before `end` was decided by then
                    return found
        return found

    def _aborted_of(self, base_offset: int) -> Iterator[tuple[int, int, int, int]]:
        path = self._name(base_offset, ".txnindex")
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return
        # An entry that is being written is of a transaction that was not decided when the last
        # stable offset was asked for.
        whole = len(data) // ABORTED_ENTRY.size * ABORTED_ENTRY.size
        for version, *entry in ABORTED_ENTRY.iter_unpack(data[:whole]):
            if version != 0:
                raise DamagedFiles(f"{path}: version {version} of an entry, not 0")
            producer_id, begin, last, stable = entry
            yield producer_id, begin, last, stable
