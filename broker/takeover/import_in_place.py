"""Makes the log directories of a stopped broker of Kafka those of barnabas, without a copy.

    1 prepare   in each directory, a directory whose name Kafka takes for a deleted partition: the
                undo record and, in the first one, the metadata store. Kafka still starts, and
                removes it
    2 switch    it is renamed to import-undo; __cluster_metadata-0 moves into it; the metadata store
                moves out of it

Kafka starts until step 2, which is a few renames, and barnabas after it. After a crash in step 2
neither does: the same command finishes it, and `--undo` goes back. meta.properties, the checkpoints
and the files of partitions stay as they are; the broker changes them when it starts. The metadata
store moves last, and no broker starts on a directory with import-undo and without that store.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from barnabas.metadata import tree_copy
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.znodes import Unfinished
from barnabas.stages.opened import METADATA_DIRECTORY
from barnabas.storage import partition_dirs
from barnabas.storage.log_dirs import KRAFT_METADATA, FailedDirectory
from barnabas.storage.replace_file import sync_directory
from barnabas.takeover import undo_record
from barnabas.takeover.copied_import import Imported, bring_to_disk, check_sources
from barnabas.takeover.import_plan import ImportPlan
from barnabas.takeover.partition_files import Progress, content_of
from barnabas.takeover.refusals import CannotImport

COMMAND = Unfinished("storage import --in-place")


def remove_leftovers(log_dirs: Sequence[Path]) -> None:
    """Removes what a killed run has prepared. Raises FailedDirectory."""
    for path in (row for log_dir in log_dirs for row in undo_record.set_aside(log_dir)):
        try:
            shutil.rmtree(path)
        except OSError as error:
            raise FailedDirectory(f"cannot remove {path}", error) from error


def finish_switch(log_dirs: Sequence[Path]) -> bool:
    """Finishes an import that was killed in its switch. Returns whether there was one. Raises
    CannotImport, FailedDirectory."""
    if not any(undo_record.has_record(path) for path in log_dirs):
        return False
    for path in log_dirs:
        if undo_record.is_undoing(path):
            raise CannotImport([f"an undo has begun in {path}. Run the command with --undo again."])
    if not all(undo_record.has_record(path) or undo_record.set_aside(path) for path in log_dirs):
        raise CannotImport(
            [
                f"{log_dirs[0]} has an undo record, and another of the directories has none. Give"
                " the directories of the import that made it, in their order."
            ]
        )
    _switch(log_dirs)
    return True


def import_in_place(plan: ImportPlan, progress: Progress) -> list[Imported]:
    """Imports the directories of one broker. Raises CannotImport, UnusableDirectory,
    MetadataError."""
    log_dirs = [row.path for row in plan.sources]
    brokers = {row.broker_id for row in plan.sources}
    if brokers != {plan.node_id}:
        raise CannotImport(
            [
                f"an import in place keeps the broker's id: the directories are of broker"
                f" {', '.join(map(str, sorted(brokers)))}, and the new broker is {plan.node_id}."
            ]
        )
    for log_dir in log_dirs:
        if (log_dir / METADATA_DIRECTORY).exists():
            raise CannotImport(
                [
                    f"{log_dir / METADATA_DIRECTORY} is of a broker of barnabas that has started"
                    " here. Move it elsewhere if nothing in it is needed."
                ]
            )
    imported = [
        Imported(row, plan.sources[row.source].path / row.name, content_of(row.files, progress))
        for row in plan.partitions
    ]
    for number, log_dir in enumerate(log_dirs):
        path = log_dir / partition_dirs.marked_name(undo_record.DIRECTORY, 0, "delete")
        names = [row.name for row in plan.partitions if row.source == number]
        others = {row.name for row in plan.sources[number].partitions.values()} - {*names}
        undo_record.write_record(log_dir, path, names, sorted(others))
        if number == 0:
            store = EmbeddedTree(
                path / METADATA_DIRECTORY, clock_ms=lambda: int(time.time() * 1000)
            )
            with closing(store) as tree:
                tree_copy.begin(tree, plan.cluster_id, COMMAND)
                tree_copy.fill(tree, plan.nodes)
                tree_copy.finish(tree, plan.cluster_id)
        bring_to_disk(log_dir)
    check_sources(plan)
    _switch(log_dirs)
    return imported


def _switch(log_dirs: Sequence[Path]) -> None:
    """Does what is left of the switch. Raises FailedDirectory."""
    for log_dir in log_dirs:
        kept = log_dir / undo_record.DIRECTORY
        try:
            if not kept.exists():
                undo_record.set_aside(log_dir)[0].rename(kept)
                sync_directory(log_dir)
            if (log_dir / KRAFT_METADATA).exists():
                (log_dir / KRAFT_METADATA).rename(kept / KRAFT_METADATA)
            sync_directory(kept)
            sync_directory(log_dir)
        except OSError as error:
            raise FailedDirectory(f"cannot change {log_dir}", error) from error
    # One of them has the store: the run that was killed may have had another order.
    for log_dir in log_dirs:
        store = log_dir / undo_record.DIRECTORY / METADATA_DIRECTORY
        try:
            if store.exists():
                store.rename(log_dir / METADATA_DIRECTORY)
                sync_directory(log_dir)
        except OSError as error:
            raise FailedDirectory(f"cannot change {log_dir}", error) from error
