"""The coordinators of one node, wired: groups, transactions, share groups, each with its journal.

The order of their start and stop is `node`'s; what each is, is in its room.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from barnabas.cext.coordinator.ended_transactions import EndedTransactions
from barnabas.cext.coordinator.offset_commit import OffsetCommitLane
from barnabas.cext.coordinator.transactions import TransactionLane
from barnabas.cext.memory.sys import SystemCalls
from barnabas.cext.partition.partitions import PartitionTable
from barnabas.cext.produce.transaction_check import VerifyQueue
from barnabas.config import BrokerConfig, DynamicConfig
from barnabas.controller.entity_configs import EntityConfigs
from barnabas.controller.features import Features
from barnabas.controller.internal_topics import dead_letters_topic, internal_topic
from barnabas.controller.topics import TopicController
from barnabas.coordinator.groups.coordinator import GroupCoordinator, GroupSettings
from barnabas.coordinator.journal import CoordinatorLog
from barnabas.coordinator.share.door import ShareDoor
from barnabas.coordinator.timers import Timers
from barnabas.coordinator.transactions.coordinator import (
    TransactionCoordinator,
    TransactionSettings,
)
from barnabas.coordinator.transactions.producer_ids import ProducerIds
from barnabas.coordinator.transactions.verification import Verifier
from barnabas.coordinator.txn_markers import TransactionMarkers
from barnabas.errors import TopicAlreadyExists
from barnabas.metadata.cluster_state import ClusterState, ClusterStateReader
from barnabas.server.plugins import Plugins
from barnabas.server.replica_manager import ReplicaManager
from barnabas.wire.compression import NONE
from barnabas.wire.internal import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

if TYPE_CHECKING:
    from barnabas.coordinator.groups.surroundings import NodeSurroundings
    from barnabas.coordinator.share.service import ShareService

RANDOM_TOGETHER = 64


def coordinator_lanes(
    config: BrokerConfig, table: PartitionTable
) -> tuple[TransactionLane, OffsetCommitLane | None]:
    """None where commits are compressed: then all of them, and ends of transactions, go through
    Python."""
    if config.integer("offsets.topic.compression.codec") != NONE:
        return TransactionLane(table, TRANSACTION_STATE, CONSUMER_OFFSETS, None), None
    ended = EndedTransactions()
    transactions = TransactionLane(table, TRANSACTION_STATE, CONSUMER_OFFSETS, ended)
    commits = OffsetCommitLane(
        table,
        CONSUMER_OFFSETS,
        ended,
        metadata_bytes_max=config.integer("offset.metadata.max.bytes"),
        timeout_ms=config.integer("offsets.commit.timeout.ms"),
        transactions=transactions,
    )
    return transactions, commits


class Coordinators:
    """Made when logs and topics are there; `follow` when requests may come; `stop` once."""

    def __init__(
        self,
        *,
        node_id: int,
        config: BrokerConfig,
        dynamic: DynamicConfig,
        system: SystemCalls,
        timers: Timers,
        table: PartitionTable,
        reader: ClusterStateReader,
        replicas: ReplicaManager,
        topics: TopicController,
        features: Features,
        producer_ids: ProducerIds,
        entities: EntityConfigs,
        plugins: Plugins,
        lane: OffsetCommitLane | None,
        transaction_lane: TransactionLane,
        verify: VerifyQueue,
        next_closed: Callable[[], int | None],
    ) -> None:
        self._node_id, self._config, self._dynamic = node_id, config, dynamic
        self._system, self._timers, self._table = system, timers, table
        self._reader, self._replicas, self._topics = reader, replicas, topics
        self._features, self._entities, self._plugins = features, entities, plugins
        self._next_closed = next_closed
        self._journals: list[CoordinatorLog] = []
        self.group_log = self._journal(
            CONSUMER_OFFSETS,
            codec=config.integer("offsets.topic.compression.codec"),
            load_bytes=config.integer("offsets.load.buffer.size"),
        )
        self.groups = self._made_groups(lane)
        self.transaction_log = self._journal(TRANSACTION_STATE)
        self.markers = TransactionMarkers(
            replicas, system.wall_ms, self.groups.marker_written, may_wait=self._may_wait
        )
        self.transactions = TransactionCoordinator(
            journal=self.transaction_log,
            timers=timers,
            wall_ms=system.wall_ms,
            new_producer_id=producer_ids.next,
            write_markers=self.markers.write,
            expect=partial(verify.expect, table),
            version_level=lambda: features.level("transaction.version"),
            settings=TransactionSettings.of(config.integer),
            lane=transaction_lane,
        )
        self._transaction_lane = transaction_lane
        self.transaction_log.attach(self.transactions)
        self._verifier = Verifier(verify, self.transactions).threads
        self._verifier.start()
        self.share_log = self._journal(SHARE_GROUP_STATE)
        self.share = ShareDoor(self._made_share)
        self.share_log.attach(self.share.of_states)
        self.groups.others.append(self.share)

    def follow(self) -> None:
        """From now on with the partitions that this node leads."""
        for journal in self._journals:
            self._replicas.on_applied.append(journal.apply)
            self._replicas.on_returned.append(journal.load_again)
            journal.apply(self._reader.state)
        self._tell_lane(self._reader.state)
        self._replicas.on_applied.append(self._tell_lane)
        self._replicas.on_applied.append(self.share.apply)

    def _tell_lane(self, state: ClusterState) -> None:
        """Offsets of a group become part of a transaction there too."""
        self._transaction_lane.offsets_partitions = self.group_log.partition_count

    def stop(self) -> None:
        self.share.stop()
        self._verifier.stop()
        self.markers.stop()
        for journal in self._journals:
            journal.stop()

    def _may_wait(self) -> bool:
        """Whether an append is durable only after a flush."""
        return self._table.durability != "os"

    def _journal(self, name: str, **options: int) -> CoordinatorLog:
        """It follows the partitions once it is told who replays."""

        def create() -> None:
            asked = internal_topic(name, self._dynamic, len(self._reader.state.brokers))
            assert asked is not None, name
            with contextlib.suppress(TopicAlreadyExists):
                self._topics.create(asked, is_own=True)

        journal = CoordinatorLog(
            name,
            node_id=self._node_id,
            replicas=self._replicas,
            create=create,
            wall_ms=self._system.wall_ms,
            commit_timeout_ms=lambda: self._dynamic.integer("offsets.commit.timeout.ms"),
            may_wait=self._may_wait,
            **options,
        )
        self._journals.append(journal)
        return journal

    def _made_groups(self, lane: OffsetCommitLane | None) -> GroupCoordinator:
        groups = GroupCoordinator(
            journal=self.group_log,
            timers=self._timers,
            wall_ms=self._system.wall_ms,
            new_id=RandomUuids(),
            settings=GroupSettings.of(self._config.integer),
            lane=lane,
            around=self._around,
        )
        self.group_log.attach(groups)
        return groups

    def _around(self) -> NodeSurroundings:
        """The first group of the consumer protocol is here; a start does not wait for this."""
        from barnabas.coordinator.groups.surroundings import NodeSurroundings

        return NodeSurroundings(
            config=self._config,
            dynamic=self._dynamic,
            cluster=lambda: self._reader.state,
            group_config=self._entities.group,
            assign=self._plugins.assign,
        )

    def _made_share(self) -> ShareService:
        """The first share group is here."""
        from barnabas.coordinator.share.closings import Closings
        from barnabas.coordinator.share.service import ShareService

        return ShareService(
            table=self._table,
            replicas=self._replicas,
            cluster=lambda: self._reader.state,
            config=self._dynamic,
            coordinator=self.groups,
            journal=self.share_log,
            timers=self._timers,
            wall_ms=self._system.wall_ms,
            monotonic_ns=self._system.monotonic_ns,
            make_topic=self._make_dead_letters,
            assign=self._plugins.assign,
            level=lambda: self._features.level("share.version"),
            closings=Closings(self._next_closed),
        )

    def _make_dead_letters(self, name: str) -> None:
        with contextlib.suppress(TopicAlreadyExists):
            self._topics.create(dead_letters_topic(name))


class RandomUuids:
    """Random UUIDs (version 4) without importing `uuid`; the system is asked for many at once."""

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
