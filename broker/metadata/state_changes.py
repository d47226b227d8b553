"""Writes partition states so that the other nodes of a shared tree read them.

Partition states have no watches (cluster_state.py has the reason). A multi that writes some ends
with a note in /isr_change_notification, as Kafka's leaders write it: its sequential node names the
partitions. Every node watches that directory and reads the partitions of new notes. The controller
removes notes when every node has seen them. A store of one node needs no notes.

Elections write no notes: the controller's requests tell the other nodes. With a note, each of them
read all partitions of the topics, while their leaders changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import ClusterState, PartitionUpdate
from barnabas.metadata.tree import (
    BadVersion,
    CheckVersion,
    CreateNode,
    MetadataTree,
    MultiFailed,
    NoNode,
    Operation,
    Result,
    SetData,
    Stat,
    shares,
)


def shares_with_notes(
    operations: Iterable[Operation],
    tree: MetadataTree,
    each: Sequence[Operation] = (),
    assignments: Mapping[str, int] | None = None,
) -> Iterator[list[Operation]]:
    """Divides operations, in their order, into parts that each fit one multi, as `tree.shares`
    does. A part that writes partition states ends with its note. `assignments`: versions of the
    assignments of topics; a part that writes states of one of them checks its version."""
    limits = tree.limits
    if tree.is_shared:  # note and checks are each shorter than the paths and states of a part
        parts = 2 if assignments else 1
        limits = replace(
            limits,
            multi_operations_max=(limits.multi_operations_max - 1) // parts,
            multi_bytes_max=limits.multi_bytes_max // (parts + 1),
        )
    for part in shares(operations, limits, each):
        checks = _checks(part, assignments or {})
        yield [*part, *checks, *_note(part)] if tree.is_shared else [*part, *checks]


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


def written_states(
    operations: Sequence[Operation], results: Sequence[Result], state: ClusterState
) -> Iterator[PartitionUpdate]:
    """Yields the partition states that a multi has set. `state`: has their topics."""
    for operation, stat in zip(operations, results, strict=True):
        place = znodes.partition_of_state(operation.path)
        if place is None or not isinstance(operation, SetData) or not isinstance(stat, Stat):
            continue
        topic = state.topics[place[0]]
        now = znodes.PartitionState.decode(operation.data)
        yield PartitionUpdate(topic.name, topic.topic_id, place[1], now, stat.version, stat.mzxid)


def _checks(part: Sequence[Operation], assignments: Mapping[str, int]) -> list[Operation]:
    names = dict.fromkeys(
        place[0] for row in part if (place := znodes.partition_of_state(row.path)) is not None
    )
    return [
        CheckVersion(znodes.topic_path(name), assignments[name])
        for name in names
        if name in assignments
    ]


def _note(part: Sequence[Operation]) -> list[Operation]:
    written = [row.path for row in part if isinstance(row, CreateNode | SetData)]
    partitions = [found for path in written if (found := znodes.partition_of_state(path))]
    if not partitions:
        return []
    data = znodes.encode_partitions(partitions)
    return [CreateNode(znodes.ISR_CHANGE_PREFIX, data, sequence=True)]
