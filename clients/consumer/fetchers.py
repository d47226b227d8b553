"""Fetcher threads: `num.consumer.fetchers` for each broker that leads partitions of this consumer,
and one thread that finds the leaders.

A fetcher fetches all its partitions with one request, except those whose last chunk did not fit
into its stream's queue. A partition whose leader has moved, or whose broker is down, goes back to
the leader finder, which fetches metadata every `refresh.leader.backoff.ms` until there is a leader.
For a partition without a valid offset `auto.offset.reset` defines where to begin.

Limits: for each partition one chunk beside its queue, of at most fetch.message.max.bytes or one
batch; ANSWER_BYTES_MAX for each response. Kafka: ConsumerFetcherManager.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from barnabas.cext.record.records import CorruptRecords
from barnabas.client.cluster import Broker, Cluster
from barnabas.client.connection import Connection
from barnabas.client.failures import ClientError, ProtocolViolation, raise_for
from barnabas.clients.consumer.chunks import UNKNOWN_OFFSET, Chunk, PartitionInfo
from barnabas.clients.consumer.config import SMALLEST, ConsumerConfig
from barnabas.clients.consumer.messages import BATCH_BYTES_MAX
from barnabas.clients.consumer.offset_stores import StoreFailed
from barnabas.clients.consumer.requests import EARLIEST, LATEST, TopicAndPartition, by_topic
from barnabas.clients.error_mapping import InvalidMessageException
from barnabas.errors import KafkaError, OffsetOutOfRange, error_of
from barnabas.wire import Struct, request
from barnabas.wire.batches import decode_batches

log = logging.getLogger(__name__)

FETCH, LIST_OFFSETS = 1, 2
FETCH_LOW, OFFSETS_LOW = 4, 1
ANSWER_BYTES_MAX = 50 * 1024 * 1024
# While the queue of a partition is full, a fetch of the others waits no longer than this.
HURRY_MS = 10
STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class FetcherKey:
    node_id: int
    index: int


class FetcherManager:
    """All fetchers of a connector. `connect` returns a Cluster for the leader finder."""

    def __init__(self, config: ConsumerConfig, connect: Callable[[], Cluster]) -> None:
        self._config = config
        self._connect = connect
        self._lock = threading.Condition()
        self._leaderless: dict[TopicAndPartition, PartitionInfo] = {}
        self._fetchers: dict[FetcherKey, Fetcher] = {}
        self._stopped = False
        self._finder = threading.Thread(
            target=self._find_leaders, name=f"{config.client_id}-leader-finder", daemon=True
        )
        self._finder.start()

    def start(self, infos: Iterable[PartitionInfo]) -> None:
        """Starts fetching partitions."""
        with self._lock:
            self._leaderless |= {info.name: info for info in infos}
            self._lock.notify_all()

    def stop(self, infos: Iterable[PartitionInfo]) -> None:
        """Stops fetching all partitions; after this no chunk of them goes into a queue."""
        for info in infos:
            info.is_over = (
                True  # first, because some may be on their way from a fetcher to the leader finder
            )
        with self._lock:
            self._leaderless.clear()
            fetchers = list(self._fetchers.values())
        for fetcher in fetchers:
            fetcher.drop_all()

    def shutdown(self) -> None:
        """Ends the threads."""
        with self._lock:
            self._stopped = True
            self._lock.notify_all()
        for fetcher in self._fetchers.values():
            fetcher.shutdown()
        self._finder.join(STOP_TIMEOUT_S)

    def freed(self) -> None:
        """Called when a queue is no longer full: wakes the fetchers."""
        for fetcher in list(self._fetchers.values()):
            fetcher.wake()

    def give_back(self, infos: Iterable[PartitionInfo]) -> None:
        """Returns partitions that a fetcher can no longer fetch to the leader finder."""
        with self._lock:
            self._leaderless |= {info.name: info for info in infos if not info.is_over}
            self._lock.notify_all()

    # -------------------------------------------------------------------------- leader finder

    def _find_leaders(self) -> None:
        backoff_s = self._config.refresh_leader_backoff_ms / 1000
        cluster: Cluster | None = None
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._stopped or self._leaderless)
                if self._stopped:
                    break
                topics = sorted({name.topic for name in self._leaderless})
            try:
                cluster = cluster or self._connect()
                cluster.refresh(topics)
                self._spread(cluster)
            except (ClientError, KafkaError, StoreFailed) as error:
                log.warning("cannot find the leaders of %s: %s", ", ".join(topics), error)
                if cluster is not None:
                    cluster.close()
                cluster = None  # the next Cluster looks up the brokers again
            with self._lock:
                self._lock.wait_for(lambda: self._stopped, backoff_s)
        if cluster is not None:
            cluster.close()

    def _spread(self, cluster: Cluster) -> None:
        """Gives the partitions that have leaders to the fetchers of those leaders."""
        with self._lock:
            found: dict[FetcherKey, list[PartitionInfo]] = defaultdict(list)
            for name, info in list(self._leaderless.items()):
                broker = leader_of(cluster, name)
                if info.is_over:
                    del self._leaderless[name]
                elif broker is not None and not self._stopped:
                    index = hash(name) % self._config.num_consumer_fetchers
                    found[FetcherKey(broker.node_id, index)].append(info)
                    del self._leaderless[name]
            for key, infos in found.items():
                if key not in self._fetchers:
                    self._fetchers[key] = Fetcher(self, self._config, key)
                self._fetchers[key].add(infos, cluster.brokers[key.node_id])


def leader_of(cluster: Cluster, name: TopicAndPartition) -> Broker | None:
    """Returns the leader by the cluster's metadata; None when there is none now."""
    known = cluster.known(name.topic)
    row = known.partitions.get(name.partition) if known is not None else None
    return cluster.brokers.get(row.leader) if row is not None else None


class Fetcher:
    """One thread and its connection to one broker."""

    def __init__(self, manager: FetcherManager, config: ConsumerConfig, key: FetcherKey) -> None:
        self._manager, self._config = manager, config
        self._changed = threading.Condition(threading.RLock())
        self._infos: dict[TopicAndPartition, PartitionInfo] = {}
        self._broker: Broker | None = None
        self._connection: Connection | None = None
        self._stopped = False
        self._thread = threading.Thread(
            target=self._run,
            name=f"{config.client_id}-fetcher-{key.node_id}-{key.index}",
            daemon=True,
        )
        self._thread.start()

    def add(self, infos: Iterable[PartitionInfo], broker: Broker) -> None:
        """Adds partitions to fetch, and sets the address of their leader."""
        with self._changed:
            self._broker = broker
            self._infos |= {info.name: info for info in infos if not info.is_over}
            self._changed.notify()

    def drop_all(self) -> None:
        """Stops fetching all partitions."""
        with self._changed:
            self._infos.clear()

    def wake(self) -> None:
        """Wakes the thread, which looks for partitions to fetch."""
        with self._changed:
            self._changed.notify()

    def shutdown(self) -> None:
        """Ends the thread, within STOP_TIMEOUT_S."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
            if self._connection is not None:
                self._connection.interrupt()
        self._thread.join(STOP_TIMEOUT_S)

    # -------------------------------------------------------------------------------- the loop

    def _run(self) -> None:
        while True:
            with self._changed:
                wanted, is_held_up = self._wanted()
                while not wanted and not self._stopped:
                    self._changed.wait()
                    wanted, is_held_up = self._wanted()
                if self._stopped:
                    break
                broker = self._broker
            assert broker is not None
            try:
                connection = self._connected(broker)
                self._find_offsets(connection, wanted)
                self._fetch(connection, wanted, is_held_up)
            except (ClientError, KafkaError) as error:
                if not self._stopped:
                    log.warning("cannot fetch from %s:%d: %s", broker.host, broker.port, error)
                self._lose_all()
        if self._connection is not None:
            self._connection.close()

    def _wanted(self) -> tuple[list[PartitionInfo], bool]:
        """Returns the partitions to fetch, and whether a full queue excludes some."""
        wanted, is_held_up = [], False
        for info in list(self._infos.values()):
            if info.is_over:
                del self._infos[info.name]
                continue
            if info.waiting is not None:
                if not info.queue.offer(info.waiting):
                    is_held_up = True
                    continue
                if info.waiting.error is not None:
                    del self._infos[info.name]  # its stream has the error; fetching ends
                    continue
                info.waiting = None
            wanted.append(info)
        return wanted, is_held_up

    def _connected(self, broker: Broker) -> Connection:
        found = self._connection
        if found is not None and found.is_open:
            if (found.host, found.port) == (broker.host, broker.port):
                return found
            found.close()
        timeout_s = self._config.socket_timeout_ms / 1000
        made = Connection(
            broker.host,
            broker.port,
            client_id=self._config.client_id,
            connect_timeout_s=timeout_s,
            answer_timeout_s=timeout_s + self._config.fetch_wait_max_ms / 1000,
            receive_buffer_bytes=self._config.socket_receive_buffer_bytes,
            security=self._config.security,
        )
        with self._changed:
            self._connection = made
            if self._stopped:
                made.interrupt()
        return made

    def _lose_all(self) -> None:
        if self._connection is not None:
            self._connection.close()
        with self._changed:
            infos = list(self._infos.values())
            self._infos.clear()
        self._manager.give_back(infos)

    def _lose(self, info: PartitionInfo, error: KafkaError) -> None:
        """Looks up the leader again after a retriable error; gives any other error to the
        stream."""
        if error.retriable:
            log.info("%s: %s", info.name, error)
            with self._changed:
                mine = self._infos.get(info.name) is info
                if mine:
                    del self._infos[info.name]
            if mine:
                self._manager.give_back([info])
        else:
            self._fail(info, error)

    def _fail(self, info: PartitionInfo, error: Exception) -> None:
        """Stops fetching the partition; its stream raises the error."""
        log.error("cannot fetch %s from offset %d on: %s", info.name, info.fetch_offset, error)
        failed = Chunk(info, info.fetch_offset, info.fetch_offset, error=error)
        with self._changed:
            if self._infos.get(info.name) is info and not info.is_over:
                info.waiting = failed

    # --------------------------------------------------------------------------------- offsets

    def _find_offsets(self, connection: Connection, infos: list[PartitionInfo]) -> None:
        """Sets the start of partitions without a committed offset."""
        lost = [info for info in infos if info.fetch_offset == UNKNOWN_OFFSET]
        if not lost:
            return
        time_ms = EARLIEST if self._config.auto_offset_reset == SMALLEST else LATEST
        message = request(LIST_OFFSETS)
        row = message.struct("topics.partitions")
        rows = by_topic(
            (info.name, row(partitionIndex=info.name.partition, timestamp=time_ms)) for info in lost
        )
        topic_of = message.struct("topics")
        topics = [topic_of(name=name, partitions=found) for name, found in rows.items()]
        body = message.cls(replicaId=-1, topics=topics)
        answer = connection.call(LIST_OFFSETS, body, low=OFFSETS_LOW)
        answers = {
            TopicAndPartition(topic.name, found.partitionIndex): found
            for topic in answer.topics
            for found in topic.partitions
        }
        for info in lost:
            answered = answers.get(info.name)
            if answered is None:
                raise ProtocolViolation(f"the response of {connection.address} lacks {info.name}")
            if answered.errorCode:
                self._lose(info, error_of(answered.errorCode)())
                infos.remove(info)
            else:
                info.fetch_offset = info.consumed = int(answered.offset)

    # -------------------------------------------------------------------------------- messages

    def _fetch(self, connection: Connection, infos: list[PartitionInfo], is_held_up: bool) -> None:
        if not infos:
            return
        answer = connection.call(FETCH, self._request(infos, is_held_up), low=FETCH_LOW)
        raise_for(answer.errorCode, "fetch")
        asked = {info.name: info for info in infos}
        for topic in answer.responses:
            for row in topic.partitions:
                info = asked.get(TopicAndPartition(topic.topic, row.partitionIndex))
                if info is not None:
                    self._take(info, row)

    def _request(self, infos: list[PartitionInfo], is_held_up: bool) -> Struct:
        config = self._config
        message = request(FETCH)
        row = message.struct("topics.partitions")
        size_bytes = config.fetch_message_max_bytes
        rows = by_topic(
            (
                info.name,
                row(
                    partition=info.name.partition,
                    fetchOffset=info.fetch_offset,
                    partitionMaxBytes=size_bytes,
                ),
            )
            for info in infos
        )
        wait_ms = config.fetch_wait_max_ms
        topic_of = message.struct("topics")
        return message.cls(
            replicaId=-1,
            maxWaitMs=min(wait_ms, HURRY_MS) if is_held_up else wait_ms,
            minBytes=config.fetch_min_bytes,
            maxBytes=ANSWER_BYTES_MAX,
            topics=[topic_of(topic=name, partitions=found) for name, found in rows.items()],
        )

    def _take(self, info: PartitionInfo, row: Struct) -> None:
        """Handles the response for one partition."""
        if row.errorCode == OffsetOutOfRange.code:
            log.warning(
                "%s has no offset %d: applying auto.offset.reset", info.name, info.fetch_offset
            )
            info.fetch_offset = UNKNOWN_OFFSET
            return
        if row.errorCode:
            self._lose(info, error_of(row.errorCode)())
            return
        if not row.records:
            return
        chunk = Chunk(info, info.fetch_offset, info.fetch_offset)
        data = bytes(
            row.records
        )  # otherwise a waiting chunk would keep the whole response in memory
        try:
            for batch in decode_batches(data, size_max=BATCH_BYTES_MAX, partial_tail=True):
                chunk.batches.append(batch)
                chunk.next_offset = batch.last_offset + 1
        except CorruptRecords as error:
            if not chunk.batches:
                why = f"{info.name} from {info.fetch_offset} on: {error}"
                self._fail(info, InvalidMessageException(why))
                return
        if not chunk.batches:
            return
        with self._changed:
            if self._infos.get(info.name) is info and not info.is_over:
                info.fetch_offset = chunk.next_offset
                if not info.queue.offer(chunk):
                    info.waiting = chunk
