"""Transactions for administrators: lists, describes and aborts them, and finds hanging ones.

A transaction hangs when a partition holds it open and no coordinator has it in progress: readers
with isolation.level=read_committed stop before it until a marker is written. Functions raise the
KafkaError of the broker's answer, and repeat requests after retriable errors.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from barnabas.client.admin import describe_cluster
from barnabas.client.cluster import Cluster
from barnabas.client.connection import Connection
from barnabas.errors import error_of
from barnabas.wire import Struct, request

FIND_COORDINATOR, WRITE_TXN_MARKERS = 10, 27
DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 61, 65, 66
TRANSACTION = 1  # kind of coordinator
SEVERAL_FROM, DURATION_FROM, PATTERN_FROM = 4, 1, 2


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction that a partition holds open: a row of DescribeProducers (61). `start_offset`:
    of its first record; `last_timestamp`: of its last batch, in ms since 1970."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp: int


def raise_for(code: int, what: str) -> None:
    """Raises the error of a code with the subject `what`; does nothing for 0."""
    if code:
        error = error_of(code)
        raise error(f"{what}: {error.meaning}")


def list_transactions(
    cluster: Cluster,
    *,
    states: Iterable[str] = (),
    producer_ids: Iterable[int] = (),
    longer_than_ms: int = -1,
    pattern: str | None = None,
) -> list[Struct]:
    """Returns the rows of every broker, sorted by id: transactionalId, producerId,
    transactionState. `states`, `producer_ids`, `longer_than_ms` (-1: all) and `pattern` (a regular
    expression, KIP-1152) are filters. Raises ValueError for an unknown state, KafkaError,
    ClientError."""
    low = PATTERN_FROM if pattern is not None else DURATION_FROM if longer_than_ms >= 0 else 0
    body = request(LIST_TRANSACTIONS).cls(
        stateFilters=list(states), producerIdFilters=list(producer_ids)
    )
    if longer_than_ms >= 0:
        body.durationFilter = longer_than_ms
    if pattern is not None:
        body.transactionalIdPattern = pattern

    def step() -> list[Struct]:
        found: list[Struct] = []
        for broker in describe_cluster(cluster).brokers:
            answer = cluster.connection_to(broker.brokerId).call(LIST_TRANSACTIONS, body, low=low)
            raise_for(answer.errorCode, "transactions")
            if answer.unknownStateFilters:
                raise ValueError(f"there is no state {', '.join(answer.unknownStateFilters)}")
            found += answer.transactionStates
        return found

    return sorted(cluster.retrying(step), key=lambda row: str(row.transactionalId))


def describe_transactions(cluster: Cluster, names: Iterable[str]) -> list[Struct]:
    """Returns the rows of DescribeTransactions, in the order of `names`. Raises
    TransactionalIdNotFound."""

    def one(name: str) -> Struct:
        body = request(DESCRIBE_TRANSACTIONS).cls(transactionalIds=[name])
        row: Struct = _coordinator(cluster, name).call(DESCRIBE_TRANSACTIONS, body)
        found: Struct = row.transactionStates[0]
        raise_for(found.errorCode, f"transactional id {name}")
        return found

    return [cluster.retrying(lambda name=name: one(name)) for name in names]  # type: ignore[misc]


def _coordinator(cluster: Cluster, name: str) -> Connection:
    body = request(FIND_COORDINATOR).cls(keyType=TRANSACTION, coordinatorKeys=[name])
    answer = cluster.any_connection().call(FIND_COORDINATOR, body, low=SEVERAL_FROM)
    row = answer.coordinators[0]
    raise_for(row.errorCode, f"the coordinator of {name}")
    return cluster.connection_to(row.nodeId)


def open_transactions(
    cluster: Cluster, topic: str, partitions: Iterable[int]
) -> Iterator[OpenTransaction]:
    """Yields the transactions that these partitions hold open, each of which stops its last stable
    offset (KIP-664). Raises UnknownTopicOrPartition, ClientError."""
    message = request(DESCRIBE_PRODUCERS)
    for index in partitions:
        rows = [message.struct("topics")(name=topic, partitionIndexes=[index])]
        asked = message.cls(topics=rows)

        def step(index: int = index, body: Struct = asked) -> list[Struct]:
            answer = cluster.leader(topic, index).call(DESCRIBE_PRODUCERS, body)
            found = answer.topics[0].partitions[0]
            raise_for(found.errorCode, f"partition {index} of topic {topic}")
            producers: list[Struct] = found.activeProducers
            return producers

        for row in cluster.retrying(step, topic=topic):
            if row.currentTxnStartOffset >= 0:
                yield OpenTransaction(
                    topic,
                    index,
                    row.producerId,
                    row.producerEpoch,
                    row.coordinatorEpoch,
                    row.currentTxnStartOffset,
                    row.lastTimestamp,
                )


def hanging_transactions(
    cluster: Cluster, topics: Iterable[str], older_than_ms: int
) -> list[OpenTransaction]:
    """Returns the open transactions that no coordinator will end: its state of the producer id
    lacks the partition (KIP-664). `older_than_ms`: how old the last batch must be, so that no
    running transaction is found. Raises KafkaError, ClientError."""
    now_ms = int(time.time() * 1000)
    suspects = [
        row
        for topic in topics
        for row in open_transactions(cluster, topic, cluster.topic(topic).partitions)
        if now_ms - row.last_timestamp > older_than_ms
    ]
    if not suspects:
        return []
    known = list_transactions(cluster, producer_ids={row.producer_id for row in suspects})
    names = [str(row.transactionalId) for row in known]
    expected = {
        (row.producerId, topic.topic, index)
        for row in describe_transactions(cluster, names)
        for topic in row.topics
        for index in topic.partitions
    }
    return [row for row in suspects if (row.producer_id, row.topic, row.partition) not in expected]


def abort_transaction(cluster: Cluster, found: OpenTransaction) -> None:
    """Writes an abort marker, which ends an open transaction in its partition only. Use it for
    hanging transactions. Raises ClusterAuthorizationFailed, KafkaError, ClientError."""
    message = request(WRITE_TXN_MARKERS)
    topic = message.struct("markers.topics")(name=found.topic, partitionIndexes=[found.partition])
    marker = message.struct("markers")(
        producerId=found.producer_id,
        producerEpoch=found.producer_epoch,
        transactionResult=False,
        topics=[topic],
        coordinatorEpoch=max(found.coordinator_epoch, 0),
    )

    def step() -> None:
        connection = cluster.leader(found.topic, found.partition)
        # The newest version is for coordinators whose markers bump the epoch.
        answer = connection.call(WRITE_TXN_MARKERS, message.cls(markers=[marker]), high=1)
        row = answer.markers[0].topics[0].partitions[0]
        raise_for(row.errorCode, f"partition {found.partition} of topic {found.topic}")

    cluster.retrying(step, topic=found.topic)
