"""Transaction markers for partitions that other brokers lead: WriteTxnMarkers requests.

All markers that were ordered since the last request to a broker share its next request
(broker_queues.py), so many transactions share a request. A row is sent once and gets a code: the
broker's, or that of a failed connection. The writer of markers (txn_markers.py) sends a failed row
again, perhaps to another leader.

Limits: MARKERS_MAX orders in a request. The waiting markers are limited by the number of open
transactions of this node. Kafka: TransactionMarkerChannelManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.connection import Connection
from barnabas.client.failures import ClientError
from barnabas.errors import RequestTimedOut, UnknownServerError
from barnabas.metadata.cluster_state import ClusterState
from barnabas.server.broker_queues import BrokerQueue, BrokerQueues
from barnabas.server.inter_broker import Reconnecting
from barnabas.wire import Struct, request

if TYPE_CHECKING:
    from barnabas.coordinator.txn_markers import MarkerOrder

log = logging.getLogger("barnabas.transactions")

WRITE_TXN_MARKERS = 27
MARKERS_MAX = 1000
AGAIN_S = 0.1

TopicPartition = tuple[str, int]
Codes = Mapping[TopicPartition, int]


class _Sent(NamedTuple):
    order: MarkerOrder
    rows: frozenset[TopicPartition]
    answered: Callable[[Codes], object]


class RemoteMarkers:
    """Sends the markers of one node to the brokers that lead their partitions."""

    def __init__(
        self,
        node_id: int,
        cluster: Callable[[], ClusterState],
        connect: Callable[[int], Connection],
    ) -> None:
        """`connect` connects to a broker by its id and raises ClientError."""
        self._node_id = node_id
        self._cluster = cluster
        self._queues: BrokerQueues[_Sent] = BrokerQueues(
            "markers-to", connect, log, lambda rows: MARKERS_MAX, _send
        )
        self.apply = self._queues.apply  # called with each new cluster state
        self.stop = self._queues.stop

    def send(
        self,
        order: MarkerOrder,
        rows: frozenset[TopicPartition],
        answered: Callable[[Codes], object],
    ) -> frozenset[TopicPartition]:
        """Sends the markers of some partitions of an order to their leaders. Returns the partitions
        whose markers were sent: those with another live broker as leader. `answered` is called once
        for each leader, on its thread, with a code for each of its partitions."""
        state = self._cluster()
        by_leader: dict[int, set[TopicPartition]] = {}
        for name, index in rows:
            partition = state.partition(name, index)
            leader = -1 if partition is None or partition.state is None else partition.state.leader
            if leader != self._node_id and leader in state.brokers:
                by_leader.setdefault(leader, set()).add((name, index))
        sent = [
            places
            for leader, places in by_leader.items()
            if self._queues.put(leader, _Sent(order, frozenset(places), answered))
        ]
        return frozenset().union(*sent)


def _send(queue: BrokerQueue[_Sent], connection: Reconnecting, rows: list[_Sent]) -> None:
    codes = _codes_of(queue, connection, rows)
    for number, row in enumerate(rows):
        try:
            row.answered(codes[number])
        except Exception:  # an error in one transaction must not delay the others
            log.exception("cannot complete the markers of producer %d", row.order.producer_id)


def _codes_of(
    queue: BrokerQueue[_Sent], connection: Reconnecting, rows: list[_Sent]
) -> list[Codes]:
    """Sends one request. Returns the codes of each marker's partitions."""
    try:
        answer = connection.call(WRITE_TXN_MARKERS, _body(rows))
    except ClientError:  # the connection has logged it
        queue.pause(AGAIN_S)
        return [dict.fromkeys(row.rows, RequestTimedOut.code) for row in rows]
    found: dict[tuple[int, TopicPartition], int] = {
        (marker.producerId, (topic.name, row.partitionIndex)): row.errorCode
        for marker in answer.markers
        for topic in marker.topics
        for row in topic.partitions
    }
    missing = UnknownServerError.code
    return [
        {place: found.get((row.order.producer_id, place), missing) for place in row.rows}
        for row in rows
    ]


def _body(rows: list[_Sent]) -> Struct:
    message = request(WRITE_TXN_MARKERS)
    marker_of, topic_of = message.struct("markers"), message.struct("markers.topics")
    markers = []
    for row in rows:
        topics: dict[str, list[int]] = {}
        for name, index in sorted(row.rows):
            topics.setdefault(name, []).append(index)
        markers.append(
            marker_of(
                producerId=row.order.producer_id,
                producerEpoch=row.order.producer_epoch,
                transactionResult=row.order.commit,
                topics=[topic_of(name=n, partitionIndexes=i) for n, i in topics.items()],
                coordinatorEpoch=row.order.coordinator_epoch,
                transactionVersion=row.order.version,
            )
        )
    return message.cls(markers=markers)
