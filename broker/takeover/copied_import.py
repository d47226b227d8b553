"""Carries out an import by copies. The source is only read.

    1 mark     barnabas-import-unfinished in each log directory, before anything else: no broker
               starts on it. It names the cluster and the sources
    2 store    the metadata store of the first log directory, with all nodes
    3 owner    meta.properties in each log directory
    4 copy     the partitions, each file read back and compared; all is brought to disk
    5 offsets  the four checkpoint files, and .kafka_cleanshutdown where Kafka stopped cleanly
    6 finish   the marks become barnabas-import-complete, that of the first directory last

A crash at any moment leaves directories that are empty or have a mark. The same command, and no
other one, then removes what is in them and begins again. It does so too when the import was
complete, for its report may not have arrived; but whatever else opens the directory first, such as
a broker, removes the mark. Files that no import makes are never removed.
"""

from __future__ import annotations

import json
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
from barnabas.metadata.znodes import Unfinished
from barnabas.stages.opened import METADATA_DIRECTORY
from barnabas.storage import checkpoints, partition_dirs
from barnabas.storage.checkpoints import TopicPartition
from barnabas.storage.log_dirs import (
    CLEAN_SHUTDOWN,
    IMPORT_COMPLETE,
    IMPORT_UNFINISHED,
    LOCK,
    META,
    FailedDirectory,
    LogDir,
    disk_space,
)
from barnabas.storage.replace_file import replace_file, sync_directory, temporary
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
MARKS = (IMPORT_UNFINISHED, IMPORT_COMPLETE)
NOT_OURS = (LOCK, "lost+found")  # may be in an empty directory
FREE_SHARE = 0.01  # of the copied bytes, for the metadata store and the file system's own needs
CHECKPOINTS = (
    checkpoints.RECOVERY_POINT,
    checkpoints.HIGH_WATERMARK,
    checkpoints.LOG_START,
    checkpoints.CLEANER,
)
FILES = (META, CLEAN_SHUTDOWN, *CHECKPOINTS)


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
        _begin(plan, targets, check_space=not may_link)
        with closing(_store(targets[0].path)) as tree:
            tree_copy.begin(tree, plan.cluster_id, COMMAND)
            tree_copy.fill(tree, plan.nodes)
            tree_copy.finish(tree, plan.cluster_id)
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
        _finish(plan, targets)
    return imported


@contextmanager
def _locked(log_dirs: Sequence[Path]) -> Iterator[list[LogDir]]:
    targets = [LogDir(path) for path in log_dirs]
    with ExitStack() as stack:
        for row in targets:
            stack.callback(row.close, clean=False)
            row.open(by_import=True)
        yield targets


def check_targets(plan: ImportPlan, log_dirs: Sequence[Path]) -> None:
    """Checks without a change that an import could write to these directories. Raises CannotImport,
    UnusableDirectory."""
    there = [path for path in log_dirs if path.exists()]
    if any(_content(path) for path in there):
        with _locked(there) as targets:
            _check_free(plan, targets)


def _content(path: Path) -> list[Path]:
    return [row for row in sorted(path.iterdir()) if row.name not in NOT_OURS]


def _mark_of(plan: ImportPlan) -> bytes:
    sources = [str(row.path.absolute()) for row in plan.sources]
    return json.dumps({"version": 1, "cluster.id": plan.cluster_id, "sources": sources}).encode()


def _check_free(plan: ImportPlan, targets: Sequence[LogDir]) -> None:
    """Raises CannotImport when a directory has anything that a former run of this import did not
    leave."""
    for path in (row.path for row in targets):
        marks = [path / name for name in MARKS if (path / name).exists()]
        rest = [row for row in _content(path) if row not in marks and not _is_unfinished_mark(row)]
        if rest and not marks:
            raise CannotImport(
                [f"{path} is not empty. Set log.dirs to an empty or a new directory."]
            )
        for mark in marks:
            if mark.read_bytes() != _mark_of(plan):
                raise CannotImport(
                    [
                        f"{path} has the work of another import, which {mark} names. Run that one"
                        " again, or set log.dirs to an empty or a new directory."
                    ]
                )
        for row in rest:
            if not _is_of_import(row):
                raise CannotImport(
                    [
                        f"{row} is not of the import that was interrupted in {path}. Move it"
                        " elsewhere, or set log.dirs to an empty or a new directory."
                    ]
                )


def _is_unfinished_mark(path: Path) -> bool:
    return path == temporary(path.with_name(IMPORT_UNFINISHED))


def _is_of_import(path: Path) -> bool:
    """Returns whether a file or directory may be one that an import has made."""
    if not path.is_dir() or path.is_symlink():
        return path.name.removesuffix(".tmp") in FILES
    named = partition_dirs.parse(path.name)
    return path.name == METADATA_DIRECTORY or (named is not None and named.mark is None)


def _begin(plan: ImportPlan, targets: Sequence[LogDir], check_space: bool) -> None:
    """Marks the directories, and removes what a former run has left in them. Raises CannotImport,
    FailedDirectory."""
    _check_free(plan, targets)
    try:
        for row in targets:
            if (row.path / IMPORT_COMPLETE).exists():
                _rename_mark(row, IMPORT_COMPLETE, IMPORT_UNFINISHED)
            elif not (row.path / IMPORT_UNFINISHED).exists():
                replace_file(row.path / IMPORT_UNFINISHED, _mark_of(plan))
        for row in targets:
            for path in _content(row.path):
                if path.name == IMPORT_UNFINISHED:
                    continue
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
        if check_space:
            try:
                _check_space(plan, targets)
            except CannotImport:
                for row in targets:  # they are empty
                    (row.path / IMPORT_UNFINISHED).unlink()
                raise
    except OSError as error:
        raise FailedDirectory(f"cannot write into {row.path}", error) from error


def _finish(plan: ImportPlan, targets: Sequence[LogDir]) -> None:
    """Makes directories with all data on disk those of a broker. Raises FailedDirectory."""
    try:
        for number, row in enumerate(targets):
            feeding = [one for at, one in enumerate(plan.sources) if at % len(targets) == number]
            # A converted log has no indexes: the first start makes them.
            if all(one.is_clean and not one.is_07 for one in feeding):
                row.mark_clean()
        for row in reversed(targets):
            _rename_mark(row, IMPORT_UNFINISHED, IMPORT_COMPLETE)
    except OSError as error:
        raise FailedDirectory(f"cannot write into {row.path}", error) from error


def _rename_mark(target: LogDir, before: str, after: str) -> None:
    (target.path / before).rename(target.path / after)
    sync_directory(target.path)


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
