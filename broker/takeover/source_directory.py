"""A log directory of a stopped broker of Kafka. It is only read.

A directory that a running broker has locked is refused. Its lock file is locked when it is there
(Kafka leaves it behind after a crash), and never made: an import leaves the source as it is.
`unchanged` says at the end whether a broker has started on it in between.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.storage import checkpoints, partition_dirs
from barnabas.storage.checkpoints import DamagedFile, TopicPartition
from barnabas.storage.log_dirs import (
    CLEAN_SHUTDOWN,
    KRAFT_METADATA,
    LOCK,
    META,
    FailedDirectory,
    LogDir,
    UnusableDirectory,
)
from barnabas.storage.partition_dirs import ORIGINAL_SEGMENT
from barnabas.takeover.refusals import CannotImport

METADATA_TOPIC = KRAFT_METADATA.rpartition("-")[0]
_State = tuple[tuple[int, int] | None, bool, tuple[tuple[str, int, int], ...]]


@dataclass
class SourceDirectory:
    """A directory, its owner, and the partitions in it. `set_aside`: directories of deleted
    topics, of moves that were not complete, and of partitions that were moved off."""

    path: Path
    cluster_id: str
    broker_id: int
    is_clean: bool
    is_kraft: bool
    is_07: bool = False  # files of Kafka 0.7
    partitions: dict[TopicPartition, Path] = field(default_factory=dict)
    set_aside: list[Path] = field(default_factory=list)
    _lock_fd: int = -1
    _state: _State = (None, False, ())

    @property
    def has_metadata_log(self) -> bool:
        return (self.path / KRAFT_METADATA).is_dir()

    def offsets(self, name: str) -> dict[TopicPartition, int]:
        """Returns the offsets in a checkpoint file. Raises CannotImport, FailedDirectory."""
        try:
            return checkpoints.read_offsets(self.path / name)
        except DamagedFile as error:
            raise CannotImport([f"{error}. Restore the file."]) from error
        except OSError as error:
            raise FailedDirectory(f"cannot read {self.path / name}", error) from error

    def unchanged(self) -> bool:
        """Returns whether no broker has started here since `open_source`."""
        return _state(self.path, self.is_07) == self._state

    def close(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1


def open_source(path: Path, broker_id: int = -1) -> SourceDirectory:
    """Reads the owner and the partitions of a directory. `broker_id`: of the settings, for a
    directory of Kafka before 0.9, which does not have it; -1 when it is not set. Raises
    UnusableDirectory."""
    if not path.is_dir():
        raise UnusableDirectory(f"{path} is not a directory. Give a log directory of Kafka.")
    identity = LogDir(path).identity()
    is_07 = not identity and _is_of_07(path)
    if not identity and not is_07 and not (path / checkpoints.HIGH_WATERMARK).exists():
        raise UnusableDirectory(
            f"{path} has no {META}, so it is not a log directory of Kafka. Give the directories of"
            " its log.dirs, and metadata.log.dir where it is set."
        )
    if not identity and broker_id < 0:
        raise UnusableDirectory(
            f"{path} has no {META}, as those of Kafka 0.7 and 0.8. Give the id of its broker:"
            f" {path}=ID, or --set node.id=ID."
        )
    if not identity:
        identity = {"broker.id": str(broker_id)}
    broker = identity.get("node.id", identity.get("broker.id", ""))
    is_kraft = "node.id" in identity
    if not broker.isdecimal() or (is_kraft and not identity.get("cluster.id")):
        raise UnusableDirectory(f"{path / META} names no node and cluster. Restore the file.")
    lock_fd = _lock(path)
    state = _state(path, is_07)
    found = SourceDirectory(
        path,
        identity.get("cluster.id", ""),
        int(broker),
        state[0] is not None,
        is_kraft,
        is_07,
        _lock_fd=lock_fd,
    )
    found._state = state
    try:
        _find_partitions(found)
    except OSError as error:
        found.close()
        raise FailedDirectory(f"cannot read {path}", error) from error
    return found


def _lock(path: Path) -> int:
    try:
        fd = os.open(path / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return -1
    except OSError as error:
        raise FailedDirectory(f"cannot open {path / LOCK}", error) from error
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise UnusableDirectory(f"a broker is using {path}. Stop it first.") from error
    return fd


def _is_of_07(path: Path) -> bool:
    try:
        return any(path.glob(f"*-*/*{ORIGINAL_SEGMENT}"))
    except OSError as error:
        raise FailedDirectory(f"cannot read {path}", error) from error


def _state(path: Path, is_07: bool) -> _State:
    """Returns what changes when a broker starts; one of Kafka 0.7 has no lock file."""
    segments: tuple[tuple[str, int, int], ...] = ()
    if is_07:
        found = ((row, row.stat()) for row in sorted(path.glob(f"*/*{ORIGINAL_SEGMENT}")))
        segments = tuple((str(row), stat.st_size, stat.st_mtime_ns) for row, stat in found)
    try:
        mark = os.stat(path / CLEAN_SHUTDOWN)
    except FileNotFoundError:
        return None, (path / LOCK).exists(), segments
    return (mark.st_ino, mark.st_mtime_ns), (path / LOCK).exists(), segments


def _find_partitions(found: SourceDirectory) -> None:
    for path in sorted(found.path.iterdir()):
        if not path.is_dir() and not path.is_symlink():
            continue
        named = partition_dirs.parse(path.name)
        if named is None and found.is_07 and any(path.glob(f"*{ORIGINAL_SEGMENT}")):
            found.set_aside.append(path)
        if named is None or named.topic == METADATA_TOPIC:
            continue
        if named.mark is not None:
            found.set_aside.append(path)
        else:
            found.partitions[named.topic, named.partition] = path
