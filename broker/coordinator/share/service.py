"""Combines the parts of this package for the handlers of share group requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.cext.partition.partitions import PartitionTable
from barnabas.cext.partition.purgatory import Watches
from barnabas.config import DynamicConfig
from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.coordinator.groups.target_assignment import Assign
from barnabas.coordinator.journal import CoordinatorLog
from barnabas.coordinator.share.closed_connections import ClosedConnections, Connection
from barnabas.coordinator.share.dead_letters import DeadLetters
from barnabas.coordinator.share.partition_ends import PartitionEnds
from barnabas.coordinator.share.persister import ClusterPersister, Persister
from barnabas.coordinator.share.sessions import ShareSessions
from barnabas.coordinator.share.share_counts import ShareCounts
from barnabas.coordinator.share.share_groups import ShareGroups
from barnabas.coordinator.share.share_offsets import ShareOffsets
from barnabas.coordinator.share.share_partitions import SharePartitions
from barnabas.coordinator.share.share_settings import ShareSettings
from barnabas.coordinator.share.share_state import ShareState
from barnabas.coordinator.share.waiting import WaitingFetches
from barnabas.coordinator.timers import Timers
from barnabas.errors import KafkaError, NotCoordinator, UnsupportedVersion
from barnabas.metadata.cluster_state import ClusterState
from barnabas.server.replica_manager import ReplicaManager
from barnabas.wire.uuids import uuid_text

if TYPE_CHECKING:
    from barnabas.client.connection import Connection as ClientConnection

PRUNE_PERIOD_MS = 300_000


class ShareService:
    """The share groups of one broker."""

    def __init__(
        self,
        *,
        node_id: int,
        table: PartitionTable,
        replicas: ReplicaManager,
        cluster: Callable[[], ClusterState],
        config: DynamicConfig,
        coordinator: GroupCoordinator,
        journal: CoordinatorLog,
        timers: Timers,
        wall_ms: Callable[[], int],
        monotonic_ns: Callable[[], int],
        make_topic: Callable[[str], object],
        assign: Assign,
        level: Callable[[], int],
        closed_connections: ClosedConnections,
        connect: Callable[[int], ClientConnection] | None,
    ) -> None:
        """`make_topic` creates a topic for dead letters. `level` returns the level of the feature
        share.version. `connect` connects to another broker; None: a single node."""
        self._level = level
        self._closed_connections = closed_connections
        integer = config.integer

        def settings(group_id: str) -> ShareSettings:
            return ShareSettings.of(cluster().config("groups", group_id), config)

        def end_of(partition: int) -> int:
            found = replicas.partition(journal.topic, partition).log
            if found is None:
                raise NotCoordinator()
            return found.end_offset

        def cut(partition: int, offset: int) -> None:
            replicas.log(journal.topic, partition).advance_log_start(offset)

        self.settings = settings
        self.counts = ShareCounts(monotonic_ns)
        self.state = ShareState(
            journal=journal,
            wall_ms=wall_ms,
            updates_max=lambda: integer("share.coordinator.snapshot.update.records.per.snapshot"),
            cut=cut,
            end_of=end_of,
            counts=self.counts,
        )
        self._remote: ClusterPersister | None = None
        if connect is not None:
            self._remote = ClusterPersister(
                node_id=node_id, state=self.state, cluster=cluster, connect=connect, timers=timers
            )
        self.persister: Persister = self._remote or self.state
        self._ends = PartitionEnds(replicas, cluster, connect, timers)
        self.sessions = ShareSessions(lambda: integer("group.share.max.share.sessions"))
        self.waiting = WaitingFetches(Watches(table), timers)
        self.letters = DeadLetters(
            replicas=replicas,
            cluster=cluster,
            make_topic=make_topic,
            prefix=lambda: config.text("errors.deadletterqueue.topic.name.prefix"),
            makes_topics=lambda: config.boolean("errors.deadletterqueue.auto.create.topics.enable"),
            wall_ms=wall_ms,
            connect=connect,
        )
        self.partitions = SharePartitions(
            node_id=node_id,
            replicas=replicas,
            cluster=cluster,
            persister=self.persister,
            timers=timers,
            waiting=self.waiting,
            letters=self.letters,
            settings=settings,
            wall_ms=wall_ms,
            counts=self.counts,
        )
        self.groups = ShareGroups(
            coordinator=coordinator,
            persister=self.persister,
            partitions=self.partitions,
            sessions=self.sessions,
            timers=timers,
            cluster=cluster,
            settings=settings,
            members_max=lambda: integer("group.share.max.size"),
            assignor=lambda: config.names("group.share.assignors")[0],
            assign=assign,
            rebalanced=self.counts.rebalanced,
        )
        self._cluster = cluster
        self._topic_ids = cluster().topics_by_id.keys()
        self._timers = timers
        self._stopping = False
        self._prune()
        self.offsets = ShareOffsets(self.groups, self.persister, self.partitions, self._ends)

    def apply(self, state: ClusterState) -> None:
        """Applies a new state of the cluster. The node calls this with each state."""
        if self._remote is not None:
            self._remote.apply(state)
        self._ends.apply(state)
        self.partitions.apply(state)
        ids = state.topics_by_id.keys()
        if self._topic_ids - ids:
            self.groups.topics_deleted(lambda topic_id: uuid_text(topic_id) in ids)
            self._forget_topics(state)
            self.counts.forget_topics(lambda name: state.topic(name) is not None)
        self._topic_ids = ids

    def check_enabled(self) -> None:
        """Raises UnsupportedVersion while the feature is switched off."""
        if self._level() < 1:
            raise UnsupportedVersion()

    def release_session(self, group_id: str, member_id: str) -> None:
        """Ends the member's session and releases its acquired records, at its last request."""
        self.sessions.end(group_id, member_id)
        self.partitions.release(group_id, member_id)
        self._group_left(group_id)

    def _group_left(self, group_id: str) -> None:
        if not self.sessions.has_group(group_id):
            self.partitions.group_left(group_id)

    def watch(self, connection: Connection) -> None:
        """Ends the sessions that began on this connection when the connection closes."""
        self._closed_connections.watch(connection, self._connection_closed)

    def _connection_closed(self, connection_id: int) -> None:
        """Ends the sessions of the connection and makes the records that their members had acquired
        available to other members at once."""
        for (group_id, member_id), places in self.sessions.connection_closed(connection_id):
            self.partitions.release(group_id, member_id)
            self.waiting.look(places)  # also ends the member's own waiting fetch
            self._group_left(group_id)

    def ensure_state_topic(self) -> None:
        """Creates the state topic if it does not exist. May wait. Raises NotCoordinator when it
        cannot be created."""
        try:
            self.state.journal.ensure()
        except KafkaError as error:
            raise NotCoordinator(str(error)) from error

    def _forget_topics(self, state: ClusterState) -> None:
        ids = state.topics_by_id.keys()
        self.state.forget_topics(lambda topic_id: uuid_text(topic_id) in ids)

    def _prune(self) -> None:
        """Deletes outdated records of the state topic, and the states of topics that were deleted
        before this node coordinated them. A timer calls it repeatedly."""
        self._forget_topics(self._cluster())
        self.state.prune()
        if not self._stopping:
            self._timers.after(PRUNE_PERIOD_MS, self._prune)

    def stop(self) -> None:
        self._stopping = True
        if self._remote is not None:
            self._remote.stop()
        self._ends.stop()
        self.waiting.stop()
        self.letters.stop()
