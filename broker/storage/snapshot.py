"""Makes a snapshot: a copy of all logs of a running broker as they are at one instant.

    LOGDIR/.snapshots/NAME/              of each log directory
        TOPIC-PARTITION/                 sealed segments, their indexes, producer snapshots and
                                         partition.metadata are links to the same files; the rest
                                         are copies
        the checkpoints, meta.properties
        metadata/metadata.db             in the first log directory
        snapshot.json                    written last: a directory without it is not complete

    1. Every log rolls: the segments that hold nearly all bytes are sealed, and never change again
       (cext/log/linked_file.pyx).
    2. The instant: no topic changes; the state of all logs is read under all their locks
       (cext/log/instant.pyx), and the metadata store is copied. Appends wait for the first only.
    3. The sealed files are linked; what has been appended between 1 and 2 is copied.
    4. One call brings everything to disk.

The time depends on the number of files. Compaction, deletion of topics and moves between log
directories wait until the files are linked, so that each link is what it was at the instant;
records that retention deletes meanwhile may be missing at the start of a log.

A start recovers a snapshot like the directory of a broker that was killed at the instant; the
recovery points in it are what was flushed then, with log.durability=fsync nearly everything.
Files of a snapshot that was interrupted are removed before the next one.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import NamedTuple

from barnabas.cext.log import log_files
from barnabas.cext.log.instant import LogAtInstant, logs_at_instant
from barnabas.cext.memory.sys import sync_filesystem
from barnabas.storage import checkpoints as files
from barnabas.storage.address_index import AddressIndex, DamagedIndex
from barnabas.storage.checkpoints import DamagedFile, TopicPartition
from barnabas.storage.log_dirs import META
from barnabas.storage.log_manager import LogManager, PartitionLog
from barnabas.storage.partition_dirs import ADDRESSES, ORIGINAL_SEGMENT, plain_name
from barnabas.storage.replace_file import replace_file

SNAPSHOTS = ".snapshots"  # in a log directory
MANIFEST = "snapshot.json"
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class NoSnapshot(Exception):
    """Why no snapshot can be made: one plain line."""


class Made(NamedTuple):
    """A complete snapshot. `directories`: (log directory, its part of the snapshot)."""

    directories: list[tuple[str, str]]
    partitions: int
    linked_files: int
    copied_bytes: int
    pause_us: int  # how long appends waited at most


Frozen = Callable[[], AbstractContextManager[Callable[[Path], None]]]


class Snapshots:
    """Makes the snapshots of one broker, one at a time."""

    def __init__(
        self,
        logs: LogManager,
        frozen: Frozen,
        metadata_file: str,
        high_watermark: Callable[[str, int], int],
        wall_ms: Callable[[], int],
    ) -> None:
        """`frozen` keeps the metadata as they are, and yields a function that copies the store to a
        file; `metadata_file`: its path in the first log directory."""
        self._logs, self._frozen, self._metadata_file = logs, frozen, metadata_file
        self._high_watermark, self._wall_ms = high_watermark, wall_ms

    def make(self) -> Made:
        """Raises NoSnapshot, LogError, OSError, and what `frozen` raises."""
        if self._logs.failed_directories:
            raise NoSnapshot("a log directory of the broker has failed: repair it first")
        self.remove_unfinished()
        name = os.urandom(8).hex()
        targets = {row.path: row.path / SNAPSHOTS / name for row in self._logs.directories()}
        for target in targets.values():
            target.parent.mkdir(mode=0o700, exist_ok=True)
            target.mkdir(mode=0o700)
        for row in self._logs.logs():
            row.handle.roll()
        with self._logs.moving, self._logs.linking:
            with self._frozen() as copy_metadata:
                rows = self._logs.logs()
                flushed = [row.handle.flushed_offset for row in rows]
                found, pause_ns = logs_at_instant(row.handle for row in rows)
                database = next(iter(targets.values())) / self._metadata_file
                database.parent.mkdir(mode=0o700)
                copy_metadata(database)
            parts = [
                _Part(row, at, offset, targets)
                for row, at, offset in zip(rows, found, flushed, strict=True)
            ]
            for part in parts:
                part.link()
            self._write_checkpoints(parts, targets)
        for target in targets.values():
            sync_filesystem(target)
        made = Made(
            [(str(source), str(target)) for source, target in targets.items()],
            len(parts),
            sum(part.linked_files for part in parts),
            sum(part.copied_bytes for part in parts),
            pause_ns // 1000,
        )
        content = made._asdict() | {"taken_at_ms": self._wall_ms()}
        del content["directories"]
        for target in targets.values():
            replace_file(target / MANIFEST, json.dumps(content).encode())
        return made

    def remove_unfinished(self) -> None:
        """Removes what is left of snapshots that were interrupted, or that their callers did not
        take. A caller that still reads one has locked its directory (flock). Raises OSError."""
        import shutil  # with its compressors it costs a start some milliseconds

        for row in self._logs.directories():
            with suppress(FileNotFoundError):
                for path in list((row.path / SNAPSHOTS).iterdir()):
                    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                    try:
                        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        shutil.rmtree(path)
                    except BlockingIOError:
                        continue
                    finally:
                        os.close(fd)

    def _write_checkpoints(self, parts: Sequence[_Part], targets: dict[Path, Path]) -> None:
        for source, target in targets.items():
            here = [part for part in parts if part.row.directory.parent == source]
            ends = {part.name: part.at.end_offset for part in here}
            marks = {
                part.name: min(self._high_watermark(*part.name), part.at.end_offset)
                for part in here
            }
            starts = {part.name: part.at.start_offset for part in here if part.begins_late}
            try:
                cleaned = files.read_offsets(source / files.CLEANER)
            except DamagedFile:
                cleaned = {}  # a start ignores it too
            cleaned = {
                name: offset for name, offset in cleaned.items() if offset <= ends.get(name, -1)
            }
            for name, offsets in (
                (files.RECOVERY_POINT, {part.name: part.recovery_point for part in here}),
                (files.HIGH_WATERMARK, marks),
                (files.LOG_START, starts),
                (files.CLEANER, cleaned),
            ):
                _write(str(target / name), files.offsets_text(offsets))
            _write(str(target / META), (source / META).read_bytes())


class _Part:
    """One log of a snapshot. Paths are strings: there are thousands of them."""

    def __init__(
        self, row: PartitionLog, at: LogAtInstant, flushed: int, targets: dict[Path, Path]
    ) -> None:
        self.row, self.at = row, at
        self.name: TopicPartition = (row.topic, row.partition)
        self.recovery_point = min(flushed, at.end_offset)
        self._source = str(row.directory)
        self._target = str(targets[row.directory.parent] / plain_name(*self.name))
        self.linked_files = self.copied_bytes = 0
        self.begins_late = False  # below its start offset there are records

    def link(self) -> None:
        """Raises OSError."""
        os.mkdir(self._target)
        first = self.at.active_base
        for base in reversed(self.at.bases):
            if base >= self.at.active_base:
                continue
            for suffix in SUFFIXES:
                if self._link(f"{base:020d}{suffix}") and suffix == ".log":
                    first = base
        self.begins_late = self.at.start_offset > first
        stem = f"{self.at.active_base:020d}"
        self._copy(f"{stem}.log", self.at.active_bytes)
        if self.at.active_bytes:
            for suffix in (".index", ".timeindex"):  # recovery fills them
                self._write(stem + suffix, b"")
        self._link(files.PARTITION_METADATA)
        for at in log_files.snapshots(self._source):
            if at <= self.at.end_offset:
                self._link(f"{at:020d}.snapshot")
        epochs = [row for row in self.at.leader_epochs if row[1] <= self.at.end_offset]
        self._write(files.LEADER_EPOCHS, files.leader_epochs_text(epochs))
        with suppress(FileNotFoundError, DamagedIndex):
            path = self.row.directory / ADDRESSES
            index, _whole = AddressIndex.parse(path, path.read_bytes())
            if index.offsets[0] <= self.at.end_offset:
                self._write(ADDRESSES, index.bytes_up_to(self.at.end_offset))
                for original in sorted(self.row.directory.glob("*" + ORIGINAL_SEGMENT)):
                    self._link(original.name)

    def _link(self, name: str) -> bool:
        """Links a file under its name; returns False when it has been deleted, or there is none."""
        for found in (name, name + ".deleted"):
            with suppress(FileNotFoundError):
                os.link(f"{self._source}/{found}", f"{self._target}/{name}")
                self.linked_files += 1
                return True
        return False

    def _copy(self, name: str, size_bytes: int) -> None:
        """Copies the first bytes of a .log, which retention may have renamed since the instant."""
        path = f"{self._source}/{name}"
        try:
            source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            source = os.open(path + ".deleted", os.O_RDONLY | os.O_CLOEXEC)
        try:
            target = os.open(f"{self._target}/{name}", NEW, 0o644)
            try:
                done = 0
                while done < size_bytes:
                    count = os.sendfile(target, source, done, size_bytes - done)
                    if count == 0:
                        raise OSError(f"{path} became shorter during the snapshot")
                    done += count
            finally:
                os.close(target)
        finally:
            os.close(source)
        self.copied_bytes += size_bytes

    def _write(self, name: str, content: bytes) -> None:
        _write(f"{self._target}/{name}", content)
        self.copied_bytes += len(content)


def _write(path: str, content: bytes) -> None:
    """Writes a new file, which the snapshot brings to disk with all others."""
    fd = os.open(path, NEW, 0o644)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
    finally:
        os.close(fd)
