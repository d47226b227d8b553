"""The objects that handlers may use: one frozen record for each family of APIs.

A handler's module names its record as `CONTEXT`, and its handler takes a `Call` of that record. The
node makes each record once (stages/serving.py). They are NamedTuples and not dataclasses, because
each start creates these classes: one takes 0.4 ms instead of 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from barnabas.api.later import Later
from barnabas.wire import Struct

if TYPE_CHECKING:
    from barnabas.cext.network.request_queue import PendingRequest
    from barnabas.config import BrokerConfig, DynamicConfig, TopicConfig
    from barnabas.controller.auto_creation import AutoTopicCreation
    from barnabas.controller.client_quotas import ClientQuotas
    from barnabas.controller.config_changes import ConfigChanges
    from barnabas.controller.controller_role import ControllerRole
    from barnabas.controller.delegation_tokens import DelegationTokenChanges
    from barnabas.controller.elections import Elections
    from barnabas.controller.entity_configs import EntityConfigs
    from barnabas.controller.features import Features
    from barnabas.controller.isr_requests import IsrRequests
    from barnabas.controller.partition_growth import PartitionGrowth
    from barnabas.controller.reassignments import Reassignments
    from barnabas.controller.topic_deletion import TopicDeletion
    from barnabas.controller.topics import TopicController
    from barnabas.controller.user_credentials import UserCredentials
    from barnabas.coordinator.groups.administration import GroupAdministration
    from barnabas.coordinator.groups.coordinator import GroupCoordinator
    from barnabas.coordinator.groups.tree_offsets import TreeOffsets
    from barnabas.coordinator.journal import CoordinatorLog
    from barnabas.coordinator.share.lazy import LazyShare
    from barnabas.coordinator.streams.streams_heartbeats import StreamsHeartbeats
    from barnabas.coordinator.transactions.administration import TransactionAdministration
    from barnabas.coordinator.transactions.coordinator import TransactionCoordinator
    from barnabas.coordinator.transactions.producer_ids import ProducerIds
    from barnabas.coordinator.txn_markers import TransactionMarkers
    from barnabas.metadata.cluster_state import ClusterState, PartitionUpdate
    from barnabas.metadata.znodes import ProducerIdBlock
    from barnabas.security.logins import Logins
    from barnabas.security.principal import BuildPrincipal
    from barnabas.server.alter_log_dirs import AlterLogDirs
    from barnabas.server.clock import Clock
    from barnabas.server.replica_manager import ReplicaManager
    from barnabas.storage.checkpoint_writer import CheckpointWriter
    from barnabas.storage.log_manager import LogManager

    Cluster = Callable[[], ClusterState]  # returns the present state, an immutable snapshot
    ConfigOfTopic = Callable[[Mapping[str, str]], TopicConfig]  # takes a topic's own settings


class LoginContext(NamedTuple):
    """Logins of clients."""

    logins: Callable[[], Logins]
    clock: Clock
    after: Callable[[int, Callable[[], object]], object]  # calls it in so many ms
    delay_ms: int  # connection.failed.authentication.delay.ms
    failed: Callable[[str, int, str], object]  # host, port and why: for the log
    build_principal: BuildPrincipal | None  # None: the principal is the user that logged in

    def delayed(self, answer: Struct) -> Later:
        """Returns the answer to a failed login, which is sent after `delay_ms`."""
        later = Later()
        self.after(self.delay_ms, lambda: later.settle(answer))
        return later


class UserContext(NamedTuple):
    """Users and their SCRAM credentials."""

    cluster: Cluster
    users: Callable[[], UserCredentials]


class QuotaContext(NamedTuple):
    """Client quotas."""

    cluster: Cluster
    quotas: Callable[[], ClientQuotas]


class TokenContext(NamedTuple):
    """Delegation tokens."""

    tokens: Callable[[], DelegationTokenChanges | None]  # None where they are off


class NoContext(NamedTuple):
    """For an API that native handlers answer on the network threads."""


class VersionContext(NamedTuple):
    """API versions and features."""

    api_versions: tuple[tuple[int, int, int], ...]  # (key, first, last) as ApiVersions lists them
    features: Features


class FeatureContext(NamedTuple):
    """Features."""

    features: Features


class MetadataContext(NamedTuple):
    """Brokers, topics and their leaders."""

    node_id: int
    cluster_id: str
    cluster: Cluster
    config: BrokerConfig
    dynamic: DynamicConfig
    auto_creation: AutoTopicCreation
    replicas: ReplicaManager
    last_commit: Callable[[], int]  # number of the metadata store's last commit
    wall_ms: Callable[[], int]
    # Returns what counts partitions against the quota of a client when its request is answered.
    charge_later: Callable[[PendingRequest], Callable[[int], object]]


class ControllerContext(NamedTuple):
    """Leaders and replicas of partitions, which the controller chooses."""

    cluster: Cluster
    controller_role: ControllerRole
    elections: Callable[[], Elections]
    reassignments: Callable[[], Reassignments]
    isr_requests: Callable[[], IsrRequests]
    producer_ids: Callable[[int], ProducerIdBlock]  # the next block, for a broker


class ReplicaContext(NamedTuple):
    """The replicas of this node, for the requests of the controller."""

    node_id: int
    cluster: Cluster
    apply_updates: Callable[[Iterable[PartitionUpdate], bool], ClusterState]
    refresh_topics: Callable[[Iterable[str]], ClusterState]
    replicas: ReplicaManager


class FindContext(NamedTuple):
    """The cluster and the coordinators' logs, to find the broker that coordinates an id."""

    cluster: Cluster
    journals: Mapping[int, CoordinatorLog]  # by FindCoordinator's key type


class TopicContext(NamedTuple):
    """Topics and numbers of partitions."""

    cluster: Cluster
    dynamic: DynamicConfig
    controller_role: ControllerRole
    topics: TopicController
    deletion: TopicDeletion
    growth: PartitionGrowth
    config_of_topic: ConfigOfTopic
    # Counts so many created or deleted partitions; in strict versions it raises
    # ThrottlingQuotaExceeded.
    charge: Callable[[PendingRequest, bool, int], object]


class ConfigContext(NamedTuple):
    """Configurations of topics, brokers, groups and client metrics."""

    node_id: int
    cluster: Cluster
    dynamic: DynamicConfig
    configs: ConfigChanges
    entities: EntityConfigs
    config_of_topic: ConfigOfTopic


class PartitionContext(NamedTuple):
    """The logs of the partitions that this node leads."""

    cluster: Cluster
    config: BrokerConfig
    replicas: ReplicaManager
    logs: LogManager
    checkpoints: CheckpointWriter
    config_of_topic: ConfigOfTopic
    log_dir_moves: Callable[[], AlterLogDirs]


class GroupContext(NamedTuple):
    """Groups of both protocols and their offsets."""

    cluster: Cluster
    config: BrokerConfig
    features: Features
    groups: GroupCoordinator
    administration: GroupAdministration
    tree_offsets: TreeOffsets
    wall_ms: Callable[[], int]


class StreamsContext(NamedTuple):
    """Streams groups, and the creation of their internal topics."""

    cluster: Cluster
    config: BrokerConfig
    features: Features
    streams: Callable[[], StreamsHeartbeats]
    auto_creation: AutoTopicCreation
    # Returns what counts partitions against the quota of a client when its request is answered.
    charge_later: Callable[[PendingRequest], Callable[[int], object]]


class TransactionContext(NamedTuple):
    """Transactions, producer ids, and the offsets that belong to transactions."""

    cluster: Cluster
    replicas: ReplicaManager
    groups: GroupCoordinator
    producer_ids: ProducerIds
    transactions: TransactionCoordinator
    administration: TransactionAdministration
    markers: TransactionMarkers
    wall_ms: Callable[[], int]


class ShareContext(NamedTuple):
    """Share groups and their state."""

    cluster: Cluster
    share: LazyShare
