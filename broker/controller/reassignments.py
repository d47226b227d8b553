"""Moves partitions to other brokers (KIP-455): begins, advances and cancels reassignments.

    begun      the assignment has the target first, then the former replicas; it lists the new ones
    (adding_replicas) and the old ones (removing_replicas). The leader gets the next leader epoch
    and the new replica list; the new replicas fetch
    done       when all target replicas are in the ISR: one multi writes the assignment without the
    old replicas, and a leader and an ISR of the target
    cancelled  the assignment is as before; the new replicas delete their logs

The tree has the whole state, so the next controller continues a reassignment. States are written
before the assignment: where one multi does not hold both, the assignment still shows what is left.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from barnabas.controller.elections import reassigned, with_replicas, without_restarted
from barnabas.errors import (
    InvalidReplicaAssignment,
    KafkaError,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import (
    ClusterState,
    ClusterStateReader,
    Partition,
    Topic,
)
from barnabas.metadata.state_changes import written_by_controller
from barnabas.metadata.tree import (
    BadVersion,
    CheckVersion,
    MetadataTree,
    Operation,
    SetData,
)
from barnabas.metadata.znodes import TopicAssignment

ATTEMPTS_MAX = 5
TOGETHER_MAX = 200  # partitions of a topic whose reassignment begins or ends in one multi

Place = tuple[str, int]
Replicas = Sequence[int] | None  # the target; None cancels


class Reassignments:
    """The reassignments of a cluster. Several threads may use it.

    Each method takes `check`, the result of ControllerRole.fence, and raises MetadataError."""

    def __init__(self, tree: MetadataTree, reader: ClusterStateReader) -> None:
        self._tree = tree
        self._reader = reader
        self._lock = threading.Lock()

    def begin(
        self, check: Sequence[CheckVersion], wanted: Mapping[Place, Replicas]
    ) -> dict[Place, KafkaError | None]:
        """Begins or cancels reassignments, and ends those that need no copy. Returns the error by
        partition, None where it was begun or cancelled."""
        outcomes: dict[Place, KafkaError | None] = {}
        by_topic: dict[str, dict[int, Replicas]] = {}
        for (name, index), replicas in wanted.items():
            by_topic.setdefault(name, {})[index] = replicas
        with self._lock:
            for name, rows in by_topic.items():
                places = list(rows.items())
                for at in range(0, len(places), TOGETHER_MAX):
                    found = self._begin_of(check, name, dict(places[at : at + TOGETHER_MAX]))
                    outcomes |= {(name, index): error for index, error in found.items()}
        self.advance(check)
        return outcomes

    def advance(self, check: Sequence[CheckVersion]) -> None:
        """Ends the reassignments whose target is in the ISR. A topic that another writer
        changes during this call is left to the next call."""
        with self._lock:
            for name in [
                topic.name for topic in self._reader.state.topics.values() if _moves(topic)
            ]:
                while operations := _ends(self._reader.state, name):
                    written = written_by_controller(operations, self._tree, check)
                    self._reader.refresh_topics([name])
                    if not written:
                        break

    def _begin_of(
        self, check: Sequence[CheckVersion], name: str, rows: Mapping[int, Replicas]
    ) -> dict[int, KafkaError | None]:
        for _attempt in range(ATTEMPTS_MAX):
            state = self._reader.state
            topic = state.topic(name)
            outcomes: dict[int, KafkaError | None] = {}
            if topic is None or topic.deleting:
                text = f"Unable to find a topic named {name}."
                return {index: UnknownTopicOrPartition(text) for index in rows}
            assignment = topic.assignment
            for index, replicas in rows.items():
                try:
                    assignment = _moved(state, topic, assignment, index, replicas)
                    outcomes[index] = None
                except KafkaError as error:
                    outcomes[index] = error
            if assignment == topic.assignment:
                return outcomes
            path = znodes.topic_path(name)
            whole = SetData(path, assignment.encode(), topic.assignment_version)
            operations = [*_next_epochs(state, topic, assignment), whole]
            written = written_by_controller(operations, self._tree, check)
            self._reader.refresh_topics([name])
            if written:
                return outcomes
        raise BadVersion(
            f"gave up after {ATTEMPTS_MAX} attempts: other brokers changed {name} at the same time"
        )


def _moves(topic: Topic) -> bool:
    return bool(topic.assignment.adding_replicas or topic.assignment.removing_replicas)


def _moved(
    state: ClusterState,
    topic: Topic,
    assignment: TopicAssignment,
    index: int,
    replicas: Replicas,
) -> TopicAssignment:
    """Returns the assignment with the reassignment of one partition begun or cancelled. Raises the
    KafkaError for the answer."""
    present = assignment.partitions.get(index)
    if present is None:
        raise UnknownTopicOrPartition(f"Unable to find partition {topic.name}:{index}.")
    adding = assignment.adding_replicas.get(index, ())
    removing = assignment.removing_replicas.get(index, ())
    origin = tuple(broker for broker in present if broker not in adding)
    if replicas is None:
        if not adding and not removing:
            raise NoReassignmentInProgress()
        kept = _needed(state, topic.partitions.get(index), origin)
        return _with(assignment, index, (*origin, *kept), (), kept)
    _check(state, replicas)
    full = (*replicas, *(broker for broker in origin if broker not in replicas))
    kept = _needed(state, topic.partitions.get(index), full)
    return _with(
        assignment,
        index,
        (*full, *kept),
        tuple(broker for broker in full if broker not in origin),
        (*(broker for broker in full if broker not in replicas), *kept),
    )


def _needed(
    state: ClusterState, partition: Partition | None, replicas: Sequence[int]
) -> tuple[int, ...]:
    """Returns the members of the ISR that stay replicas, and are removed at the end, when none of
    `replicas` could lead: without them the partition would have no leader any more."""
    if partition is None or partition.state is None:
        return ()
    known = without_restarted(partition, state)
    if with_replicas(known, replicas, state.brokers, 0) is not None:
        return ()
    return tuple(broker for broker in partition.state.isr if broker not in replicas)


def _next_epochs(
    state: ClusterState, topic: Topic, assignment: TopicAssignment
) -> Iterator[SetData]:
    """Yields the states of the partitions that get other replicas."""
    for index, partition in topic.partitions.items():
        replicas = assignment.partitions[index]
        if set(replicas) == set(partition.replicas):
            continue
        known = without_restarted(partition, state)
        after = with_replicas(known, replicas, state.brokers, state.controller_epoch)
        if after is not None:
            path = znodes.partition_state_path(topic.name, index)
            yield SetData(path, after.encode(), partition.state_version)


def _check(state: ClusterState, replicas: Sequence[int]) -> None:
    if not replicas:
        raise InvalidReplicaAssignment("The replica list is empty.")
    for broker in replicas:
        if replicas.count(broker) > 1:
            raise InvalidReplicaAssignment(f"The replica list names broker {broker} twice.")
        if broker not in state.brokers:
            raise InvalidReplicaAssignment(f"The replica list names unknown broker {broker}.")


def _with(
    assignment: TopicAssignment,
    index: int,
    replicas: tuple[int, ...],
    adding: tuple[int, ...],
    removing: tuple[int, ...],
) -> TopicAssignment:
    return replace(
        assignment,
        partitions={**assignment.partitions, index: replicas},
        adding_replicas=_put(assignment.adding_replicas, index, adding),
        removing_replicas=_put(assignment.removing_replicas, index, removing),
    )


def _put(
    table: Mapping[int, tuple[int, ...]], index: int, brokers: tuple[int, ...]
) -> dict[int, tuple[int, ...]]:
    rest = {key: value for key, value in table.items() if key != index}
    return {**rest, index: brokers} if brokers else rest


def _ends(state: ClusterState, name: str) -> list[Operation]:
    """Returns the operations that end the reassignments of a topic whose targets are in the ISR;
    none when there are none."""
    topic = state.topic(name)
    if topic is None or topic.deleting:
        return []
    assignment, states = topic.assignment, []
    for index in sorted({*assignment.adding_replicas, *assignment.removing_replicas}):
        partition = topic.partitions[index]
        removing = assignment.removing_replicas.get(index, ())
        target = tuple(broker for broker in partition.replicas if broker not in removing)
        known = without_restarted(partition, state)
        after = reassigned(known, target, state.brokers, state.controller_epoch)
        if after is None:
            continue
        assignment = _with(assignment, index, target, (), ())
        path = znodes.partition_state_path(name, index)
        states.append(SetData(path, after.encode(), partition.state_version))
        if len(states) == TOGETHER_MAX:
            break
    if not states:
        return []
    whole = SetData(znodes.topic_path(name), assignment.encode(), topic.assignment_version)
    return [*states, whole]
