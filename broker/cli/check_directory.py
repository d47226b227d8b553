"""Checks the log directories of one broker, stopped or running, for `barnabas storage verify`.

Of each directory: the owner, the checkpoints, the names in it, and each partition
(check_partition.py). Of the first: the metadata store, in a copy, because SQLite writes even to a
database that it only reads. Nothing in the directories is changed, and no lock is taken.

A running broker changes the files meanwhile. So a partition with a problem is read again, up to
LOOKS times in all, and only what every look has found is reported.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from barnabas.cli.check_partition import Counts, Finding, Known, PartitionCheck
from barnabas.config import BrokerConfig
from barnabas.config.dynamic_config import DynamicConfig
from barnabas.metadata.cluster_state import ClusterState, ClusterStateReader
from barnabas.metadata.database import FILE_NAME
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.tree import MetadataError
from barnabas.server.replica_manager import deleted_logs, wanted_logs
from barnabas.stages.opened import JOINED_DIRECTORY, METADATA_DIRECTORY
from barnabas.storage import checkpoints, partition_dirs
from barnabas.storage.checkpoints import DamagedFile, TopicPartition
from barnabas.storage.log_dirs import (
    CLEAN_SHUTDOWN,
    IMPORT_COMPLETE,
    IMPORT_UNDO,
    IMPORT_UNFINISHED,
    KRAFT_METADATA,
    LOCK,
    META,
    LogDir,
    UnusableDirectory,
    is_in_use,
)
from barnabas.storage.log_manager import WantedLog
from barnabas.storage.snapshot import MANIFEST, SNAPSHOTS

LOOKS = 4
LOOK_AGAIN_S = 0.25
COPY_TRIES = 20
CHECKPOINTS = (
    checkpoints.RECOVERY_POINT,
    checkpoints.HIGH_WATERMARK,
    checkpoints.LOG_START,
    checkpoints.CLEANER,
)
WITHOUT_CHECKPOINT = {
    checkpoints.RECOVERY_POINT: "after an unclean stop a start recovers whole logs",
    checkpoints.HIGH_WATERMARK: "a start cannot notice records that are missing at the end",
    checkpoints.LOG_START: "a start serves records again that DeleteRecords has deleted",
    checkpoints.CLEANER: "the cleaner reads whole logs again",
}
NAMES = {LOCK, META, CLEAN_SHUTDOWN, METADATA_DIRECTORY, *CHECKPOINTS}
NAMES |= {SNAPSHOTS, MANIFEST, IMPORT_COMPLETE, IMPORT_UNDO, "lost+found"}
SQLITE_SUFFIXES = ("", "-wal")


class Metadata(NamedTuple):
    """What the embedded store says; `wanted` is None when it cannot be read, or there is none."""

    cluster_id: str | None = None
    wanted: dict[TopicPartition, WantedLog] | None = None
    deleted: frozenset[tuple[str, int, bytes]] = frozenset()


class DirectoryCheck:
    """The check of the directories in `log.dirs`, in their order."""

    def __init__(
        self,
        paths: Sequence[Path],
        advance: Callable[[int, int], None] = lambda records, size_bytes: None,
        *,
        decodes_records: bool = False,
        copies_in: Path | None = None,
    ) -> None:
        """`advance`: called with numbers of records and bytes; `copies_in`: for the copy of the
        metadata store. Raises OSError."""
        self._paths, self._advance = paths, advance
        self._decodes_records, self._copies_in = decodes_records, copies_in
        self.counts = Counts()
        self.is_running = any(is_in_use(path) for path in paths)
        self.was_clean = all((path / CLEAN_SHUTDOWN).exists() for path in paths)

    def findings(self) -> Iterator[Finding]:
        """Raises OSError."""
        identities = [self._identity(path) for path in self._paths]
        for path, (identity, problem) in zip(self._paths, identities, strict=True):
            if problem is not None:
                yield problem
            yield from self._other_owner(path, identity, identities[0][0])
        metadata, problem = self._metadata(identities[0][0])
        if problem is not None:
            yield problem
        if metadata.cluster_id is not None:
            yield from self._other_owner(
                self._paths[0], identities[0][0], {"cluster.id": metadata.cluster_id}
            )
        places: dict[TopicPartition, Path] = {}
        for path in self._paths:
            yield from self._directory(path, metadata, places)
        for name in sorted((metadata.wanted or {}).keys() - places.keys()):
            yield Finding(
                self._paths[0] / partition_dirs.plain_name(*name),
                None,
                "the directory of this partition is missing",
                "a start makes an empty log, which begins at the offset of the checkpoints",
            )

    @staticmethod
    def _identity(path: Path) -> tuple[dict[str, str], Finding | None]:
        file = path / META
        try:
            found = LogDir(path).identity()
        except UnusableDirectory as error:
            return {}, Finding(file, None, str(error), "a start is refused")
        if not found:
            what = "is missing or empty"
            return {}, Finding(file, None, what, "a start writes it for its own node and cluster")
        return found, None

    @staticmethod
    def _other_owner(path: Path, found: dict[str, str], first: dict[str, str]) -> Iterator[Finding]:
        for names in (("cluster.id",), ("node.id", "broker.id")):
            own, other = (
                next((row[name] for name in names if name in row), None) for row in (found, first)
            )
            if own is not None and other is not None and own != other:
                what = f"{names[-1]} is {own}, and {other} in {METADATA_DIRECTORY} or the first one"
                yield Finding(path / META, None, what, "a start is refused")

    # -- the metadata store -----------------------------------------------------------------------

    def _metadata(self, identity: dict[str, str]) -> tuple[Metadata, Finding | None]:
        first = self._paths[0]
        file = first / METADATA_DIRECTORY / FILE_NAME
        if not file.exists():
            if (first / METADATA_DIRECTORY).exists():
                what = "is missing"
                start = "a start makes an empty store, and puts all partitions aside as -stray"
                return Metadata(), Finding(file, None, what, start)
            where = "ZooKeeper, or in another directory that belongs in front of this one"
            what = f"there is no metadata store: topics and settings are in {where}"
            return Metadata(), Finding(first, None, what, KEEPS_NAMES, False)
        with tempfile.TemporaryDirectory(prefix="barnabas-verify-", dir=self._copies_in) as made:
            copy = Path(made)
            _copy_database(file, copy / FILE_NAME)
            try:
                tree = EmbeddedTree(copy, clock_ms=lambda: int(time.time() * 1000))
                try:
                    state = ClusterStateReader(tree).state
                finally:
                    tree.close()
            except MetadataError as error:
                reason = str(error).replace(str(copy / FILE_NAME), str(file))
                return Metadata(), Finding(file, None, reason, "a start is refused")
        return self._wanted(state, identity, file)

    @staticmethod
    def _wanted(
        state: ClusterState, identity: dict[str, str], file: Path
    ) -> tuple[Metadata, Finding | None]:
        node_id = int(identity.get("node.id", identity.get("broker.id", "-1")))
        config = DynamicConfig(BrokerConfig.load(), node_id)
        wanted = wanted_logs(state, node_id, config) if node_id >= 0 else None
        found = Metadata(state.cluster_id, wanted, frozenset(deleted_logs(state)))
        unreadable = ", ".join(sorted(state.unreadable))
        if not unreadable:
            return found, None
        what = f"topics that cannot be read: {unreadable}"
        return found, Finding(file, None, what, "a start puts their partitions aside as -stray")

    # -- one directory ----------------------------------------------------------------------------

    def _directory(
        self, path: Path, metadata: Metadata, places: dict[TopicPartition, Path]
    ) -> Iterator[Finding]:
        offsets: dict[str, dict[TopicPartition, int]] = {}
        for name in CHECKPOINTS:
            offsets[name] = {}
            try:
                offsets[name] = checkpoints.read_offsets(path / name)
            except DamagedFile as error:
                what = str(error).removeprefix(f"{path / name}: ")
                yield Finding(path / name, None, what, WITHOUT_CHECKPOINT[name])
        for entry in sorted(os.scandir(path), key=lambda row: row.name):
            file = path / entry.name
            named = partition_dirs.parse(entry.name)
            is_directory = entry.is_dir(follow_symlinks=False)
            if entry.name == KRAFT_METADATA:
                what = "the metadata log of Apache Kafka's KRaft"
                yield Finding(file, None, what, "a start is refused")
            elif entry.name == IMPORT_UNFINISHED:
                what = "`barnabas storage import` has not finished its work here"
                yield Finding(file, None, what, "a start is refused; run the import again")
            elif named is None or not is_directory:
                if entry.name not in NAMES and entry.name != JOINED_DIRECTORY:
                    what = "is a symbolic link" if entry.is_symlink() else "is no part of it"
                    yield Finding(file, None, what, KEEPS_NAMES, entry.is_symlink())
            elif named.mark is not None:
                yield Finding(file, None, *MARKED[named.mark], False)
            else:
                place = named.topic, named.partition
                if place in places:
                    what = f"{places[place]} has the same partition"
                    yield Finding(file, None, what, "a start is refused, unless one was moved")
                places[place] = file
                yield from self._partition(file, place, metadata, offsets)

    def _partition(
        self,
        directory: Path,
        place: TopicPartition,
        metadata: Metadata,
        offsets: dict[str, dict[TopicPartition, int]],
    ) -> Iterator[Finding]:
        wanted = None if metadata.wanted is None else metadata.wanted.get(place)
        if metadata.wanted is not None:
            yield from self._owner(directory, place, wanted, metadata.deleted)
        cleaned = offsets[checkpoints.CLEANER].get(place)
        known = Known(
            recovery_point=offsets[checkpoints.RECOVERY_POINT].get(place, 0),
            high_watermark=offsets[checkpoints.HIGH_WATERMARK].get(place, 0),
            log_start=offsets[checkpoints.LOG_START].get(place, 0),
            cleaned=cleaned,
            was_clean=(directory.parent / CLEAN_SHUTDOWN).exists(),
            is_running=self.is_running,
            is_compacted=cleaned is not None
            or wanted is None
            or "compact" in wanted.config.names("cleanup.policy"),
            is_replicated=wanted is not None and wanted.is_replicated,
        )
        yield from self._looks(directory, known)

    @staticmethod
    def _owner(
        directory: Path,
        place: TopicPartition,
        wanted: WantedLog | None,
        deleted: frozenset[tuple[str, int, bytes]],
    ) -> Iterator[Finding]:
        file = directory / checkpoints.PARTITION_METADATA
        topic_id = None
        try:
            topic_id = checkpoints.read_topic_id(directory)
        except DamagedFile as error:
            what = str(error).removeprefix(f"{file}: ")
            yield Finding(file, None, what, "a start takes the topic of the directory's name")
        else:
            if topic_id is None:
                what, start = "is missing", "a start takes the topic of the directory's name"
                yield Finding(file, None, what, start)
        if topic_id is not None and (*place, topic_id) in deleted:
            what = "its topic is being deleted"
            yield Finding(directory, None, what, "a start removes it", False)
        elif wanted is None:
            what = "the metadata has no such partition"
            yield Finding(directory, None, what, "a start renames it to -stray")
        elif topic_id not in (None, wanted.topic_id):
            what = "belongs to another topic of this name"
            yield Finding(file, None, what, "a start renames the directory to -stray")

    def _looks(self, directory: Path, known: Known) -> list[Finding]:
        found: list[Finding] = []
        for look in range(LOOKS if self.is_running else 1):
            if look:
                time.sleep(LOOK_AGAIN_S)
            counts = Counts() if look else self.counts
            advance = _nothing if look else self._advance
            check = PartitionCheck(directory, known, counts, advance, self._decodes_records)
            try:
                seen = check.findings()
            except FileNotFoundError:
                if not self.is_running:
                    raise
                if not directory.exists():
                    return []
                continue
            before = {(row.file, row.position) for row in found}
            found = [row for row in seen if not look or (row.file, row.position) in before]
            if not any(row.is_defect for row in found):
                break
        return found


KEEPS_NAMES = "the broker does not use it"
MARKED = {
    "delete": ("is deleted", "a start removes it"),
    "stray": ("was put aside: the metadata did not know it", "the broker does not use it"),
    "future": ("an unfinished copy for another log directory", "a start continues it"),
}


def _nothing(_records: int, _size_bytes: int) -> None:
    return


def _copy_database(source: Path, target: Path) -> None:
    """Copies an SQLite database with its write-ahead log; of one that a broker writes to, the two
    at one moment. Raises OSError."""
    for _ in range(COPY_TRIES):
        before = _stamps(source)
        for suffix in SQLITE_SUFFIXES:
            file = source.with_name(source.name + suffix)
            copy = target.with_name(target.name + suffix)
            copy.unlink(missing_ok=True)
            if file.exists():
                shutil.copyfile(file, copy)
        if _stamps(source) == before:
            return
        time.sleep(LOOK_AGAIN_S / 5)
    raise OSError(f"{source} changes all the time: check it when the broker is less busy")


def _stamps(source: Path) -> list[tuple[int, int] | None]:
    found: list[tuple[int, int] | None] = []
    for suffix in SQLITE_SUFFIXES:
        try:
            stat = source.with_name(source.name + suffix).stat()
            found.append((stat.st_size, stat.st_mtime_ns))
        except FileNotFoundError:
            found.append(None)
    return found
