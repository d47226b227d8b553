"""Writes the first state of partitions that have none, because another program created them or a
broker crashed.

`kafka-topics --zookeeper` writes only a topic's assignment; this broker does the same first when a
topic is larger than one multi. The controller gives such a topic its id, and each partition with a
live replica its nodes and its first state, in as few multis as possible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import ClusterState, ClusterStateReader, Topic
from barnabas.metadata.state_changes import shares_with_notes
from barnabas.metadata.tree import (
    BadVersion,
    CheckVersion,
    CreateNode,
    MetadataTree,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
)
from barnabas.metadata.znodes import PartitionState

ATTEMPTS_MAX = 5
KnownId = Callable[[Topic], str | None]


def partition_nodes(
    name: str, partition: int, replicas: tuple[int, ...], state: ClusterState
) -> list[Operation]:
    """Returns the operations that create a partition's nodes: its leader is the first live replica,
    the leader epoch 0."""
    alive = tuple(broker for broker in replicas if broker in state.brokers)
    first = PartitionState(
        leader=alive[0] if alive else -1,
        leader_epoch=0,
        isr=alive or replicas[:1],
        controller_epoch=state.controller_epoch,
    )
    return [
        CreateNode(znodes.partition_path(name, partition)),
        CreateNode(znodes.partition_state_path(name, partition), first.encode()),
    ]


def give_ids(
    tree: MetadataTree,
    reader: ClusterStateReader,
    known: KnownId,
    random_bytes: Callable[[int], bytes],
) -> None:
    """Gives an id to each topic without one, and stores it in the topic's assignment: the id that
    `known` finds (on disk), else a new one. When an old tool wrote an assignment without the id,
    the function writes the id back."""
    state = reader.state
    lost = [topic for topic in state.topics.values() if not topic.is_id_kept]
    for topic in [*state.without_id.values(), *lost]:
        topic_id = topic.topic_id or known(topic) or znodes.new_uuid(random_bytes)
        data = replace(topic.assignment, topic_id=topic_id).encode()
        try:
            tree.set(znodes.topic_path(topic.name), data, topic.assignment_version)
        except (BadVersion, NoNode):
            pass  # another writer has changed it: it is read and checked again
    changed = {*state.without_id, *(topic.name for topic in lost)}
    if changed:
        reader.refresh_topics(changed)


def stateless(state: ClusterState) -> list[str]:
    """Returns the topics that have a partition with a live replica and without a state."""
    return [
        topic.name
        for topic in state.topics.values()
        if not topic.deleting and _wanting(topic, state)
    ]


def _wanting(topic: Topic, state: ClusterState) -> list[int]:
    alive = state.brokers.keys()
    return [
        index
        for index, partition in topic.partitions.items()
        if partition.state is None and not alive.isdisjoint(partition.replicas)
    ]


def begin_partitions(
    tree: MetadataTree,
    reader: ClusterStateReader,
    names: Sequence[str],
    check: Sequence[CheckVersion] = (),
) -> None:
    """Creates the nodes of the partitions of these topics that have no state. Each multi contains
    `check`. Raises BadVersion when the check fails, and MetadataError."""
    for name in names:
        for _attempt in range(ATTEMPTS_MAX):
            state = reader.state
            topic = state.topic(name)
            if topic is None or topic.deleting:
                break
            operations = _operations(tree, topic, state)
            try:
                for part in shares_with_notes(operations, tree, check):
                    tree.multi(part)
            except MultiFailed as failed:
                theirs = failed.index >= len(check)
                if not (theirs and isinstance(failed.error, NodeExists | NoNode)):
                    raise failed.error from failed
                reader.refresh_topics([name])  # another broker has made some of them
                continue
            reader.refresh_topics([name])
            break


def _operations(tree: MetadataTree, topic: Topic, state: ClusterState) -> list[Operation]:
    above = znodes.partitions_path(topic.name)
    try:
        there = set(tree.children(above))
        operations: list[Operation] = []
    except NoNode:
        there, operations = set(), [CreateNode(above)]
    for index in _wanting(topic, state):
        replicas = topic.partitions[index].replicas
        nodes = partition_nodes(topic.name, index, replicas, state)
        operations += nodes[1:] if str(index) in there else nodes
    return operations
