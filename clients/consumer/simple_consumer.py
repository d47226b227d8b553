"""SimpleConsumer: reads partitions of one broker by offset, and stores offsets for a group.

It sends requests only to its one broker, which answers NOT_LEADER_FOR_PARTITION for a partition
that another broker leads, as in Kafka. Offsets of groups go to the group's coordinator, which that
broker looks up. It reconnects once after a lost connection, as the old consumer did. One thread at
a time may use it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Self, TypeVar

from barnabas.client.cluster import Cluster
from barnabas.client.connection import Connection
from barnabas.client.failures import ConnectionLost, NotSpokenByBroker
from barnabas.client.groups import COMMIT_HIGH, FETCH_HIGH, with_coordinator
from barnabas.client.security import Security
from barnabas.clients.consumer.messages import MessageSet
from barnabas.clients.consumer.requests import (
    EARLIEST,
    LATEST,
    FetchRequest,
    MultiFetchRequest,
    TopicAndPartition,
    by_topic,
)
from barnabas.clients.error_mapping import ErrorMapping
from barnabas.wire import Struct, request

T = TypeVar("T")
Name = TypeVar("Name", bound=tuple[str, int])  # a TopicAndPartition or any pair (topic, partition)
FETCH, LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH = 1, 2, 8, 9
FETCH_LOW = 4  # the first version with batches of format 2
CLIENT_ID = "barnabas-simple-consumer"
SO_TIMEOUT_MS = 30_000
COORDINATOR_TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = (
    50 * 1024 * 1024
)  # all partitions of a response, unless the first batch is larger
NOT_COMMITTED = -1


class FetchResponse:
    """The response to a MultiFetchRequest; iterating yields its message sets in the order of the
    request."""

    def __init__(self, sets: Mapping[TopicAndPartition, MessageSet]) -> None:
        self._sets = sets

    def message_set(self, topic: str, partition: int) -> MessageSet:
        """Returns the messages of a partition. Raises KeyError for one that was not in the
        request."""
        return self._sets[TopicAndPartition(topic, partition)]

    def error_code(self, topic: str, partition: int) -> int:
        """Returns a code of ErrorMapping; NO_ERROR when the response has the messages."""
        return self.message_set(topic, partition).error_code

    def high_watermark(self, topic: str, partition: int) -> int:
        """Returns the offset after the last message that consumers may read."""
        return self.message_set(topic, partition).high_watermark

    @property
    def has_error(self) -> bool:
        return any(row.error_code for row in self._sets.values())

    def __iter__(self) -> Iterator[MessageSet]:
        return iter(self._sets.values())

    def __len__(self) -> int:
        return len(self._sets)


class SimpleConsumer:
    """Reads the partitions of one broker. It connects with the first request.

    `so_timeout` in ms is the longest wait for a response. `buffer_size` in bytes is the socket's
    receive buffer; 0 selects the system's default. `security`: TLS and the login for the broker
    (barnabas.client.security). Methods raise CannotConnect, ConnectionLost and the other
    ClientErrors of barnabas.client; the error of a partition is in its response."""

    def __init__(
        self,
        host: str,
        port: int,
        so_timeout: int = SO_TIMEOUT_MS,
        buffer_size: int = 0,
        client_id: str = CLIENT_ID,
        security: Security | None = None,
    ) -> None:
        self.host, self.port, self.client_id = host, port, client_id
        self._security = security
        self._timeout_s = so_timeout / 1000
        self._buffer_bytes = buffer_size
        self._connection: Connection | None = None
        self._cluster: Cluster | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections; the next request opens new ones."""
        if self._connection is not None:
            self._connection.close()
        if self._cluster is not None:
            self._cluster.close()
        self._connection = self._cluster = None

    # ------------------------------------------------------------------------------- messages

    def fetch(self, asked: FetchRequest) -> MessageSet:
        """Fetches the messages of one partition from an offset on. Raises ClientError."""
        (found,) = self.multifetch([asked])
        return found

    def multifetch(self, asked: MultiFetchRequest | Iterable[FetchRequest]) -> FetchResponse:
        """Fetches several partitions with one request (fetch in 0.8, multifetch in 0.7). Raises
        ValueError, ClientError and the error of the whole response."""
        whole = asked if isinstance(asked, MultiFetchRequest) else MultiFetchRequest(tuple(asked))
        offsets = {TopicAndPartition(row.topic, row.partition): row.offset for row in whole.fetches}
        if len(offsets) < len(whole.fetches):
            raise ValueError("the request names a partition more than once")
        body = _fetch_body(whole)
        answer = self._exchange(lambda connection: connection.call(FETCH, body, low=FETCH_LOW))
        ErrorMapping.maybe_throw_exception(answer.errorCode)
        rows = {
            TopicAndPartition(topic.topic, row.partitionIndex): row
            for topic in answer.responses
            for row in topic.partitions
        }
        return FetchResponse(
            {
                name: MessageSet(
                    rows[name].records or b"",
                    offset,
                    error_code=rows[name].errorCode,
                    high_watermark=rows[name].highWatermark,
                )
                if name in rows
                else MessageSet(b"", offset, error_code=ErrorMapping.UNKNOWN)
                for name, offset in offsets.items()
            }
        )

    # -------------------------------------------------------------------------------- offsets

    def get_offsets_before(
        self, topic: str, partition: int, time: int, max_num_offsets: int = 1
    ) -> list[int]:
        """Returns at most `max_num_offsets` offsets to begin at, newest first. For `time` in ms
        since 1970 these are the base offsets of segments that began before it; for LATEST the log
        end offset and the base offsets of all segments; for EARLIEST the log start offset.

        A broker without ListOffsets version 0 (Kafka 4) returns the first message at or after the
        time, or the log end offset, and then the log start offset. Raises ValueError, ClientError
        and the error of the partition."""
        if max_num_offsets < 1:
            raise ValueError("max_num_offsets must be 1 or greater")
        try:
            body = _offsets_body(topic, partition, time, max_num_offsets)
            row = self._offsets_row(body, low=0, high=0)
            return [int(offset) for offset in row.oldStyleOffsets]
        except NotSpokenByBroker:
            pass
        found = [self._one_offset(topic, partition, time)]
        if found[0] < 0:  # no message at or after the time
            found = [self._one_offset(topic, partition, LATEST)]
        found.append(self._one_offset(topic, partition, EARLIEST))
        return list(dict.fromkeys(found))[:max_num_offsets]

    def earliest_or_latest_offset(self, topic: str, partition: int, time: int) -> int:
        """Returns the log start offset (EARLIEST) or log end offset (LATEST). Raises ValueError,
        ClientError and the error of the partition."""
        if time not in (EARLIEST, LATEST):
            raise ValueError(
                "time must be EARLIEST or LATEST; for other times see get_offsets_before"
            )
        return self._one_offset(topic, partition, time)

    def _one_offset(self, topic: str, partition: int, time: int) -> int:
        row = self._offsets_row(_offsets_body(topic, partition, time), low=1)
        return int(row.offset)

    def _offsets_row(self, body: Struct, low: int, high: int | None = None) -> Struct:
        answer = self._exchange(lambda c: c.call(LIST_OFFSETS, body, low=low, high=high))
        (row,) = (row for topic in answer.topics for row in topic.partitions)
        ErrorMapping.maybe_throw_exception(row.errorCode)
        return row

    # ---------------------------------------------------------------------- a group's offsets

    def commit_offsets(
        self, group_id: str, offsets: Mapping[Name, int], metadata: str = ""
    ) -> dict[TopicAndPartition, int]:
        """Commits offsets for a group in Kafka. Returns partition -> code of ErrorMapping.

        A coordinator answers with an error code when the group has members at that time."""
        body = commit_body(group_id, offsets, metadata=metadata)

        def step(connection: Connection) -> dict[TopicAndPartition, int]:
            answer = connection.call(OFFSET_COMMIT, body, low=2, high=COMMIT_HIGH)
            return {
                TopicAndPartition(topic.name, row.partitionIndex): row.errorCode
                for topic in answer.topics
                for row in topic.partitions
            }

        return with_coordinator(self._with_cluster(), group_id, step)

    def fetch_offsets(
        self, group_id: str, partitions: Iterable[tuple[str, int]]
    ) -> dict[TopicAndPartition, int]:
        """Returns the offsets that a group committed to Kafka; NOT_COMMITTED (-1) for partitions
        without one. Raises the error of the response."""
        asked = list(partitions)
        body = fetch_offsets_body(group_id, asked)

        def step(connection: Connection) -> dict[TopicAndPartition, int]:
            return committed_of(connection.call(OFFSET_FETCH, body, low=1, high=FETCH_HIGH))

        found = with_coordinator(self._with_cluster(), group_id, step)
        return {
            TopicAndPartition(*name): found.get(TopicAndPartition(*name), NOT_COMMITTED)
            for name in asked
        }

    # ---------------------------------------------------------------------------- connections

    def _with_cluster(self) -> Cluster:
        if self._cluster is None:
            host = f"[{self.host}]" if ":" in self.host else self.host
            self._cluster = Cluster(
                f"{host}:{self.port}",
                client_id=self.client_id,
                timeout_s=COORDINATOR_TIMEOUT_S,
                answer_timeout_s=self._timeout_s,
                security=self._security,
            )
        return self._cluster

    def _connected(self) -> tuple[Connection, bool]:
        """Returns a connection, and whether it was open before."""
        if self._connection is not None and self._connection.is_open:
            return self._connection, True
        self._connection = Connection(
            self.host,
            self.port,
            client_id=self.client_id,
            connect_timeout_s=self._timeout_s,
            answer_timeout_s=self._timeout_s,
            receive_buffer_bytes=self._buffer_bytes,
            security=self._security,
        )
        return self._connection, False

    def _exchange(self, step: Callable[[Connection], T]) -> T:
        connection, was_there = self._connected()
        try:
            return step(connection)
        except ConnectionLost:
            if not was_there:
                raise
        return step(self._connected()[0])


def _fetch_body(asked: MultiFetchRequest) -> Struct:
    message = request(FETCH)
    row = message.struct("topics.partitions")
    rows = by_topic(
        (
            (one.topic, one.partition),
            row(partition=one.partition, fetchOffset=one.offset, partitionMaxBytes=one.max_size),
        )
        for one in asked.fetches
    )
    topic_of = message.struct("topics")
    return message.cls(
        replicaId=-1,
        maxWaitMs=asked.max_wait_ms,
        minBytes=asked.min_bytes,
        maxBytes=ANSWER_BYTES_MAX,
        topics=[topic_of(topic=name, partitions=found) for name, found in rows.items()],
    )


def _offsets_body(topic: str, partition: int, time: int, max_num_offsets: int = 1) -> Struct:
    message = request(LIST_OFFSETS)
    fields = {"maxNumOffsets": max_num_offsets} if max_num_offsets > 1 else {}
    row = message.struct("topics.partitions")(partitionIndex=partition, timestamp=time, **fields)
    topics = [message.struct("topics")(name=topic, partitions=[row])]
    return message.cls(replicaId=-1, topics=topics)


def commit_body(
    group_id: str,
    offsets: Mapping[Name, int],
    *,
    member: tuple[str, int] = ("", -1),
    metadata: str = "",
) -> Struct:
    """Returns an OffsetCommit request of a member (id, generation), or one without a member."""
    message = request(OFFSET_COMMIT)
    row = message.struct("topics.partitions")
    rows = by_topic(
        (name, row(partitionIndex=name[1], committedOffset=offset, committedMetadata=metadata))
        for name, offset in offsets.items()
    )
    topic_of = message.struct("topics")
    return message.cls(
        groupId=group_id,
        memberId=member[0],
        generationIdOrMemberEpoch=member[1],
        topics=[topic_of(name=name, partitions=found) for name, found in rows.items()],
    )


def fetch_offsets_body(group_id: str, partitions: Iterable[tuple[str, int]]) -> Struct:
    """Returns an OffsetFetch request for some partitions."""
    message = request(OFFSET_FETCH)
    indexes = by_topic((name, name[1]) for name in partitions)
    topic_of = message.struct("topics")
    topics = [topic_of(name=name, partitionIndexes=found) for name, found in indexes.items()]
    return message.cls(groupId=group_id, topics=topics)


def committed_of(answer: Struct) -> dict[TopicAndPartition, int]:
    """Returns the offsets of an OffsetFetch response. Raises the error of the group or a
    partition."""
    ErrorMapping.maybe_throw_exception(answer.errorCode)
    found = {}
    for topic in answer.topics:
        for row in topic.partitions:
            ErrorMapping.maybe_throw_exception(row.errorCode)
            found[TopicAndPartition(topic.name, row.partitionIndex)] = int(row.committedOffset)
    return found
