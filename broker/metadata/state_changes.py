"""Writes partition states so that the other nodes of a shared tree read them.

Partition states have no watches (cluster_state.py has the reason). A multi that writes some ends
with a note in /isr_change_notification, as Kafka's leaders write it: its sequential node names the
partitions. Every node watches that directory and reads the topics of new notes. The controller
removes notes when every node has seen them. A store of one node needs no notes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from barnabas.metadata import znodes
from barnabas.metadata.tree import (
    BadVersion,
    CreateNode,
    MetadataTree,
    MultiFailed,
    NoNode,
    Operation,
    SetData,
    shares,
)


def shares_with_notes(
    operations: Iterable[Operation], tree: MetadataTree, each: Sequence[Operation] = ()
) -> Iterator[list[Operation]]:
    """Divides operations, in their order, into parts that each fit one multi, as `tree.shares`
    does. A part that writes partition states ends with its note."""
    limits = tree.limits
    if tree.is_shared:  # a note is shorter than the paths and states of its part
        limits = replace(
            limits,
            multi_operations_max=limits.multi_operations_max - 1,
            multi_bytes_max=limits.multi_bytes_max // 2,
        )
    for part in shares(operations, limits, each):
        yield [*part, *_note(part)] if tree.is_shared else part


def written_by_controller(
    operations: Sequence[Operation], tree: MetadataTree, check: Sequence[Operation]
) -> bool:
    """Writes the operations in their order, in as few multis as possible, each with `check` (the
    check of the controller's epoch) and a note. Returns False if another writer has changed or
    deleted one of their nodes: then that multi and the later ones write nothing. Raises BadVersion
    when `check` fails, and MetadataError."""
    for part in shares_with_notes(operations, tree, check):
        try:
            tree.multi(part)
        except MultiFailed as failed:
            is_theirs = failed.index >= len(check) and isinstance(failed.error, BadVersion | NoNode)
            if not is_theirs:
                raise failed.error from failed
            return False
    return True


def _note(part: Sequence[Operation]) -> list[Operation]:
    written = [row.path for row in part if isinstance(row, CreateNode | SetData)]
    partitions = [found for path in written if (found := znodes.partition_of_state(path))]
    if not partitions:
        return []
    data = znodes.encode_partitions(partitions)
    return [CreateNode(znodes.ISR_CHANGE_PREFIX, data, sequence=True)]
