"""Transaction markers for partitions that other brokers lead: WriteTxnMarkers requests.

There is a thread for each such broker, from its first marker on. It sends all markers that were
added since its last request in one request, so many transactions share a request. Each row is in at
most one request at a time. It gets the codes of the response, or of a failed connection; then the
writer of markers
(txn_markers.py) sends it again, perhaps to another leader.

Limits: MARKERS_MAX orders in a request. The waiting markers are limited by the number of open
transactions of this node.
Kafka: TransactionMarkerChannelManager.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cext.memory.threads import NamedThread
from barnabas.client.connection import Connection
from barnabas.client.failures import ClientError
from barnabas.errors import RequestTimedOut, UnknownServerError
from barnabas.metadata.cluster_state import ClusterState
from barnabas.server.inter_broker import Reconnecting
from barnabas.wire import Struct, request

if TYPE_CHECKING:
    from barnabas.coordinator.txn_markers import MarkerOrder

log = logging.getLogger("barnabas.transactions")

WRITE_TXN_MARKERS = 27
MARKERS_MAX = 1000
AGAIN_S = 0.1
STOP_S = 5.0

TopicPartition = tuple[str, int]
Codes = Mapping[TopicPartition, int]


class _Sent(NamedTuple):
    order: MarkerOrder
    rows: frozenset[TopicPartition]
    answered: Callable[[Codes], object]


class RemoteMarkers:
    """The channels of one node to the other brokers."""

    def __init__(
        self,
        node_id: int,
        cluster: Callable[[], ClusterState],
        connect: Callable[[int], Connection],
    ) -> None:
        """`connect`: to a broker by its id; raises ClientError."""
        self._node_id = node_id
        self._cluster = cluster
        self._connect = connect
        self._lock = threading.Lock()
        self._channels: dict[int, _Channel] = {}
        self._is_stopped = False

    def send(
        self,
        order: MarkerOrder,
        rows: frozenset[TopicPartition],
        answered: Callable[[Codes], object],
    ) -> frozenset[TopicPartition]:
        """Sends the markers of some partitions of an order to their leaders. Returns the partitions
        that are under way: those with another live broker as leader. `answered` is called once for
        each leader, on its thread, with a code for each of its partitions."""
        state = self._cluster()
        by_leader: dict[int, set[TopicPartition]] = {}
        for name, index in rows:
            partition = state.partition(name, index)
            leader = -1 if partition is None or partition.state is None else partition.state.leader
            if leader != self._node_id and leader in state.brokers:
                by_leader.setdefault(leader, set()).add((name, index))
        with self._lock:
            if self._is_stopped:
                return frozenset()
            for leader, places in by_leader.items():
                channel = self._channels.get(leader)
                if channel is None:
                    channel = self._channels[leader] = _Channel(leader, self._connect)
                channel.put(_Sent(order, frozenset(places), answered))
        return frozenset().union(*by_leader.values())

    def stop(self) -> None:
        """Ends all channels; requests in flight may get an answer or not."""
        with self._lock:
            self._is_stopped = True
            channels = list(self._channels.values())
        for channel in channels:
            channel.stop()
        for channel in channels:
            channel.join()


class _Channel:
    def __init__(self, broker_id: int, connect: Callable[[int], Connection]) -> None:
        self._connection = Reconnecting(broker_id, connect, log)
        self._waiting: list[_Sent] = []
        self._changed = threading.Condition()
        self._is_stopped = False
        self._thread = NamedThread(target=self._run, name=f"markers-to-{broker_id}", daemon=True)
        self._thread.start()

    def put(self, sent: _Sent) -> None:
        with self._changed:
            self._waiting.append(sent)
            self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify()
        self._connection.interrupt()

    def join(self) -> None:
        self._thread.join(STOP_S)

    def _run(self) -> None:
        while (rows := self._taken()) is not None:
            codes = self._codes_of(rows)
            for number, row in enumerate(rows):
                try:
                    row.answered(codes[number])
                except Exception:  # one transaction's trouble must not hold up the others
                    log.exception("markers of producer %d", row.order.producer_id)
        self._connection.close()

    def _taken(self) -> list[_Sent] | None:
        """Waits for markers, and takes those of one request; None after the stop."""
        with self._changed:
            while not self._waiting and not self._is_stopped:
                self._changed.wait()
            if self._is_stopped:
                return None
            rows, self._waiting = self._waiting[:MARKERS_MAX], self._waiting[MARKERS_MAX:]
            return rows

    def _codes_of(self, rows: list[_Sent]) -> list[Codes]:
        """Sends one request. Returns the codes of each marker's rows."""
        try:
            answer = self._connection.call(WRITE_TXN_MARKERS, _body(rows))
        except ClientError:  # the connection has logged it
            with self._changed:
                self._changed.wait_for(lambda: self._is_stopped, AGAIN_S)
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
