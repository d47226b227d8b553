"""The rooms below, as one object that `node` fills and handlers read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from barnabas.config import BrokerConfig, DynamicConfig, TopicConfig
from barnabas.controller.config_changes import ConfigChanges
from barnabas.controller.partition_growth import PartitionGrowth
from barnabas.controller.topic_deletion import TopicDeletion
from barnabas.controller.topics import TopicController
from barnabas.metadata.cluster_state import ClusterState
from barnabas.server.producer_ids import ProducerIds
from barnabas.server.replica_manager import ReplicaManager
from barnabas.storage.checkpoint_writer import CheckpointWriter
from barnabas.storage.log_manager import LogManager


@dataclass(slots=True)
class Rooms:
    """Everything a handler may use. One per broker."""

    node_id: int
    cluster_id: str
    config: BrokerConfig
    dynamic: DynamicConfig
    cluster: Callable[[], ClusterState]  # the state as of now; an immutable snapshot
    topics: TopicController
    deletion: TopicDeletion
    growth: PartitionGrowth
    configs: ConfigChanges
    replicas: ReplicaManager
    logs: LogManager
    checkpoints: CheckpointWriter
    producer_ids: ProducerIds
    api_versions: tuple[tuple[int, int, int], ...]  # (key, first, last) as ApiVersions says it
    wall_ms: Callable[[], int]

    def config_of_topic(self, overrides: Mapping[str, str]) -> TopicConfig:
        """What a topic with these settings of its own is configured to."""
        return TopicConfig(overrides, self.dynamic)
