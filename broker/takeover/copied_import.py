"""Carries out an import by copies. The source is only read.

    1 mark     the metadata store of the first log directory, with all nodes, and with the mark
               `unfinished` in /cluster/id: no broker starts on it
    2 owner    meta.properties in each log directory
    3 copy     the partitions, each file read back and compared; all is brought to disk
    4 offsets  the four checkpoint files
    5 finish   the mark is removed; .kafka_cleanshutdown is written where Kafka stopped cleanly

After a crash the same command finds the mark, removes what the former run has written, and begins
again. Only empty directories, and those of such a run, are written to.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from barnabas.cext.memory.sys import sync_filesystem
from barnabas.metadata import tree_copy, znodes
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.tree_copy import owner_of
from barnabas.metadata.znodes import Unfinished
from barnabas.stages.opened import METADATA_DIRECTORY
from barnabas.storage import checkpoints
from barnabas.storage.checkpoints import TopicPartition
from barnabas.storage.log_dirs import LOCK, FailedDirectory, LogDir, disk_space
from barnabas.storage.replace_file import sync_directory
from barnabas.takeover.converted_import import convert
from barnabas.takeover.import_plan import ImportPlan, PlannedPartition
from barnabas.takeover.partition_files import (
    Content,
    PartitionFile,
    Progress,
    content_of,
    copy_file,
    link_file,
)
from barnabas.takeover.refusals import CannotImport

COMMAND = Unfinished("storage import")
NOT_OURS = (LOCK, "lost+found")  # may be in an empty directory
FREE_SHARE = 0.01  # of the copied bytes, for the metadata store and the file system's own needs
CHECKPOINTS = (
    checkpoints.RECOVERY_POINT,
    checkpoints.HIGH_WATERMARK,
    checkpoints.LOG_START,
    checkpoints.CLEANER,
)


class Imported(NamedTuple):
    """An imported partition, its new directory, and what is in it."""

    planned: PlannedPartition
    directory: Path
    content: Content
    has_originals: bool = False  # segments of Kafka 0.7 are beside the log


def import_by_copies(
    plan: ImportPlan, log_dirs: Sequence[Path], progress: Progress, may_link: bool = False
) -> list[Imported]:
    """Copies everything into the log directories of the new node. `progress` is called with records
    and bytes; `may_link`: links sealed segments where Kafka stopped cleanly. Raises CannotImport,
    UnusableDirectory, MetadataError."""
    with _locked(log_dirs) as targets:
        _make_empty(plan, targets)
        if not may_link:
            _check_space(plan, targets)
        with closing(_store(targets[0].path)) as tree:
            tree_copy.begin(tree, plan.cluster_id, COMMAND)
            tree_copy.fill(tree, plan.nodes)
            for row in targets:
                row.claim(plan.node_id, plan.cluster_id)
            imported = [
                _copy(row, targets, progress, may_link and plan.sources[row.source].is_clean)
                if not plan.sources[row.source].is_07
                else _convert(plan, row, targets, progress, may_link)
                for row in plan.partitions
            ]
            for target in targets:
                bring_to_disk(target.path)
                _write_checkpoints(plan, targets, target)
            check_sources(plan)
            tree_copy.finish(tree, plan.cluster_id)
        for number, target in enumerate(targets):
            feeding = [row for at, row in enumerate(plan.sources) if at % len(targets) == number]
            # A converted log has no indexes: the first start makes them.
            target.close(clean=all(row.is_clean and not row.is_07 for row in feeding))
    return imported


@contextmanager
def _locked(log_dirs: Sequence[Path]) -> Iterator[list[LogDir]]:
    targets = [LogDir(path) for path in log_dirs]
    with ExitStack() as stack:
        for row in targets:
            stack.callback(row.close, clean=False)
            row.open()
        yield targets


def check_targets(plan: ImportPlan, log_dirs: Sequence[Path]) -> None:
    """Checks without a change that an import could write to these directories. Raises CannotImport,
    UnusableDirectory, MetadataError."""
    there = [path for path in log_dirs if path.exists()]
    if any(_content(path) for path in there):
        with _locked(there) as targets:
            _former_run(plan, targets)


def _content(path: Path) -> list[Path]:
    return [row for row in sorted(path.iterdir()) if row.name not in NOT_OURS]


def _former_run(plan: ImportPlan, targets: Sequence[LogDir]) -> list[Path]:
    """Returns what a former run of this import has left in the directories. Raises CannotImport
    when anything else is there."""
    found = [path for row in targets for path in _content(row.path)]
    if not found:
        return []
    first = targets[0].path / METADATA_DIRECTORY
    if first.is_dir() and len(found) == 1:  # the first step had not ended
        with closing(_store(targets[0].path)) as tree:
            if owner_of(tree).cluster_id is None:
                return found
    is_ours = first.is_dir()
    if is_ours:
        with closing(_store(targets[0].path)) as tree:
            owner = owner_of(tree)
        is_ours = owner.unfinished == COMMAND and owner.cluster_id == plan.cluster_id
    ours = [row.identity().get("cluster.id") in (None, plan.cluster_id) for row in targets]
    if not is_ours or not all(ours):
        raise CannotImport(
            [f"{found[0].parent} is not empty. Set log.dirs to an empty or a new directory."]
        )
    return found


def _make_empty(plan: ImportPlan, targets: Sequence[LogDir]) -> None:
    store = targets[0].path / METADATA_DIRECTORY
    for path in sorted(_former_run(plan, targets), key=lambda row: row == store):  # the mark last
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _check_space(plan: ImportPlan, targets: Sequence[LogDir]) -> None:
    needed: dict[int, int] = {}  # by device
    free: dict[int, tuple[int, Path]] = {}
    for row in plan.partitions:
        path = _target_of(row, targets).path
        device = os.stat(path).st_dev
        needed[device] = needed.get(device, 0) + row.size_bytes
        free[device] = disk_space(path)[1], path
    for device, size_bytes in needed.items():
        free_bytes, path = free[device]
        if size_bytes * (1 + FREE_SHARE) > free_bytes:
            raise CannotImport(
                [
                    f"{path}: the copy needs {size_bytes / 1e6:.0f} MB, and {free_bytes / 1e6:.0f}"
                    " MB are free. Free space, or use another disk."
                ]
            )


def _target_of(row: PlannedPartition, targets: Sequence[LogDir]) -> LogDir:
    return targets[row.source % len(targets)]


def _store(first: Path) -> EmbeddedTree:
    return EmbeddedTree(first / METADATA_DIRECTORY, clock_ms=lambda: int(time.time() * 1000))


def _copy(
    row: PlannedPartition, targets: Sequence[LogDir], progress: Progress, may_link: bool
) -> Imported:
    directory = _new_directory(row, targets)
    copied = []
    sealed = [file for file in row.files if file.is_segment][:-1]
    for file in row.files:
        target = directory / file.path.name
        if not (may_link and file in sealed and link_file(file, target)):
            copy_file(file, target)
        copied.append(PartitionFile(target, file.size_bytes))
    content = content_of(copied, progress)
    return Imported(row, directory, content)


def _convert(
    plan: ImportPlan,
    row: PlannedPartition,
    targets: Sequence[LogDir],
    progress: Progress,
    may_link: bool,
) -> Imported:
    directory = _new_directory(row, targets)
    done = convert(row.files, directory, progress, may_link)
    topic_id = plan.cluster.topics[row.topic].topic_id
    assert topic_id is not None
    try:
        checkpoints.write_topic_id(directory, znodes.uuid_bytes(topic_id))
    except OSError as error:
        raise FailedDirectory(f"cannot write into {directory}", error) from error
    return Imported(row, directory, done.content, done.has_originals)


def _new_directory(row: PlannedPartition, targets: Sequence[LogDir]) -> Path:
    directory = _target_of(row, targets).path / row.name
    try:
        directory.mkdir()
    except OSError as error:
        raise FailedDirectory(f"cannot make {directory}", error) from error
    return directory


def _write_checkpoints(plan: ImportPlan, targets: Sequence[LogDir], target: LogDir) -> None:
    """Writes the offsets of the partitions that came into a directory."""
    for name in CHECKPOINTS:
        offsets: dict[TopicPartition, int] = {}
        for number, source in enumerate(plan.sources):
            known = source.offsets(name)
            for row in plan.partitions:
                key = (row.topic, row.partition)
                if row.source == number and key in known and _target_of(row, targets) is target:
                    offsets[key] = known[key]
        try:
            checkpoints.write_offsets(target.path / name, offsets)
        except OSError as error:
            raise FailedDirectory(f"cannot write {target.path / name}", error) from error


def bring_to_disk(path: Path) -> None:
    """Brings a directory and all that is in it to disk."""
    if sync_filesystem(path):
        return
    for folder, _names, files in os.walk(path):
        for name in files:
            fd = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        sync_directory(Path(folder))


def check_sources(plan: ImportPlan) -> None:
    """Raises CannotImport when a broker has started on a source since the import began."""
    for row in plan.sources:
        if not row.unchanged():
            raise CannotImport(
                [
                    f"a broker has started on {row.path} during the import. Stop it, and run the"
                    " command again."
                ]
            )
