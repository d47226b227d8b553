"""Reads a partition's directory in a process that does not own it.

The broker rolls, deletes and swaps segments at the same time. A listing is valid when two in a row
are equal and no swap is in progress: between the renames of a swap both the old and the new name
may be absent. An open segment keeps its bytes; when a name has vanished, this module lists the
directory again. A swap may replace several segments by one, so the next segment may begin before
the offset that was read last.

    .txnindex   34 bytes for each aborted transaction: version int16, producer id int64, first
                offset int64, last offset int64, last stable offset int64; ascending by last offset
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
from typing import TypeVar

from barnabas.cext.log.mapped_segment import MappedSegment
from barnabas.scan.failures import DamagedFiles, NoFilesHere
from barnabas.wire.uuids import uuid_bytes

NAME_DIGITS = 20
TRIES, PAUSE_S = 100, 0.02  # a swap takes a few renames
ABORTED_ENTRY = struct.Struct(">hqqqq")
NO_TOPIC_ID = bytes(16)

Found = TypeVar("Found")
AbortedTransaction = tuple[int, int, int]  # producer id, first offset, last offset


def properties(path: Path) -> dict[str, str]:
    """Returns the `name=value` lines of a file without its comments; an empty dict when the file
    cannot be read."""
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
        """Returns the topic id, 16 bytes; zeros when the directory has none (Kafka before 2.8).
        Raises DamagedFiles."""
        file = self.path / "partition.metadata"
        try:
            rows = dict(line.split(": ", 1) for line in file.read_text().splitlines() if line)
            return uuid_bytes(rows["topic_id"])
        except FileNotFoundError:
            return NO_TOPIC_ID
        except (ValueError, KeyError) as error:
            raise DamagedFiles(f"{file}: {error}") from error

    def segments(self) -> list[int]:
        """Returns the base offsets of the segments, ascending. Raises NoFilesHere, DamagedFiles."""
        return sorted(self._logs())

    def of_one_state(self, use: Callable[[list[int]], Found]) -> Found:
        """Returns what `use` returns for the segments (`segments()`) and the files beside them.
        Calls it again when the broker deleted or swapped a segment during the call, because `use`
        could take files of new segments for those of old ones. An added segment does not matter.
        Raises the errors of `use`, NoFilesHere and DamagedFiles."""
        for _ in range(TRIES):
            before = self._logs()
            try:
                found = use(sorted(before))
            except FileNotFoundError:
                if before.items() <= self._logs().items():
                    raise
                continue
            if before.items() <= self._logs().items():
                return found
        raise NoFilesHere(
            f"{self.path}: gave up: segments are deleted faster than this can read them"
        )

    def _logs(self) -> dict[int, int]:
        """Returns the inode of each segment by its base offset."""
        before: dict[str, int] = {}
        for _ in range(TRIES):
            try:
                with os.scandir(self.path) as entries:
                    inodes = {entry.name: entry.inode() for entry in entries}
            except FileNotFoundError:
                raise NoFilesHere(f"{self.path} does not exist") from None
            if inodes == before and not any(name.endswith(".swap") for name in inodes):
                return {
                    int(name[:NAME_DIGITS]): inode
                    for name, inode in inodes.items()
                    if name[NAME_DIGITS:] == ".log" and name[:NAME_DIGITS].isdecimal()
                }
            if before:
                time.sleep(PAUSE_S)
            before = inodes
        raise DamagedFiles(f"{self.path}: gave up: the broker kept replacing segments")

    def _name(self, base_offset: int, suffix: str) -> Path:
        return self.path / f"{base_offset:0{NAME_DIGITS}d}{suffix}"

    def open_for(self, offset: int, after: MappedSegment | None = None) -> MappedSegment | None:
        """Opens the segment that contains `offset`, or the next one. Returns None when `after`, the
        segment that was read last, is the last one. The caller closes the segment. Raises
        NoFilesHere, DamagedFiles, OSError."""
        for _ in range(TRIES):
            bases = self.segments()
            if not bases:
                raise NoFilesHere(f"{self.path} holds no segment")
            base = max((base for base in bases if base <= offset), default=bases[0])
            if after is not None and base == after.base_offset and self._is_same(after):
                later = [base for base in bases if base > after.base_offset]
                if not later:
                    return None
                base = later[0]
            try:
                return MappedSegment(os.fspath(self._name(base, ".log")), base)
            except FileNotFoundError:  # deleted or swapped since the listing
                continue
        raise NoFilesHere(
            f"{self.path}: gave up: segments are deleted faster than this can open them"
        )

    def byte_table(self) -> Callable[[int], int]:
        """Returns a function from an offset to the number of bytes before it in the log as it is
        now, with the precision of the offset indexes."""
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
        """Returns (producer id, first offset, last offset) of the aborted transactions that overlap
        offsets [start, end), from the .txnindex files. Raises DamagedFiles, NoFilesHere."""
        return self.of_one_state(lambda bases: self._aborted_in(bases, start, end))

    def _aborted_in(self, bases: list[int], start: int, end: int) -> list[AbortedTransaction]:
        found: list[AbortedTransaction] = []
        first = max((base for base in bases if base <= start), default=0)
        for base in bases:
            if base < first:
                continue  # the markers in this segment lie below `start`
            for producer_id, begin, last, stable in self._aborted_of(base):
                if last >= start and begin < end:
                    found.append((producer_id, begin, last))
                if stable >= end:  # every transaction before `end` had ended by then
                    return found
        return found

    def _aborted_of(self, base_offset: int) -> Iterator[tuple[int, int, int, int]]:
        path = self._name(base_offset, ".txnindex")
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return
        # The broker may be writing the last entry. Its transaction had not ended when this scan
        # fetched the last stable offset.
        whole = len(data) // ABORTED_ENTRY.size * ABORTED_ENTRY.size
        for version, *entry in ABORTED_ENTRY.iter_unpack(data[:whole]):
            if version != 0:
                raise DamagedFiles(f"{path}: version {version} of an entry, not 0")
            producer_id, begin, last, stable = entry
            yield producer_id, begin, last, stable
