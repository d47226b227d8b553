"""Creates the coordinators of one node: groups, transactions and share groups, each with its
journal.

Node.start and Node.stop call them in order; each coordinator's own package describes its work.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.cext.coordinator.ended_transactions import EndedTransactions
from barnabas.cext.coordinator.group_table import GroupTable
from barnabas.cext.coordinator.offset_commit import OffsetCommitHandler
from barnabas.cext.coordinator.partition_states import PartitionStates
from barnabas.cext.coordinator.transaction_handler import TransactionHandler
from barnabas.cext.coordinator.transaction_steps import TransactionSteps
from barnabas.cext.coordinator.transactional_id_queue import TransactionalIdQueue
from barnabas.cext.coordinator.transactional_ids import TransactionalIds
from barnabas.cext.memory.sys import SystemCalls
from barnabas.cext.partition.partitions import PartitionTable
from barnabas.config import BrokerConfig, DynamicConfig
from barnabas.controller.entity_configs import EntityConfigs
from barnabas.controller.features import Features
from barnabas.controller.internal_topics import dead_letters_topic, internal_topic
from barnabas.controller.topics import TopicController
from barnabas.coordinator.groups.administration import GroupAdministration
from barnabas.coordinator.groups.coordinator import GroupCoordinator, GroupSettings
from barnabas.coordinator.journal import CoordinatorLog
from barnabas.coordinator.share.lazy import LazyShare
from barnabas.coordinator.timers import Timers
from barnabas.coordinator.transactions.administration import TransactionAdministration
from barnabas.coordinator.transactions.coordinator import (
    TransactionCoordinator,
    TransactionSettings,
)
from barnabas.coordinator.transactions.producer_ids import ProducerIds
from barnabas.coordinator.txn_markers import TransactionMarkers
from barnabas.errors import (
    CoordinatorNotAvailable,
    InvalidReplicationFactor,
    TopicAlreadyExists,
)
from barnabas.metadata.cluster_state import ClusterState, ClusterStateReader
from barnabas.server.job_threads import JobThreads
from barnabas.server.replica_manager import ReplicaManager
from barnabas.wire.internal import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

if TYPE_CHECKING:
    from barnabas.client.connection import Connection
    from barnabas.coordinator.groups.group_dependencies import NodeGroupDependencies
    from barnabas.coordinator.groups.target_assignment import Assign
    from barnabas.coordinator.remote_markers import RemoteMarkers
    from barnabas.coordinator.remote_verification import RemoteVerificationSender
    from barnabas.coordinator.share.service import ShareService
    from barnabas.coordinator.streams.streams_heartbeats import StreamsHeartbeats

RANDOM_TOGETHER = 64


class CoordinatorHandlers(NamedTuple):
    """The native handlers of coordinator requests, and the state that Python shares with them."""

    transactions: TransactionHandler
    steps: TransactionSteps
    groups: GroupTable
    group_partitions: PartitionStates
    transaction_partitions: PartitionStates
    commits: OffsetCommitHandler
    id_queue: TransactionalIdQueue  # transactional ids for TransactionCoordinator.complete

    @property
    def all(self) -> list[Any]:
        """Returns the handlers in the order in which the reactor asks them."""
        return [self.transactions, self.commits]


def coordinator_handlers(config: BrokerConfig, table: PartitionTable) -> CoordinatorHandlers:
    """Creates the native handlers of coordinator requests, with the settings of `config`."""
    ended, groups = EndedTransactions(), GroupTable()
    id_queue = TransactionalIdQueue()
    group_partitions, transaction_partitions = PartitionStates(), PartitionStates()
    steps = TransactionSteps(
        TransactionalIds(table, TRANSACTION_STATE, id_queue, states=transaction_partitions),
        CONSUMER_OFFSETS,
        ended,
        retry_max_ms=config.integer("add.partitions.to.txn.retry.backoff.max.ms"),
    )
    timeout_ms = config.integer("offsets.commit.timeout.ms")
    transactions = TransactionHandler(steps, group_partitions, timeout_ms=timeout_ms)
    commits = OffsetCommitHandler(
        table,
        CONSUMER_OFFSETS,
        group_partitions,
        ended,
        groups,
        metadata_bytes_max=config.integer("offset.metadata.max.bytes"),
        timeout_ms=timeout_ms,
        transactions=steps,
    )
    return CoordinatorHandlers(
        transactions, steps, groups, group_partitions, transaction_partitions, commits, id_queue
    )


class Dependencies(NamedTuple):
    """The parts of a node that its coordinators use."""

    node_id: int
    config: BrokerConfig
    dynamic: DynamicConfig
    system: SystemCalls
    timers: Timers
    table: PartitionTable
    reader: ClusterStateReader
    replicas: ReplicaManager
    topics: TopicController
    features: Features
    entities: EntityConfigs
    producer_ids: ProducerIds
    assign: Assign
    native: CoordinatorHandlers
    next_closed: Callable[[], int | None]  # waits for a marked connection that closed: its id
    connect: Callable[[int], Connection] | None  # connects to another broker; None: a single node
    was_clean: bool  # the last stop


class Coordinators:
    """The coordinators of one node. Create this when logs and topics are open; call `follow` before
    requests come, and `stop` once."""

    def __init__(self, given: Dependencies) -> None:
        self._given = given
        self.timers = given.timers
        native, system = given.native, given.system
        self._journals: list[CoordinatorLog] = []
        self.group_log = self._journal(
            CONSUMER_OFFSETS,
            states=native.group_partitions,
            codec=given.config.integer("offsets.topic.compression.codec"),
            load_bytes=given.config.integer("offsets.load.buffer.size"),
        )
        self._streams: StreamsHeartbeats | None = None
        self._streams_lock = threading.Lock()
        self.groups = self._made_groups()
        self.group_administration = GroupAdministration(self.groups)
        self.transaction_log = self._journal(
            TRANSACTION_STATE, states=native.transaction_partitions, waits_for_commit=True
        )
        self._remote = self._remote_markers()
        self.markers = TransactionMarkers(
            given.replicas,
            system.wall_ms,
            self.groups.marker_written,
            may_wait=self._may_wait,
            remote=self._remote,
        )
        self.transactions = TransactionCoordinator(
            journal=self.transaction_log,
            timers=given.timers,
            wall_ms=system.wall_ms,
            new_producer_id=given.producer_ids.next,
            write_markers=self.markers.write,
            version_level=lambda: given.features.level("transaction.version"),
            settings=TransactionSettings.of(given.config.integer),
            steps=native.steps,
            may_have_lost=given.table.durability == "os" and not given.was_clean,
        )
        self.transaction_log.attach(self.transactions)
        self._verifications = self._remote_verifications()
        self.transaction_administration = TransactionAdministration(
            self.transactions, self.transaction_log.led_partitions
        )
        self._completions = JobThreads("complete-txns", native.id_queue, self.transactions.complete)
        self._completions.start()
        self.share_log = self._journal(SHARE_GROUP_STATE, waits_for_commit=True)
        self.share = LazyShare(self._made_share)
        self.share_log.attach(self.share.of_states)
        self.groups.others.append(self.share)

    def follow(self) -> None:
        """Loads the partitions that this node leads, now and after each new cluster state."""
        if self._remote is not None and self._verifications is not None:
            self._given.replicas.on_applied.append(self._remote.apply)
            self._given.replicas.on_applied.append(self._verifications.apply)
        for journal in self._journals:
            self._apply_from_now(journal.apply)
            self._given.replicas.on_returned.append(journal.load_again)
        self._given.replicas.on_applied.append(self.share.apply)
        self._apply_from_now(self.group_administration.apply)

    def _apply_from_now(self, apply: Callable[[ClusterState], object]) -> None:
        """Calls `apply` with the current cluster state, and with each later state after this node
        has applied it."""
        self._given.replicas.on_applied.append(apply)
        apply(self._given.reader.state)

    def stop(self) -> None:
        """Stops the coordinators, then writes and closes their journals."""
        self.share.stop()
        self._completions.stop()
        if self._verifications is not None:
            self._verifications.stop()
        self.markers.stop()
        for journal in self._journals:
            journal.stop()

    def _remote_markers(self) -> RemoteMarkers | None:
        given = self._given
        if given.connect is None:
            return None
        from barnabas.coordinator.remote_markers import RemoteMarkers

        return RemoteMarkers(given.node_id, lambda: given.reader.state, given.connect)

    def _remote_verifications(self) -> RemoteVerificationSender | None:
        given = self._given
        if given.connect is None:
            return None
        from barnabas.coordinator.remote_verification import RemoteVerificationSender

        made = RemoteVerificationSender(lambda: given.reader.state, given.connect)
        given.native.steps.ask_others(made.questions)
        return made

    def _may_wait(self) -> bool:
        """Returns whether an append becomes durable only after a flush, or after a copy to another
        broker."""
        return self._given.table.durability != "os" or self._given.connect is not None

    def _journal(self, name: str, **options: Any) -> CoordinatorLog:
        """Makes a journal, which follows its partitions after `attach` has set its coordinator."""

        def create() -> None:
            asked = internal_topic(name, self._given.dynamic, self._given.reader.state.is_shared)
            assert asked is not None, name
            try:
                self._given.topics.create(asked, is_own=True)
            except TopicAlreadyExists:
                pass
            except InvalidReplicationFactor as error:
                raise CoordinatorNotAvailable(f"{name} cannot be made yet: {error}") from error

        journal = CoordinatorLog(
            name,
            node_id=self._given.node_id,
            replicas=self._given.replicas,
            create=create,
            wall_ms=self._given.system.wall_ms,
            commit_timeout_ms=lambda: self._given.dynamic.integer("offsets.commit.timeout.ms"),
            may_wait=self._may_wait,
            **options,
        )
        self._journals.append(journal)
        return journal

    def _made_groups(self) -> GroupCoordinator:
        groups = GroupCoordinator(
            journal=self.group_log,
            timers=self._given.timers,
            wall_ms=self._given.system.wall_ms,
            new_id=RandomUuids(),
            settings=GroupSettings.of(self._given.config.integer),
            table=self._given.native.groups,
            native=self._given.native.commits,
            dependencies=self._group_dependencies,
            streams=self.streams,
        )
        self.group_log.attach(groups)
        return groups

    def _group_dependencies(self) -> NodeGroupDependencies:
        """Loads the code of the consumer protocol with the first group that uses it, so that a
        start does not load it."""
        from barnabas.coordinator.groups.group_dependencies import NodeGroupDependencies

        return NodeGroupDependencies(
            config=self._given.config,
            dynamic=self._given.dynamic,
            cluster=lambda: self._given.reader.state,
            group_config=self._given.entities.group,
            assign=self._given.assign,
        )

    def streams(self) -> StreamsHeartbeats:
        """Returns the code of streams groups, which the first use loads."""
        if self._streams is None:
            from barnabas.coordinator.streams.streams_heartbeats import StreamsHeartbeats
            from barnabas.coordinator.streams.streams_settings import NodeStreamsDependencies

            with self._streams_lock:
                if self._streams is None:
                    reader = self._given.reader
                    needed = NodeStreamsDependencies(self._given.dynamic, lambda: reader.state)
                    self._streams = StreamsHeartbeats(self.groups, needed)
        return self._streams

    def _made_share(self) -> ShareService:
        """Loads the code of share groups at the first use."""
        from barnabas.coordinator.share.closed_connections import ClosedConnections
        from barnabas.coordinator.share.service import ShareService

        return ShareService(
            node_id=self._given.node_id,
            table=self._given.table,
            replicas=self._given.replicas,
            cluster=lambda: self._given.reader.state,
            config=self._given.dynamic,
            coordinator=self.groups,
            journal=self.share_log,
            timers=self._given.timers,
            wall_ms=self._given.system.wall_ms,
            monotonic_ns=self._given.system.monotonic_ns,
            make_topic=self._make_dead_letters,
            assign=self._given.assign,
            level=lambda: self._given.features.level("share.version"),
            closed_connections=ClosedConnections(self._given.next_closed),
            connect=self._given.connect,
        )

    def _make_dead_letters(self, name: str) -> None:
        with contextlib.suppress(TopicAlreadyExists):
            self._given.topics.create(dead_letters_topic(name))


class RandomUuids:
    """Makes random UUIDs (version 4) without importing `uuid`; it reads random bytes for many at
    once."""

    def __init__(self) -> None:
        self._ready: list[str] = []

    def __call__(self) -> str:
        try:
            return self._ready.pop()
        except IndexError:
            digits = os.urandom(16 * RANDOM_TOGETHER).hex()
            self._ready += [_uuid_of(digits[at : at + 32]) for at in range(0, len(digits), 32)]
            return self()


def _uuid_of(text: str) -> str:
    variant = "89ab"[int(text[16], 16) & 3]
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"
