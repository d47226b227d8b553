"""The rooms below, as one object that `node` fills and handlers read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from barnabas.config import BrokerConfig, DynamicConfig, TopicConfig
from barnabas.controller.auto_creation import AutoTopicCreation
from barnabas.controller.config_changes import ConfigChanges
from barnabas.controller.entity_configs import EntityConfigs
from barnabas.controller.features import Features
from barnabas.controller.partition_growth import PartitionGrowth
from barnabas.controller.topic_deletion import TopicDeletion
from barnabas.controller.topics import TopicController
from barnabas.coordinator.groups.administration import GroupAdministration
from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.coordinator.groups.tree_offsets import TreeOffsets
from barnabas.coordinator.journal import CoordinatorLog
from barnabas.coordinator.share.door import ShareDoor
from barnabas.coordinator.transactions.administration import TransactionAdministration
from barnabas.coordinator.transactions.coordinator import TransactionCoordinator
from barnabas.coordinator.transactions.producer_ids import ProducerIds
from barnabas.coordinator.txn_markers import TransactionMarkers
from barnabas.metadata.cluster_state import ClusterState
from barnabas.server.clock import Clock
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
    auto_creation: AutoTopicCreation
    deletion: TopicDeletion
    growth: PartitionGrowth
    configs: ConfigChanges
    entities: EntityConfigs
    features: Features
    replicas: ReplicaManager
    logs: LogManager
    checkpoints: CheckpointWriter
    producer_ids: ProducerIds
    groups: GroupCoordinator
    group_administration: GroupAdministration
    tree_offsets: TreeOffsets
    share: ShareDoor
    transactions: TransactionCoordinator
    transaction_administration: TransactionAdministration
    transaction_markers: TransactionMarkers
    journals: Mapping[int, CoordinatorLog]  # by FindCoordinator's key type
    api_versions: tuple[tuple[int, int, int], ...]  # (key, first, last) as ApiVersions says it
    last_commit: Callable[[], int]  # number of the metadata store's last commit
    wall_ms: Callable[[], int]
    clock: Clock

    def config_of_topic(self, overrides: Mapping[str, str]) -> TopicConfig:
        """What a topic with these settings of its own is configured to."""
        return TopicConfig(overrides, self.dynamic)
