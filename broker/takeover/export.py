"""Makes a log directory on which Apache Kafka starts from those of a stopped broker of barnabas.

    1 mark     barnabas-export-unfinished in the new directory: only such a one, or an empty one, is
               written to. In ZooKeeper mode also the mark `unfinished` in /cluster/id of the tree
    2 copy     the partitions, each file read back and compared, and the four checkpoints
    3 owner    the metadata, in __cluster_metadata-0 or in ZooKeeper, and meta.properties, without
               which Kafka does not start in KRaft mode
    4 finish   .kafka_cleanshutdown, where the broker was stopped cleanly; the marks are removed,
               that of the tree first

After a crash the same command removes what the former run has written, and begins again; but a tree
without a mark may be that of a running Kafka, and is refused. The
broker's own directories are only read, but for the session of its metadata store.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from barnabas.config import BrokerConfig
from barnabas.controller.stored_passwords import StoredPasswords
from barnabas.metadata import tree_copy, znodes
from barnabas.metadata.cluster_state import ClusterStateReader
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.tree import MetadataTree
from barnabas.metadata.tree_copy import owner_of
from barnabas.metadata.znodes import Unfinished
from barnabas.stages.opened import embedded_directory
from barnabas.stages.store_moves import locked_directories
from barnabas.storage import checkpoints, partition_dirs
from barnabas.storage.checkpoints import DamagedFile, TopicPartition
from barnabas.storage.log_dirs import (
    CLEAN_SHUTDOWN,
    FailedDirectory,
    LogDir,
    UnusableDirectory,
    disk_space,
)
from barnabas.storage.replace_file import replace_file, sync_directory, temporary
from barnabas.takeover import older_records
from barnabas.takeover.copied_import import CHECKPOINTS, bring_to_disk
from barnabas.takeover.exported_records import ExportedRecords
from barnabas.takeover.exported_tree import kafkas_nodes, unreadable_groups
from barnabas.takeover.kraft_directory import write_identity, write_snapshot
from barnabas.takeover.partition_files import (
    Content,
    PartitionFile,
    Progress,
    content_of,
    copy_file,
    files_of,
)
from barnabas.takeover.refusals import CannotImport

MARK = "barnabas-export-unfinished"
COMMAND = Unfinished("storage export")
CLEAN = b'{"version":0,"brokerEpoch":-1}'


class Exported(NamedTuple):
    """A partition in the new directory; `content` is None in a dry run."""

    topic: str
    partition: int
    files: Sequence[PartitionFile]
    content: Content | None


class Export(NamedTuple):
    """What was exported, or would be."""

    cluster_id: str
    node_id: int
    partitions: Sequence[Exported]
    records: int  # of the metadata
    notes: Sequence[str]


def export(
    config: BrokerConfig,
    target: Path,
    progress: Progress,
    is_dry_run: bool,
    zookeeper: MetadataTree | None = None,
) -> Export:
    """Exports a broker's log directories into a new one. `zookeeper`: an empty tree, for Kafka in
    ZooKeeper mode; None for KRaft. Raises CannotImport (a refusal), UnusableDirectory,
    MetadataError."""
    with locked_directories(config) as directories:
        first = directories[0].path
        store = EmbeddedTree(embedded_directory(first), clock_ms=lambda: int(time.time() * 1000))
        with closing(store) as tree:
            state = ClusterStateReader(tree).state
            cluster_id = owner_of(tree).cluster_id
            identity = directories[0].identity()
            node_id = int(identity.get("node.id", identity.get("broker.id", "-1")))
            if cluster_id is None or node_id < 0:
                raise CannotImport([f"{first} is not the directory of a broker that has run."])
            directory_id = znodes.uuid_bytes(znodes.new_uuid(os.urandom))
            records = ExportedRecords(tree, state, node_id, directory_id, StoredPasswords(config))
            values = list(records.values()) if zookeeper is None else []
            nodes = [] if zookeeper is None else kafkas_nodes(tree)
        wanted = {
            (topic.name, index): topic.topic_id
            for topic in state.topics.values()
            if not topic.deleting
            for index in topic.partitions
        }
        found, notes = _found(directories, wanted)
        notes = [*records.notes, *notes]
        missing = sorted(f"{name}-{index}" for name, index in wanted.keys() - found.keys())
        if missing:
            raise CannotImport(
                [f"no log directory has {', '.join(missing)}. Give all of log.dirs."]
            )
        planned = [Exported(*name, files_of(path), None) for name, path in sorted(found.items())]
        _check_target(target, planned)
        count = len(values) + len(nodes)
        if zookeeper is not None:
            tree_copy.check_empty(zookeeper, cluster_id, COMMAND)
            notes += unreadable_groups(found)
        if is_dry_run:
            return Export(cluster_id, node_id, planned, count, notes)
        try:
            _begin(target)
            if zookeeper is not None:
                tree_copy.begin(zookeeper, cluster_id, COMMAND)
                tree_copy.fill(zookeeper, nodes)
            is_older = zookeeper is not None
            done = [_copied(row, target, progress, is_older) for row in planned]
            _write_checkpoints(directories, found, target)
            if zookeeper is None:
                write_snapshot(target, values, int(time.time() * 1000))
                write_identity(target, cluster_id, node_id, directory_id)
            else:
                LogDir(target).claim(node_id, cluster_id)
            bring_to_disk(target)
            if all(row.was_clean for row in directories):
                replace_file(target / CLEAN_SHUTDOWN, CLEAN)
            if zookeeper is not None:
                tree_copy.finish(zookeeper, cluster_id)
            (target / MARK).unlink()
            sync_directory(target)
        except OSError as error:
            raise FailedDirectory(f"cannot write {target}", error) from error
        return Export(cluster_id, node_id, done, count, notes)


def _found(
    directories: Sequence[LogDir], wanted: dict[TopicPartition, str | None]
) -> tuple[dict[TopicPartition, Path], list[str]]:
    """Returns the directories of the partitions, and notes about others. Raises CannotImport."""
    found: dict[TopicPartition, Path] = {}
    notes = []
    for directory in directories:
        for path in sorted(directory.path.iterdir()):
            named = partition_dirs.parse(path.name) if path.is_dir() else None
            if named is None:
                continue
            key = (named.topic, named.partition)
            if named.mark is not None or key not in wanted:
                notes.append(f"not exported: {path}: no topic of the metadata has it")
            elif key in found:
                raise CannotImport([f"{found[key]} and {path} are the same partition."])
            else:
                found[key] = path
    return found, notes


def _check_target(target: Path, planned: Sequence[Exported]) -> None:
    """Raises CannotImport when the directory is in use or too small."""
    if target.exists():
        mark = temporary(target / MARK)  # a run was killed when it wrote the mark
        rest = [path for path in target.iterdir() if path.name not in ("lost+found", mark.name)]
        if rest and not (target / MARK).exists():
            raise CannotImport([f"{target} is not empty. Give an empty or a new directory."])
    above = target
    while not above.exists():
        above = above.parent
    needed = sum(file.size_bytes for row in planned for file in row.files)
    free = disk_space(above)[1]
    if needed > free:
        raise CannotImport(
            [f"{target}: the copy needs {needed / 1e6:.0f} MB, and {free / 1e6:.0f} MB are free."]
        )


def _begin(target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    for path in target.iterdir():
        if path.name in (MARK, "lost+found"):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    replace_file(target / MARK, b"")


def _copied(row: Exported, target: Path, progress: Progress, is_older: bool) -> Exported:
    """`is_older`: records of internal topics are written as Kafka 2.8 reads them."""
    directory = target / partition_dirs.plain_name(row.topic, row.partition)
    directory.mkdir()
    copies = []
    changed = set()
    if is_older and row.topic in older_records.READABLE:
        for file in row.files:
            if file.is_segment:
                content = older_records.older(row.topic, file.path)
                if content is not None:
                    changed.add(file.path.stem)
                    path = directory / file.path.name
                    older_records.write(content, path)
                    copies.append(PartitionFile(path, len(content)))
    for file in row.files:
        if file.path.stem in changed and file.path.suffix in (".log", ".index", ".timeindex"):
            continue
        copy_file(file, directory / file.path.name)
        copies.append(PartitionFile(directory / file.path.name, file.size_bytes))
    return row._replace(content=content_of(copies, progress))


def _write_checkpoints(
    directories: Sequence[LogDir], found: dict[TopicPartition, Path], target: Path
) -> None:
    for name in CHECKPOINTS:
        offsets: dict[TopicPartition, int] = {}
        for directory in directories:
            try:
                known = checkpoints.read_offsets(directory.path / name)
            except DamagedFile as error:
                raise UnusableDirectory(f"{error}. Restore the file.") from error
            offsets |= {
                key: offset
                for key, offset in known.items()
                if key in found and found[key].parent == directory.path
            }
        checkpoints.write_offsets(target / name, offsets)
