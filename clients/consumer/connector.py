"""ConsumerConnector: a consumer that shares topics with its group and commits offsets.

With `zookeeper.connect` the members of the group register in ZooKeeper, as in Kafka 0.7 and 0.8.
Without it they join at the group's coordinator. Everything else is the same.

A message counts as consumed when a stream has returned it. Offsets are committed when the caller
requests it, every `auto.commit.interval.ms`, and before partitions go to another member. After a
connector crashes, its group reads the uncommitted messages again.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
import uuid
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from barnabas.client.cluster import Cluster
from barnabas.client.failures import CannotConnect, ClientError
from barnabas.clients.consumer.chunks import UNKNOWN_OFFSET, ChunkQueue, PartitionInfo
from barnabas.clients.consumer.config import KAFKA, ConsumerConfig, consumer_config
from barnabas.clients.consumer.coordinator_group import CoordinatorGroup
from barnabas.clients.consumer.decoders import Decoders
from barnabas.clients.consumer.fetchers import FetcherManager
from barnabas.clients.consumer.group import Assignment, Group
from barnabas.clients.consumer.offset_stores import (
    BothStores,
    KafkaOffsets,
    OffsetStore,
    StoreFailed,
)
from barnabas.clients.consumer.requests import TopicAndPartition
from barnabas.clients.consumer.streams import KafkaStream
from barnabas.clients.consumer.subscription import STREAMS_MAX, Subscription
from barnabas.clients.consumer.topic_filter import TopicFilter
from barnabas.errors import KafkaError

log = logging.getLogger(__name__)

CLUSTER_TIMEOUT_S = 5.0  # of requests that their caller repeats
STOP_TIMEOUT_S = 30.0


class ConsumerRebalanceListener(Protocol):
    """Callbacks of a rebalance. They run on the rebalancing thread, which waits for them."""

    def before_releasing_partitions(self, owned: Mapping[str, set[int]]) -> None:
        """Called after fetching has ended and while the partitions still belong to this member. It
        is the last moment to commit."""


class ConsumerConnector:
    """A member of a group. The constructor raises InvalidConfig, and StoreFailed when ZooKeeper
    does not respond.

    A connector creates its streams once. All methods may be called from any thread. Kafka:
    kafka.javaapi.consumer.ConsumerConnector."""

    def __init__(self, config: Mapping[str, Any] | ConsumerConfig) -> None:
        made = config if isinstance(config, ConsumerConfig) else consumer_config(config)
        self.config = made
        self._streams: dict[tuple[str, int], KafkaStream] = {}
        self._has_filter = False
        self._infos: dict[TopicAndPartition, PartitionInfo] = {}
        self._has_assignment = False
        self._committed: dict[TopicAndPartition, int] = {}
        self._listener: ConsumerRebalanceListener | None = None
        self._lock = threading.RLock()  # guards the owned partitions and their commits
        self._stopped = threading.Event()
        self._committer: threading.Thread | None = None
        self._tree: Any = None
        self._decoders = Decoders(made)
        self.consumer_id = f"{made.group_id}_{made.consumer_id or _new_id()}"
        if made.has_zookeeper:
            from barnabas.clients.consumer.zookeeper_group import ZooKeeperGroup
            from barnabas.clients.consumer.zookeeper_tree import ZooKeeperTree

            self._tree = ZooKeeperTree(
                made.zookeeper_connect,
                made.group_id,
                made.zookeeper_session_timeout_ms,
                made.zookeeper_connection_timeout_ms,
                made.security,
            )
            self._group: Group = ZooKeeperGroup(
                made, self.consumer_id, self._tree, self._connect, self
            )
        else:
            self._group = CoordinatorGroup(made, self._connect, self)
        self._kafka_offsets = KafkaOffsets(
            made.group_id,
            self._connect_to_offsets,
            self._group.member,
            made.offsets_channel_backoff_ms / 1000,
        )
        self._offsets = self._store()
        self._fetchers = FetcherManager(made, self._connect)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()

    # --------------------------------------------------------------------------------- streams

    def create_message_streams(
        self,
        topic_counts: Mapping[str, int],
        key_decoder: Any = None,
        value_decoder: Any = None,
    ) -> dict[str, list[KafkaStream]]:
        """Creates streams; returns when this member has its share of the partitions.

        `topic_counts`: topic -> number of streams. Returns topic -> list of KafkaStream. Raises
        ValueError, RuntimeError for a second call, ConsumerRebalanceFailed, ClientError, KafkaError
        and StoreFailed."""
        if not topic_counts:
            raise ValueError("name at least one topic")
        for topic, count in topic_counts.items():
            _check_count(count, f"topic {topic}")
        self._begin()
        streams = {
            topic: [self._stream(key_decoder, value_decoder) for _ in range(count)]
            for topic, count in topic_counts.items()
        }
        for topic, rows in streams.items():
            self._streams |= {(topic, number): row for number, row in enumerate(rows)}
        self._join(Subscription(dict(topic_counts)))
        return streams

    def create_message_streams_by_filter(
        self,
        topic_filter: TopicFilter,
        num_streams: int = 1,
        key_decoder: Any = None,
        value_decoder: Any = None,
    ) -> list[KafkaStream]:
        """Creates `num_streams` streams over all present and future topics that a Whitelist or
        Blacklist allows. Raises as create_message_streams does."""
        _check_count(num_streams, repr(topic_filter))
        self._begin()
        self._has_filter = True
        streams = [self._stream(key_decoder, value_decoder) for _ in range(num_streams)]
        self._streams |= {("", number): row for number, row in enumerate(streams)}
        self._join(Subscription({topic_filter.regex: num_streams}, topic_filter))
        return streams

    def set_consumer_rebalance_listener(self, listener: ConsumerRebalanceListener) -> None:
        """Sets the listener. Raises RuntimeError after the streams were created."""
        if self._streams:
            raise RuntimeError("set the listener before the streams are made")
        self._listener = listener

    def _begin(self) -> None:
        if self._stopped.is_set():
            raise RuntimeError("the connector is shut down")
        if self._streams:
            raise RuntimeError("a connector makes its streams once")

    def _stream(self, key_decoder: Any, value_decoder: Any) -> KafkaStream:
        config = self.config
        timeout_ms = config.consumer_timeout_ms
        return KafkaStream(
            ChunkQueue(config.queued_max_message_chunks, self._fetchers.freed),
            None if timeout_ms < 0 else timeout_ms / 1000,
            self._decoders.pair(key_decoder, value_decoder),
        )

    def _join(self, subscription: Subscription) -> None:
        try:
            self._group.join(subscription)
        except BaseException:
            self.shutdown()
            raise
        if self.config.auto_commit_enable:
            self._committer = threading.Thread(
                target=self._commit_always, name=f"{self.config.client_id}-auto-commit", daemon=True
            )
            self._committer.start()

    # --------------------------------------------------------------------------------- offsets

    def commit_offsets(
        self,
        offsets: Mapping[Any, int] | None = None,
        retry_on_failure: bool = True,
    ) -> None:
        """Commits the positions of all streams, or `offsets`: partition -> offset of the next
        message to read. Raises ClientError, KafkaError or StoreFailed when the commit fails."""
        retries = self.config.offsets_commit_max_retries if retry_on_failure else 0
        with self._lock:
            if offsets is None:
                positions = self._positions()
            else:
                positions = {TopicAndPartition(*name): offset for name, offset in offsets.items()}
            if positions:
                self._offsets.commit(positions, retries)
                self._committed |= positions

    def positions(self) -> dict[TopicAndPartition, int]:
        """Returns partition -> offset of the next message, for each partition that this member
        owns; -1 before its first fetch."""
        with self._lock:
            return {name: info.position for name, info in self._infos.items()}

    def assigned_positions(self) -> dict[TopicAndPartition, int] | None:
        """Returns the positions, none if the group gave this member no partition; None: the group
        is assigning its partitions."""
        with self._lock:
            return self.positions() if self._has_assignment else None

    def _positions(self) -> dict[TopicAndPartition, int]:
        """Returns the positions that are not committed yet."""
        found = {name: info.position for name, info in self._infos.items()}
        return {
            name: offset
            for name, offset in found.items()
            if offset != UNKNOWN_OFFSET and offset != self._committed.get(name)
        }

    def _commit_always(self) -> None:
        while not self._stopped.wait(self.config.auto_commit_interval_ms / 1000):
            try:
                self.commit_offsets(retry_on_failure=False)
            except (ClientError, KafkaError, StoreFailed) as error:
                log.warning("group %s: cannot commit offsets: %s", self.config.group_id, error)

    def _store(self) -> OffsetStore:
        if self._tree is None:
            return self._kafka_offsets
        stores: list[OffsetStore] = [self._tree, self._kafka_offsets]
        if self.config.offsets_storage == KAFKA:
            stores.reverse()
        return BothStores(*stores) if self.config.dual_commit_enabled else stores[0]

    # ----------------------------------------------------- called by the group membership (Owner)

    def release(self, *, is_lost: bool = False) -> None:
        """Ends fetching and commits; see Owner."""
        with self._lock:
            infos = list(self._infos.values())
            self._has_assignment = False
            self._fetchers.stop(infos)
            for stream in self._streams.values():
                stream.clear()
            if not infos:
                return
            if self.config.auto_commit_enable and not is_lost:
                try:
                    self.commit_offsets()
                except (ClientError, KafkaError, StoreFailed) as error:
                    log.warning("group %s: cannot commit offsets: %s", self.config.group_id, error)
        if self._listener is not None and not is_lost:
            owned: dict[str, set[int]] = {}
            for info in infos:
                owned.setdefault(info.name.topic, set()).add(info.name.partition)
            self._listener.before_releasing_partitions(owned)
        with self._lock:
            self._infos = {}

    def take(self, assignment: Assignment) -> None:
        """Starts fetching the assigned partitions; see Owner."""
        offsets = self._offsets.fetch(assignment) if assignment else {}
        with self._lock:
            self._committed = dict(offsets)
            self._infos = {
                name: PartitionInfo(
                    name, self._stream_of(name, number).queue, offsets.get(name, UNKNOWN_OFFSET)
                )
                for name, number in assignment.items()
            }
            self._has_assignment = True
            self._fetchers.start(self._infos.values())
        log.info("%s reads %s", self.consumer_id, ", ".join(map(str, assignment)) or "nothing")

    def _stream_of(self, name: TopicAndPartition, number: int) -> KafkaStream:
        return self._streams["" if self._has_filter else name.topic, number]

    # ---------------------------------------------------------------------------------- the end

    def shutdown(self) -> None:
        """Commits (with auto.commit.enable), leaves the group and ends the streams. A second call
        does nothing. Logs failures and raises nothing."""
        with self._lock:
            if self._stopped.is_set():
                return
            self._stopped.set()
        self._group.stop()
        if self._committer is not None:
            self._committer.join(STOP_TIMEOUT_S)
        self._listener = None  # the listener is for rebalances only, as in Kafka 0.8
        self.release()
        self._group.leave()
        for stream in self._streams.values():
            stream.queue.close()
        self._fetchers.shutdown()
        self._kafka_offsets.close()
        if self._tree is not None:
            self._tree.close()
        self._decoders.close()

    # ---------------------------------------------------------------------------------- brokers

    def _connect(self) -> Cluster:
        """Connects to a broker of the settings or of ZooKeeper. Raises CannotConnect,
        StoreFailed."""
        return self._cluster(self.config.socket_timeout_ms)

    def _connect_to_offsets(self) -> Cluster:
        return self._cluster(self.config.offsets_channel_socket_timeout_ms)

    def _cluster(self, timeout_ms: int) -> Cluster:
        servers = self.config.bootstrap_servers or ",".join(self._tree.brokers())
        if not servers:
            raise CannotConnect(
                f"no brokers are registered in ZooKeeper at {self.config.zookeeper_connect}"
            )
        return Cluster(
            servers,
            client_id=self.config.client_id,
            timeout_s=CLUSTER_TIMEOUT_S,
            connect_timeout_s=timeout_ms / 1000,
            answer_timeout_s=timeout_ms / 1000,
            security=self.config.security,
        )


class Consumer:
    """Creates connectors (kafka.consumer.Consumer)."""

    @staticmethod
    def create(config: Mapping[str, Any] | ConsumerConfig) -> ConsumerConnector:
        """Returns a ConsumerConnector; raises what its constructor raises."""
        return ConsumerConnector(config)


def _check_count(count: int, what: str) -> None:
    if not 1 <= count <= STREAMS_MAX:
        raise ValueError(f"{count} streams for {what}: the number must be from 1 to {STREAMS_MAX}")


def _new_id() -> str:
    """Returns a new id of a consumer in the registry: HOST-MS-RANDOM."""
    return f"{socket.gethostname()}-{int(1000 * time.time())}-{uuid.uuid4().hex[:8]}"
