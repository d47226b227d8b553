"""`barnabas storage backup` and `restore`: log directories in a directory, or in S3, and back.

    parts/SHA256                 at most PART_BYTES of a file, named by their content
    backups/TIME-RANDOM.json     a backup: {"sha256": of the rest, "backup": {...}}; written last

A backup names for each file its size, the time of its last change, its inode and its parts. A part
that an earlier backup has is not stored again; a file with the size, time and inode that the last
backup noted is not even read. So a second backup reads and stores the segments that are new, and
the small files. A backup exists when its file in backups/ does: what was interrupted before is only
parts, which the next one uses. Parts are written once and never changed.

The source is a running broker, which makes a snapshot first (broker/cli/storage_snapshot.py), or
the directories of a stopped one, which are locked meanwhile. `restore` compares every byte with its
name, and gives the directory its name when all is there.

The stores are those of Spark's checkpoints (broker/spark/files.py).
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from barnabas.cext.memory.sys import sync_filesystem
from barnabas.cli.storage_snapshot import CHECKPOINTS, NotTaken, check_target, take
from barnabas.metadata.database import FILE_NAME
from barnabas.metadata.tree import MetadataError
from barnabas.spark.failures import CheckpointError
from barnabas.spark.files import LocalFiles, files_at
from barnabas.spark.store import Files
from barnabas.stages.opened import JOINED_DIRECTORY
from barnabas.storage import checkpoints, partition_dirs
from barnabas.storage.checkpoints import DamagedFile
from barnabas.storage.log_dirs import LOCK, LogDir, UnusableDirectory, is_in_use
from barnabas.storage.replace_file import sync_directory
from barnabas.storage.snapshot import SNAPSHOTS

VERSION = 1
PART_BYTES = 32 << 20
BACKUPS, PARTS = "backups", "parts"
PASSING = (".deleted", ".cleaned", ".swap", ".own", ".tmp")
LEFT_OUT = {LOCK, SNAPSHOTS, f"{FILE_NAME}.lock", "lost+found"}
DEPTH_MAX = 2  # TOPIC-PARTITION/FILE

Advance = Callable[[int], None]


class NoBackup(Exception):
    """Why a backup cannot be made or restored: one plain line."""


class Source(NamedTuple):
    """A file to back up: its path in the backup, and where it is, or its content."""

    path: str
    place: Path | bytes


class Entry(NamedTuple):
    """A file of a backup."""

    path: str
    size_bytes: int
    modified_ns: int
    inode: int
    parts: list[str]


class Backup(NamedTuple):
    """A complete backup."""

    name: str
    taken_at_ms: int
    cluster_id: str
    node_id: str
    was_running: bool
    entries: list[Entry]


# -- the source -----------------------------------------------------------------------------------


@contextmanager
def _directories(given: Sequence[Path]) -> Iterator[tuple[list[Path], bool]]:
    """Yields the directories to read, which do not change until the end, and whether a broker runs
    on `given`. Raises NoBackup, NotTaken, OSError."""
    with ExitStack() as stack:
        if any(is_in_use(path) for path in given):
            snapshots = given[0] / SNAPSHOTS  # on the same file system as the links in it
            snapshots.mkdir(mode=0o700, exist_ok=True)
            copy = snapshots / f"backup-{os.getpid()}"
            stack.callback(shutil.rmtree, copy, ignore_errors=True)
            take(given[0], copy, forks=False)
            fd = os.open(copy, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, fd)
            fcntl.flock(fd, fcntl.LOCK_SH)  # the broker does not remove it
            yield [copy], True
            return
        for path in given:
            directory = LogDir(path)
            try:
                directory.open()
            except UnusableDirectory as error:
                raise NoBackup(str(error)) from error
            stack.callback(directory.close, clean=False)
        yield list(given), False


def _sources(directories: Sequence[Path]) -> list[Source]:
    """Returns the files of all directories, as those of one. Raises DamagedFile, OSError."""
    found: dict[str, Source] = {}
    offsets: dict[str, dict[checkpoints.TopicPartition, int]] = {}
    for directory in directories:
        for path in sorted(directory.rglob("*")):
            name = str(path.relative_to(directory))
            first = name.partition("/")[0]
            named = partition_dirs.parse(first)
            is_kept = named is None or named.mark is None
            if (
                path.is_symlink()
                or not path.is_file()
                or not is_kept
                or first in (SNAPSHOTS, JOINED_DIRECTORY)
                or path.name in LEFT_OUT
                or path.name.endswith(PASSING)
            ):
                continue
            if name in CHECKPOINTS and len(directories) > 1:
                offsets.setdefault(name, {}).update(checkpoints.read_offsets(path))
            elif name not in found:
                found[name] = Source(name, path)
    for name, rows in offsets.items():
        found[name] = Source(name, checkpoints.offsets_text(rows))
    return [found[name] for name in sorted(found)]


# -- backup ---------------------------------------------------------------------------------------


def back_up(
    given: Sequence[Path], url: str, advance: Advance, keep: int | None = None
) -> dict[str, Any]:
    """Backs up the log directories of one broker. `keep`: afterwards all but so many of its newest
    backups are removed. Returns the facts for the user. Raises NoBackup, NotTaken, DamagedFile,
    CheckpointError, OSError."""
    store = files_at(url)
    if isinstance(store, LocalFiles):  # the files contain records and credentials
        store.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    began = time.monotonic()
    earlier = backups_in(store)
    known = {row.path: row for row in earlier[-1].entries} if earlier else {}
    stored = {part for backup in earlier for row in backup.entries for part in row.parts}
    added = _Parts(store, stored)
    with _directories(given) as (directories, was_running):
        identity = LogDir(directories[0]).identity()
        if not identity:
            raise NoBackup(f"{directories[0]} is not a log directory: it has no meta.properties")
        entries = [
            _entry(row, known.get(row.path), added, advance) for row in _sources(directories)
        ]
    taken_at_ms = int(time.time() * 1000)
    made = Backup(
        time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()) + f"-{os.urandom(4).hex()}",
        taken_at_ms,
        identity.get("cluster.id", ""),
        identity.get("node.id", identity.get("broker.id", "")),
        was_running,
        entries,
    )
    store.put_if_absent(f"{BACKUPS}/{made.name}.json", _encoded(made))
    removed = [] if keep is None else _remove_old(store, made, keep)
    return {
        "backup": made.name,
        "files": len(entries),
        "sizeBytes": sum(row.size_bytes for row in entries),
        "readBytes": added.read_bytes,
        "storedBytes": added.stored_bytes,
        "clusterId": made.cluster_id,
        "running": was_running,
        "removed": removed,
        "seconds": round(time.monotonic() - began, 3),
    }


def _remove_old(store: Files, newest: Backup, keep: int) -> list[str]:
    """Removes all but the `keep` newest backups of the same broker, and parts that no backup has,
    also those of a backup that was interrupted. Returns the names of the backups. The file of a
    backup goes first: after a crash the next run removes what is left of it."""
    found = backups_in(store)
    identity = newest.cluster_id, newest.node_id
    own = [row for row in found if (row.cluster_id, row.node_id) == identity]
    old = own[:-keep]
    names = [row.name for row in old]
    kept = {
        part
        for row in found
        if row.name not in names
        for entry in row.entries
        for part in entry.parts
    }
    for row in old:
        store.delete(f"{BACKUPS}/{row.name}.json")
    for part in sorted({*store.names(PARTS)} - kept):
        store.delete(f"{PARTS}/{part}")
    return names


class _Parts:
    """Stores the parts that the store does not have."""

    def __init__(self, store: Files, stored: set[str]) -> None:
        self._store, self._stored = store, stored
        self.read_bytes = self.stored_bytes = 0

    def add(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        self.read_bytes += len(data)
        if name not in self._stored:
            with suppress(FileExistsError):  # by a backup that was interrupted
                self._store.put_if_absent(f"{PARTS}/{name}", data)
                self.stored_bytes += len(data)
            self._stored.add(name)
        return name


def _entry(source: Source, known: Entry | None, added: _Parts, advance: Advance) -> Entry:
    if isinstance(source.place, bytes):
        parts = [added.add(source.place)] if source.place else []
        return Entry(source.path, len(source.place), time.time_ns(), 0, parts)
    with open(source.place, "rb", buffering=0) as file:
        stat = os.fstat(file.fileno())
        mark = stat.st_size, stat.st_mtime_ns, stat.st_ino
        if known is not None and mark == known[1:4]:
            advance(stat.st_size)
            return known
        parts, left = [], stat.st_size
        while left:
            data = file.read(min(PART_BYTES, left))
            if not data:
                raise OSError(5, "the file became shorter while it was read", str(source.place))
            parts.append(added.add(data))
            left -= len(data)
            advance(len(data))
    return Entry(source.path, *mark, parts)


# -- the file of a backup -------------------------------------------------------------------------


def _encoded(backup: Backup) -> bytes:
    content = backup._asdict() | {
        "version": VERSION,
        "entries": [row._asdict() for row in backup.entries],
    }
    return json.dumps({"sha256": _sum(content), "backup": content}).encode()


def _sum(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _decoded(data: bytes, shown: str) -> Backup:
    """Raises NoBackup."""
    try:
        document = json.loads(data)
        content = document["backup"]
        if _sum(content) != document["sha256"]:
            raise NoBackup(f"{shown} is damaged: its content does not match its checksum")
        if content.pop("version") != VERSION:
            raise NoBackup(f"{shown} was written by a later version of barnabas")
        entries = [Entry(**row) for row in content.pop("entries")]
        for row in entries:
            _check_path(row.path)
            if not all(re.fullmatch("[0-9a-f]{64}", part) for part in row.parts):
                raise ValueError(f"{row.path} has a part without a checksum")
        return Backup(**content, entries=entries)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoBackup(f"{shown} is damaged: {error}") from error


def _check_path(path: str) -> None:
    """Raises ValueError for a path that could lead out of the directory."""
    parts = PurePosixPath(path).parts
    if not 1 <= len(parts) <= DEPTH_MAX or path.startswith("/") or {"..", "."} & {*parts}:
        raise ValueError(f"{path!r} is no path of a log directory")


def backups_in(store: Files) -> list[Backup]:
    """Returns the complete backups, oldest first. Raises NoBackup, CheckpointError, OSError."""
    paths = [f"{BACKUPS}/{name}" for name in store.names(BACKUPS) if name.endswith(".json")]
    found = [_decoded(store.read(path), store.shown(path)) for path in paths]
    return sorted(found, key=lambda backup: (backup.taken_at_ms, backup.name))


# -- restore --------------------------------------------------------------------------------------


def restore(url: str, target: Path, name: str | None, advance: Advance) -> dict[str, Any]:
    """Restores a backup, the newest one without a `name`, as the new directory `target`. Raises
    NoBackup, NotTaken, CheckpointError, OSError."""
    store = files_at(url)
    check_target(target)
    backup = _chosen(store, name)
    began = time.monotonic()
    building = target.with_name(target.name + ".part")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(mode=0o700)
    try:
        for row in backup.entries:
            _restore_file(store, row, building / row.path, advance)
        sync_filesystem(building)
        if target.exists():
            target.rmdir()
        building.rename(target)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    sync_directory(target.absolute().parent)
    return {
        "backup": backup.name,
        "directory": str(target),
        "files": len(backup.entries),
        "sizeBytes": sum(row.size_bytes for row in backup.entries),
        "clusterId": backup.cluster_id,
        "seconds": round(time.monotonic() - began, 3),
    }


def _chosen(store: Files, name: str | None) -> Backup:
    names = [row.removesuffix(".json") for row in store.names(BACKUPS) if row.endswith(".json")]
    if not names:
        raise NoBackup(f"there is no complete backup in {store.shown('').rstrip('/')}")
    if name is not None and name not in names:
        raise NoBackup(f"there is no backup {name}. There are {', '.join(names)}.")
    path = f"{BACKUPS}/{name or names[-1]}.json"
    return _decoded(store.read(path), store.shown(path))


def _restore_file(store: Files, row: Entry, place: Path, advance: Advance) -> None:
    place.parent.mkdir(mode=0o700, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    is_secret = place.name.startswith(FILE_NAME)  # the store and its log have credentials
    size_bytes = 0
    with open(os.open(place, flags, 0o600 if is_secret else 0o644), "wb", buffering=0) as file:
        for part in row.parts:
            data = _part(store, part, row.path)
            file.write(data)
            size_bytes += len(data)
            advance(len(data))
    if size_bytes != row.size_bytes:
        raise NoBackup(f"{row.path} has {size_bytes} bytes in the backup, not {row.size_bytes}")
    os.utime(place, ns=(row.modified_ns, row.modified_ns))


def _part(store: Files, name: str, path: str) -> bytes:
    shown = f"{store.shown(f'{PARTS}/{name}')}, a part of {path},"
    try:
        data = store.read(f"{PARTS}/{name}")
    except FileNotFoundError as error:
        raise NoBackup(f"the backup is incomplete: {shown} is missing") from error
    except CheckpointError as error:
        raise NoBackup(f"the backup is damaged: {error}") from error
    if hashlib.sha256(data).hexdigest() != name:
        raise NoBackup(f"the backup is damaged: {shown} has other bytes")
    return data


# What can be wrong with a source, a store or a backup, as one plain line.
EXPECTED = (
    NoBackup,
    NotTaken,
    CheckpointError,
    DamagedFile,
    MetadataError,
    UnusableDirectory,
)
