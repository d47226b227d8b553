"""Dead letters (KIP-1191): records that a group gave up are written to the topic that it names.

The group's `errors.deadletterqueue.topic.name` names the topic, which must begin with the broker's
`errors.deadletterqueue.topic.name.prefix` and have `errors.deadletterqueue.group.enable`. The
writer creates a missing topic if `errors.deadletterqueue.auto.create.topics.enable` is true. A
letter goes to the partition with the same index where it exists; when another broker leads that, in
a Produce request. Its headers name its origin:

    __dlq.errors.topic  .partition  .offset  .group  .delivery.count  .message

With `errors.deadletterqueue.copy.record.enable` the letter also has the record's key, value and
headers, if the log still has the record and it fits. The writer calls `done` when the letters are
durable, or with the error that prevents the write; the record is archived in both cases. A write
that fails with a temporary error is tried TRIES times. After such an error, or a crash in between,
letters may be written again.

One thread writes the letters in the order of the requests. Limit: LETTERS_MAX waiting ranges.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from barnabas.cext.log.log_handle import LogError
from barnabas.cext.memory.threads import start_when_allowed
from barnabas.cext.partition.partitions import PartitionHandle
from barnabas.cext.record.records import CorruptRecords, Record
from barnabas.client.connection import Connection
from barnabas.client.failures import ClientError
from barnabas.config import TopicConfig
from barnabas.coordinator.journal import Done
from barnabas.coordinator.share.share_partition import StateBatch
from barnabas.errors import (
    InvalidConfig,
    KafkaError,
    KafkaStorageError,
    NetworkException,
    NotLeaderOrFollower,
    error_of,
)
from barnabas.metadata.cluster_state import ClusterState
from barnabas.server.inter_broker import Reconnecting
from barnabas.wire import request
from barnabas.wire.batches import decode_batches, encode_batch

log = logging.getLogger("barnabas.share")

LETTERS_MAX = 10_000
BATCH_RECORDS_MAX = 500
BATCH_BYTES_MAX = 512 << 10
OVERHEAD_BYTES = 512  # the size of a letter's headers
READ_BYTES = 1 << 20
DECOMPRESSED_BYTES_MAX = 64 << 20
COMMIT_TIMEOUT_MS = 30_000
TRIES = 5
RETRY_S = 0.1  # doubled each time
PRODUCE = 0
BATCHES_FROM = 3  # the first version of Produce with record batches
OF_ALL_REPLICAS = -1
REJECTED = "Offset rejected by client."
DELIVERED_TOO_OFTEN = "Offset delivery count exceeded the threshold."


class Letters(NamedTuple):
    """A range of offsets whose letters wait to be written, and the group's settings."""

    group_id: str
    topic: str
    partition: int
    rows: StateBatch
    rejected: bool
    to_topic: str
    copies: bool
    done: Done


class Replicas(Protocol):
    """The part of the replica manager that this module uses."""

    def partition(self, topic: str, index: int) -> PartitionHandle: ...
    def topic_config(self, name: str) -> TopicConfig: ...


class _Target(Protocol):
    """The partition that gets letters. Both methods raise KafkaError or LogError."""

    def append(self, batch: bytes) -> None: ...
    def commit(self) -> None: ...


class _Here(NamedTuple):
    """A partition that this broker leads."""

    handle: PartitionHandle

    def append(self, batch: bytes) -> None:
        found = self.handle.log
        if found is None:
            raise KafkaStorageError()
        found.append(bytearray(batch), leader_epoch=self.handle.leader_epoch)

    def commit(self) -> None:
        self.handle.appended(wanted=True)
        if not self.handle.commit(COMMIT_TIMEOUT_MS):
            raise KafkaStorageError()


class _There(NamedTuple):
    """A partition that another broker leads."""

    connection: Reconnecting
    topic: str
    partition: int

    def append(self, batch: bytes) -> None:
        message = request(PRODUCE)
        row = message.struct("topicData.partitionData")(index=self.partition, records=batch)
        topic = message.struct("topicData")(name=self.topic, partitionData=[row])
        asked = message.cls(acks=OF_ALL_REPLICAS, timeoutMs=COMMIT_TIMEOUT_MS, topicData=[topic])
        try:
            answer = self.connection.call(PRODUCE, asked, low=BATCHES_FROM)
        except ClientError as error:
            raise NetworkException(str(error)) from error
        code = answer.responses[0].partitionResponses[0].errorCode
        if code:
            raise error_of(code)()

    def commit(self) -> None:
        """Does nothing: the answers came when the letters were durable."""


class DeadLetters:
    """The writer of dead letters of one broker."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        cluster: Callable[[], ClusterState],
        make_topic: Callable[[str], object],
        prefix: Callable[[], str],
        makes_topics: Callable[[], bool],
        wall_ms: Callable[[], int],
        connect: Callable[[int], Connection] | None,
    ) -> None:
        """`connect` connects to another broker and raises ClientError; None: a single node."""
        self._connect = connect
        self._connections: dict[int, Reconnecting] = {}  # used by the writer's thread
        self._replicas = replicas
        self._cluster = cluster
        self._make_topic = make_topic
        self._prefix = prefix
        self._makes_topics = makes_topics
        self._wall_ms = wall_ms
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting: deque[Letters] = deque()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self.written_records = 0

    def send(self, letters: Letters) -> None:
        """Queues a range. The writer's thread calls `done`. If the broker stops first, `done` is
        not called and the range is sent again after the next start."""
        with self._lock:
            full = len(self._waiting) >= LETTERS_MAX
            if not full and not self._stopping:
                self._waiting.append(letters)
                if self._thread is None:
                    self._thread = start_when_allowed(self._run, "dead-letters")
                self._changed.notify()
        if full:
            log.error("%d ranges of dead letters wait; dropping further ones", LETTERS_MAX)
            letters.done(KafkaStorageError())

    def stop(self) -> None:
        """Ends the writer's thread."""
        with self._lock:
            self._stopping = True
            self._changed.notify()
            thread = self._thread
        for connection in list(self._connections.values()):
            connection.interrupt()
        if thread is not None:
            thread.join()
        for connection in self._connections.values():
            connection.close()

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._waiting and not self._stopping:
                    self._changed.wait()
                if self._stopping:
                    return
                letters = self._waiting.popleft()
            error: KafkaError | None = None
            for tried in range(1, TRIES + 1):
                error = self._write(letters)
                if error is None or not error.retriable or tried == TRIES:
                    break
                with self._lock:
                    if self._changed.wait_for(lambda: self._stopping, RETRY_S * 2**tried):
                        return
            if error is not None:
                log.error(
                    "cannot copy dead letters, offsets %d-%d of %s-%d, of group %s to %s: %s",
                    letters.rows.first, letters.rows.last, letters.topic, letters.partition,
                    letters.group_id, letters.to_topic, error,
                )  # fmt: skip
            try:
                letters.done(error)
            except Exception:
                log.exception("copying dead letters of group %s failed", letters.group_id)

    def _write(self, letters: Letters) -> KafkaError | None:
        """Writes letters and waits until they are durable. Returns the error."""
        try:
            count = self._partition_count(letters.to_topic)
            self._write_to(letters, letters.partition % count)
        except KafkaError as error:
            return error
        except LogError as error:
            return error_of(error.code)(str(error))
        return None

    def _write_to(self, letters: Letters, index: int) -> None:
        target = self._target(letters.to_topic, index)
        size_max = min(
            BATCH_BYTES_MAX,
            self._replicas.topic_config(letters.to_topic).integer("max.message.bytes") - 100,
        )
        batch: list[Record] = []
        size_bytes = 0
        for offset, found in self._records(letters):
            letter = self._letter(letters, offset, found, size_max)
            grown = _size_of(letter)
            if batch and (len(batch) >= BATCH_RECORDS_MAX or size_bytes + grown > size_max):
                self._append(target, batch)
                batch, size_bytes = [], 0
            batch.append(letter)
            size_bytes += grown
        if batch:
            self._append(target, batch)
        target.commit()

    def _append(self, target: _Target, batch: list[Record]) -> None:
        target.append(encode_batch(batch))
        self.written_records += len(batch)

    def _target(self, topic: str, index: int) -> _Target:
        try:
            return _Here(self._replicas.partition(topic, index))
        except NotLeaderOrFollower:
            state = self._cluster()
            found = state.partition(topic, index)
            leader = -1 if found is None or found.state is None else found.state.leader
            if self._connect is None or leader not in state.brokers:
                raise
        connection = self._connections.get(leader)
        if connection is None:
            connection = self._connections[leader] = Reconnecting(leader, self._connect, log)
        return _There(connection, topic, index)

    def _partition_count(self, name: str) -> int:
        """Returns the partition count of the topic, which this method creates if necessary. Raises
        KafkaError for a topic that must not be used."""
        if self._cluster().topic(name) is None:
            if not self._makes_topics():
                raise InvalidConfig("the topic does not exist, and auto-creation is off")
            if not name.startswith(self._prefix()):
                raise InvalidConfig(f"the topic's name does not begin with {self._prefix()}")
            self._make_topic(name)
        topic = self._cluster().topic(name)
        if topic is None or topic.deleting:
            raise InvalidConfig("the topic does not exist")
        if not self._replicas.topic_config(name).boolean("errors.deadletterqueue.group.enable"):
            raise InvalidConfig("errors.deadletterqueue.group.enable of the topic is false")
        return len(topic.partitions)

    def _letter(self, letters: Letters, offset: int, found: Record | None, size_max: int) -> Record:
        headers = [
            ("__dlq.errors.topic", letters.topic.encode()),
            ("__dlq.errors.partition", b"%d" % letters.partition),
            ("__dlq.errors.offset", b"%d" % offset),
            ("__dlq.errors.group", letters.group_id.encode()),
            ("__dlq.errors.delivery.count", b"%d" % letters.rows.deliveries),
            (
                "__dlq.errors.message",
                (REJECTED if letters.rejected else DELIVERED_TOO_OFTEN).encode(),
            ),
        ]
        now_ms = self._wall_ms()
        if found is not None:
            whole = Record(
                found.value, found.key, timestamp=now_ms, headers=[*found.headers, *headers]
            )
            if _size_of(whole) <= size_max:
                return whole
        return Record(None, None, timestamp=now_ms, headers=headers)

    def _records(self, letters: Letters) -> Iterator[tuple[int, Record | None]]:
        """Yields the offsets of the range, with the records that must be copied. In a range that is
        not copied each offset counts as a record."""
        first, last = letters.rows.first, letters.rows.last
        found = self._copies(letters, first, last) if letters.copies else {}
        for offset in range(first, last + 1):
            if found and offset not in found:
                if any(row < offset for row in found) and any(row > offset for row in found):
                    continue  # compaction has removed it
            yield offset, found.get(offset)

    def _copies(self, letters: Letters, first: int, last: int) -> dict[int, Record]:
        found: dict[int, Record] = {}
        try:
            handle = self._replicas.partition(letters.topic, letters.partition)
            source, limit = handle.log, handle.high_watermark
            at = first
            while source is not None and source.start_offset <= at <= last:
                data = source.read(at, READ_BYTES, limit_offset=limit)
                if not data:
                    break
                for batch in decode_batches(
                    data, size_max=DECOMPRESSED_BYTES_MAX, partial_tail=True
                ):
                    if not batch.control:
                        found.update(
                            (row.offset, row)
                            for row in batch.records
                            if first <= row.offset <= last
                        )
                    at = max(at, batch.last_offset + 1)
        except (KafkaError, LogError, CorruptRecords) as error:
            log.warning(
                "cannot copy dead letters of %s-%d: %s", letters.topic, letters.partition, error
            )
        return found


def _size_of(record: Record) -> int:
    size = len(record.key or b"") + len(record.value or b"") + OVERHEAD_BYTES
    return size + sum(len(name) + len(value or b"") for name, value in record.headers)
