"""Creates topics: checks, placement, and one multi in the metadata tree.

A topic is created completely or not at all: its assignment, its configuration and the state of
every partition (leader, epoch 0, ISR) go into one multi. If that is too large for ZooKeeper, the
rest follows in more multis (new_partitions.py). The changed state of the tree reaches the nodes
that host the partitions before the caller gets its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from barnabas.config import ConfigError, DynamicConfig, check_topic
from barnabas.controller.controller_role import ControllerRole
from barnabas.controller.new_partitions import begin_partitions, partition_nodes
from barnabas.controller.placement import place
from barnabas.controller.topic_names import CLUSTER_METADATA, check_collision, check_topic_name
from barnabas.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    NotController,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import ClusterState, ClusterStateReader, Topic
from barnabas.metadata.tree import (
    BadVersion,
    CreateNode,
    MetadataTree,
    MultiFailed,
    NodeExists,
    Operation,
    SetData,
    shares,
)
from barnabas.metadata.znodes import TopicAssignment

# One multi of the embedded store can hold no more.
PARTITIONS_PER_TOPIC_MAX = 50_000
# Functions that ask the plugins. Placed takes brokers, partition count, replication factor and
# first partition, and returns the replicas, or None. CheckTopic takes a topic's name, partition
# count, replication factor and settings, and raises PolicyViolation.
Placed = Callable[[Sequence[int], int, int, int], list[tuple[int, ...]] | None]
CheckTopic = Callable[[str, int, int, Mapping[str, str]], None]
# Counts so many new partitions against a quota. Raises ThrottlingQuotaExceeded.
Charge = Callable[[int], object]
DEFAULT = -1  # a partition count or replication factor that the broker's settings decide


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A requested topic. Either `assignments` (partition: replicas) or the two numbers are given;
    without both, the broker's settings decide."""

    name: str
    partition_count: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str | None] | None = None


class TopicController:
    """Topic administration of the controller."""

    def __init__(
        self,
        tree: MetadataTree,
        reader: ClusterStateReader,
        controller_role: ControllerRole,
        config: DynamicConfig,
        random_below: Callable[[int], int],
        random_bytes: Callable[[int], bytes],
        placed: Placed = lambda *_: None,
        check: CheckTopic = lambda *_: None,
    ) -> None:
        """`placed` and `check` ask the plugins for a placement and about a new topic."""
        self._tree = tree
        self._reader = reader
        self._controller_role = controller_role
        self._config = config
        self._random_below = random_below
        self._random_bytes = random_bytes
        self._plugins_place = placed
        self._check = check

    def create(
        self,
        topic: NewTopic,
        validate_only: bool = False,
        is_own: bool = False,
        charge: Charge = lambda _count: None,
    ) -> Topic | TopicAssignment:
        """Creates one topic and returns it; with `validate_only` it creates nothing and returns the
        assignment. `is_own`: the broker creates the topic for itself, so that policies do not
        apply. A node that is not the controller creates a topic without the states of its
        partitions, and the controller then makes them. Raises the KafkaError for the answer."""
        state = self._reader.state
        check = self._controller_role.fence()
        assignment = self._assignment_of(topic, state)
        configs = self._checked_configs(topic)
        if not is_own:
            replicas = assignment.partitions
            self._check(topic.name, len(replicas), len(replicas[0]), configs)
        charge(len(assignment.partitions))
        if validate_only:
            return assignment
        operations = self._operations(topic.name, assignment, configs)
        if check is not None:
            operations += _first_states(topic.name, assignment, state)
        first, *more = shares(operations, self._tree.limits, check or ())
        try:
            self._tree.multi(first)
        except MultiFailed as failed:
            if isinstance(failed.error, NodeExists):
                raise TopicAlreadyExists(f"Topic '{topic.name}' already exists.") from failed
            if isinstance(failed.error, BadVersion):
                raise NotController() from failed
            raise
        if configs:
            self._reader.refresh_config([f"topics/{topic.name}"])
        made = self._reader.refresh_topics([topic.name]).topic(topic.name)
        if more and check is not None:  # after a crash the controller creates the remaining nodes
            begin_partitions(self._tree, self._reader, [topic.name], check)
            made = self._reader.state.topic(topic.name)
        if made is None:
            raise UnknownTopicOrPartition(f"Topic '{topic.name}' was deleted when it was made.")
        return made

    def _assignment_of(self, topic: NewTopic, state: ClusterState) -> TopicAssignment:
        check_topic_name(topic.name)
        if topic.name == CLUSTER_METADATA:
            raise InvalidRequest(f"Creation of internal topic {topic.name} is prohibited.")
        if state.topic(topic.name) is not None:
            raise TopicAlreadyExists(f"Topic '{topic.name}' already exists.")
        check_collision(topic.name, state.topics)
        if topic.assignments:
            if topic.partition_count != DEFAULT or topic.replication_factor != DEFAULT:
                raise InvalidRequest("give assignments or numbers of partitions, not both")
            placed = checked_assignments(topic.assignments, state)
        else:
            placed = dict(enumerate(self._placed(topic, state)))
        return TopicAssignment(partitions=placed, topic_id=znodes.new_uuid(self._random_bytes))

    def _placed(self, topic: NewTopic, state: ClusterState) -> list[tuple[int, ...]]:
        brokers = sorted(state.brokers)
        count, factor = topic.partition_count, topic.replication_factor
        if count == DEFAULT:
            count = self._config.integer("num.partitions")
        if factor == DEFAULT:
            factor = self._config.integer("default.replication.factor")
        if not 1 <= count <= PARTITIONS_PER_TOPIC_MAX:
            raise InvalidPartitions(f"a topic has 1 to {PARTITIONS_PER_TOPIC_MAX} partitions")
        if not 1 <= factor <= len(brokers):
            raise InvalidReplicationFactor(
                f"replication factor {factor}, and {len(brokers)} broker(s) to place it on"
            )
        given = self._plugins_place(brokers, count, factor, 0)
        return given or place(
            brokers, count, factor, self._random_below(len(brokers)), racks=racks_of(state)
        )

    def _checked_configs(self, topic: NewTopic) -> dict[str, str]:
        configs = topic.configs or {}
        for name, value in configs.items():
            if value is None:
                raise InvalidConfig(f"{name} has no value")
        given = {name: value for name, value in configs.items() if value is not None}
        try:
            check_topic(given, self._config)
        except ConfigError as error:
            raise InvalidConfig(" ".join(error.problems)) from error
        return given

    def _operations(
        self, name: str, assignment: TopicAssignment, configs: Mapping[str, str]
    ) -> list[Operation]:
        # As in Kafka, a topic without settings has a node too. One that a deletion left is
        # replaced.
        path, data = znodes.config_path("topics", name), znodes.encode_config(configs)
        is_left = self._tree.exists(path) is not None
        operations: list[Operation] = [SetData(path, data) if is_left else CreateNode(path, data)]
        operations.append(CreateNode(znodes.topic_path(name), assignment.encode()))
        return operations


def _first_states(name: str, assignment: TopicAssignment, state: ClusterState) -> list[Operation]:
    operations: list[Operation] = [CreateNode(znodes.partitions_path(name))]
    for partition, replicas in assignment.partitions.items():
        operations += partition_nodes(name, partition, replicas, state)
    return operations


def racks_of(state: ClusterState) -> dict[int, str]:
    """Returns the racks of the live brokers that have one."""
    rows = ((broker_id, row.registration.rack) for broker_id, row in state.brokers.items())
    return {broker_id: rack for broker_id, rack in rows if rack is not None}


def checked_assignments(
    assignments: Mapping[int, Sequence[int]], state: ClusterState
) -> dict[int, tuple[int, ...]]:
    """Checks and returns the replicas by partition. Raises InvalidReplicaAssignment unless the
    partitions are 0, 1, 2... and each has the same number of known brokers; InvalidPartitions for
    too many."""
    if sorted(assignments) != list(range(len(assignments))):
        raise InvalidReplicaAssignment("partitions are not numbered 0, 1, 2, ... without a gap")
    if len(assignments) > PARTITIONS_PER_TOPIC_MAX:
        raise InvalidPartitions(f"a topic has 1 to {PARTITIONS_PER_TOPIC_MAX} partitions")
    sizes = {len(replicas) for replicas in assignments.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise InvalidReplicaAssignment("every partition has the same number of replicas, 1 or more")
    for partition, replicas in assignments.items():
        if len(set(replicas)) != len(replicas):
            raise InvalidReplicaAssignment(f"partition {partition} names a broker more than once")
        unknown = [broker for broker in replicas if broker not in state.brokers]
        if unknown:
            raise InvalidReplicaAssignment(f"partition {partition} names unknown brokers {unknown}")
    return {partition: tuple(assignments[partition]) for partition in sorted(assignments)}
