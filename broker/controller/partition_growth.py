"""CreatePartitions: more partitions for a topic, never fewer.

The new assignment and the nodes of the new partitions go into one multi, which names the version
of the previous assignment: of two concurrent requests one fails, and its client retries it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from barnabas.controller.controller_role import ControllerRole
from barnabas.controller.new_partitions import begin_partitions, partition_nodes
from barnabas.controller.placement import place
from barnabas.controller.topics import PARTITIONS_PER_TOPIC_MAX, Charge, Placed, racks_of
from barnabas.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    ReassignmentInProgress,
    UnknownTopicOrPartition,
)
from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import ClusterState, ClusterStateReader, Topic
from barnabas.metadata.tree import (
    CreateNode,
    MetadataTree,
    MultiFailed,
    Operation,
    SetData,
    shares,
)


class PartitionGrowth:
    """Adds partitions to topics, on one thread at a time."""

    def __init__(
        self,
        tree: MetadataTree,
        reader: ClusterStateReader,
        controller_role: ControllerRole,
        placed: Placed = lambda *_: None,
    ) -> None:
        """`placed` asks the plugins for a placement; None leaves it to the broker."""
        self._tree = tree
        self._reader = reader
        self._controller_role = controller_role
        self._plugins_place = placed
        self._lock = threading.Lock()

    def grow(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
        charge: Charge = lambda _count: None,
    ) -> None:
        """Grows a topic to `count` partitions. `assignments`: the replicas of each new partition;
        None leaves them to the broker. `validate_only` checks and changes nothing. Raises the
        KafkaError for the answer."""
        with self._lock:
            check = self._controller_role.required()
            state = self._reader.state
            topic = state.topic(name)
            if topic is None or topic.deleting:
                raise UnknownTopicOrPartition()
            if topic.assignment.adding_replicas or topic.assignment.removing_replicas:
                raise ReassignmentInProgress(
                    f"{name} is being reassigned; add partitions after that"
                )
            added = self._added(topic, count, assignments, state)
            charge(len(added))
            if validate_only:
                return
            first, *more = shares(_operations(topic, added, state), self._tree.limits, check)
            try:
                self._tree.multi(first)
            except MultiFailed as failed:
                raise failed.error from failed
            self._reader.refresh_topics([name])
            if more:
                begin_partitions(self._tree, self._reader, [name], check)

    def _added(
        self,
        topic: Topic,
        count: int,
        assignments: Sequence[Sequence[int]] | None,
        state: ClusterState,
    ) -> dict[int, tuple[int, ...]]:
        present = len(topic.partitions)
        if count == present:
            raise InvalidPartitions(f"Topic already has {present} partition(s).")
        if count < present:
            raise InvalidPartitions(
                f"The topic {topic.name} currently has {present} partition(s);"
                f" {count} would not be an increase."
            )
        if count > PARTITIONS_PER_TOPIC_MAX:
            raise InvalidPartitions(f"a topic has 1 to {PARTITIONS_PER_TOPIC_MAX} partitions")
        factor = len(topic.partitions[0].replicas) if 0 in topic.partitions else 1
        if assignments is not None:
            placed = _checked(assignments, count - present, factor, state)
        else:
            brokers = sorted(state.brokers)
            if factor > len(brokers):
                raise InvalidPartitions(
                    f"replication factor {factor}, and {len(brokers)} broker(s) to place it on"
                )
            given = self._plugins_place(brokers, count - present, factor, present)
            placed = given or place(
                brokers,
                count - present,
                factor,
                self._start(topic, brokers),
                first=present,
                racks=racks_of(state),
            )
        return dict(enumerate(placed, present))

    @staticmethod
    def _start(topic: Topic, brokers: Sequence[int]) -> int:
        """Returns the index in `brokers`, which are sorted, of partition 0's first replica: the new
        partitions continue the placement from there. When that broker is not live, the next one
        takes its place (Kafka: AdminZkClient.createNewPartitionsAssignment)."""
        first = topic.partitions[0].replicas[0] if 0 in topic.partitions else brokers[0]
        return next((index for index, broker in enumerate(brokers) if broker >= first), 0)


def _checked(
    assignments: Sequence[Sequence[int]], wanted: int, factor: int, state: ClusterState
) -> list[tuple[int, ...]]:
    if len(assignments) != wanted:
        raise InvalidReplicaAssignment(
            f"{wanted} partition(s) are added, and replicas of {len(assignments)} are given"
        )
    for replicas in assignments:
        if len(set(replicas)) != len(replicas):
            raise InvalidReplicaAssignment(f"{list(replicas)} names a broker more than once")
        unknown = [broker for broker in replicas if broker not in state.brokers]
        if unknown:
            raise InvalidReplicaAssignment(f"brokers {unknown} are not known")
        if len(replicas) != factor:
            raise InvalidReplicaAssignment(f"the topic's partitions have {factor} replica(s) each")
    return [tuple(replicas) for replicas in assignments]


def _operations(
    topic: Topic, added: dict[int, tuple[int, ...]], state: ClusterState
) -> list[Operation]:
    partitions = {index: row.replicas for index, row in topic.partitions.items()} | added
    assignment = replace(topic.assignment, partitions=partitions)
    operations: list[Operation] = [
        SetData(znodes.topic_path(topic.name), assignment.encode(), topic.assignment_version)
    ]
    if not topic.partitions:
        operations.append(CreateNode(znodes.partitions_path(topic.name)))
    for index, replicas in added.items():
        operations += partition_nodes(topic.name, index, replicas, state)
    return operations
