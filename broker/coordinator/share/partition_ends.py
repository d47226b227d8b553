"""The ends of partitions, from which the lag of a share group is counted.

The group coordinator knows the high watermark of partitions that it leads. For others it sends
ListOffsets to their leaders, one request at a time to a broker with all partitions asked for since
the last one (server/broker_queues.py). After a temporary error, as while a leader has not heard yet
that it leads, it asks again, TRIES times in all.

Limits: PARTITIONS_MAX in a request; the queue of each broker. Kafka:
NetworkPartitionMetadataClient.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol

from barnabas.cext.partition.partitions import PartitionHandle
from barnabas.client.connection import Connection
from barnabas.client.failures import ClientError
from barnabas.coordinator.share.waiting import Timers
from barnabas.errors import KafkaError, NetworkException, NotLeaderOrFollower, error_of
from barnabas.metadata.cluster_state import ClusterState
from barnabas.server.broker_queues import BrokerQueue, BrokerQueues
from barnabas.server.inter_broker import Reconnecting
from barnabas.wire import Struct, request

log = logging.getLogger("barnabas.share")

LIST_OFFSETS, BY_TIME_FROM = 2, 1  # the request, and its first version with one offset for a time
CONSUMER, LATEST, ANY_EPOCH = -1, -1, -1
PARTITIONS_MAX = 1000
TRIES = 5
RETRY_MS = 50  # doubled each time

# Called with None and the high watermark, or with the error and -1.
Answer = Callable[[KafkaError | None, int], object]


class Replicas(Protocol):
    def partition(self, topic: str, index: int) -> PartitionHandle: ...


class _Question(NamedTuple):
    topic: str
    partition: int
    answered: Answer


class PartitionEnds:
    """The high watermarks of all partitions of the cluster."""

    def __init__(
        self,
        replicas: Replicas,
        cluster: Callable[[], ClusterState],
        connect: Callable[[int], Connection] | None,
        timers: Timers,
    ) -> None:
        """`connect` connects to a broker by its id and raises ClientError; None: a single node."""
        self._replicas = replicas
        self._cluster = cluster
        self._timers = timers
        self._queues: BrokerQueues[_Question] | None = None
        if connect is not None:
            self._queues = BrokerQueues(
                "ends-at", connect, log, lambda rows: min(len(rows), PARTITIONS_MAX), _send
            )

    def find(self, topic: str, index: int, answer: Answer) -> None:
        """Calls `answer` at once, or later and on another thread."""
        self._ask(topic, index, answer, 1)

    def _ask(self, topic: str, index: int, answer: Answer, tried: int) -> None:
        def answered(error: KafkaError | None, end: int) -> None:
            if error is None or not error.retriable or self._queues is None or tried == TRIES:
                answer(error, end)
                return
            delay_ms = RETRY_MS << (tried - 1)
            self._timers.after(delay_ms, lambda: self._ask(topic, index, answer, tried + 1))

        try:
            end = self._replicas.partition(topic, index).high_watermark
        except NotLeaderOrFollower as error:
            question = _Question(topic, index, answered)
            state = self._cluster()
            found = state.partition(topic, index)
            leader = -1 if found is None or found.state is None else found.state.leader
            queues = self._queues
            if queues is None or leader not in state.brokers or not queues.put(leader, question):
                answered(error, -1)
        except KafkaError as error:
            answered(error, -1)
        else:
            answered(None, end)

    def apply(self, state: ClusterState) -> None:
        """Applies a new state of the cluster."""
        if self._queues is not None:
            self._queues.apply(state)

    def stop(self) -> None:
        if self._queues is not None:
            self._queues.stop()


def _send(_queue: BrokerQueue[_Question], connection: Reconnecting, rows: list[_Question]) -> None:
    try:
        answer = connection.call(LIST_OFFSETS, _body(rows), low=BY_TIME_FROM)
    except (ClientError, KafkaError) as error:
        for row in rows:
            row.answered(NetworkException(str(error)), -1)
        return
    told = {
        (topic.name, found.partitionIndex): found
        for topic in answer.topics
        for found in topic.partitions
    }
    for row in rows:
        found = told.get((row.topic, row.partition))
        if found is None:
            row.answered(NetworkException("the leader has not answered for the partition"), -1)
        elif found.errorCode:
            row.answered(error_of(found.errorCode)(), -1)
        else:
            row.answered(None, found.offset)


def _body(rows: list[_Question]) -> Struct:
    message = request(LIST_OFFSETS)
    topic_of, row_of = message.struct("topics"), message.struct("topics.partitions")
    topics: dict[str, set[int]] = {}
    for row in rows:
        topics.setdefault(row.topic, set()).add(row.partition)
    return message.cls(
        replicaId=CONSUMER,
        topics=[
            topic_of(
                name=name,
                partitions=[
                    row_of(partitionIndex=index, timestamp=LATEST, currentLeaderEpoch=ANY_EPOCH)
                    for index in sorted(indexes)
                ],
            )
            for name, indexes in topics.items()
        ],
    )
