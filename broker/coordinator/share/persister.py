"""The states of share partitions at their share coordinators, which may be on other brokers.

The leader of a partition reads and writes its state, the group coordinator initializes, deletes and
describes it. The share coordinator of a state is the leader of its partition of __share_group_state
(share_state.py). ClusterPersister sends each operation there: to this node's own coordinator by a
call, to another broker's by a queue (server/broker_queues.py), in one request at a time with all
operations of the same kind and group since its last request:

| operation  | request                        |
|------------|--------------------------------|
| initialize | InitializeShareGroupState (83) |
| read       | ReadShareGroupState (84)       |
| write      | WriteShareGroupState (85)      |
| delete     | DeleteShareGroupState (86)     |
| summary    | ReadShareGroupStateSummary (87)|

The operations of one share partition are carried out one after the other, in the order of the
calls. One that finds no coordinator, or one that is loading, is tried again after RETRY_MS, twice
that, up to RETRY_MAX_MS, and fails after RETRY_FOR_MS. It may have been carried out when its answer
was lost; carrying it out again does no harm.

Limits: OPERATIONS_MAX in a request; the queue of each broker. Kafka: PersisterStateManager, which
tries five times. Next: share_partitions.py, share_groups.py.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from barnabas.client.connection import Connection
from barnabas.client.failures import ClientError
from barnabas.coordinator.journal import Done, id_hash
from barnabas.coordinator.share.share_partition import StateBatch
from barnabas.coordinator.share.share_state import (
    Found,
    ShareKey,
    ShareState,
    StoredShare,
    together,
)
from barnabas.coordinator.share.waiting import Timers
from barnabas.errors import (
    ClusterAuthorizationFailed,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaError,
    NotCoordinator,
    UnknownServerError,
    UnknownTopicOrPartition,
    error_of,
)
from barnabas.metadata.cluster_state import ClusterState
from barnabas.server.broker_queues import BrokerQueue, BrokerQueues
from barnabas.server.inter_broker import Reconnecting
from barnabas.wire import Struct, request
from barnabas.wire.internal import SHARE_GROUP_STATE

log = logging.getLogger("barnabas.share")

INITIALIZE, READ, WRITE, DELETE, SUMMARY = range(83, 88)
OPERATIONS_MAX = 1000
RETRY_MS, RETRY_MAX_MS = 50, 1_000
RETRY_FOR_MS = 20_000  # less than the timeout of clients' requests, 30 s by default
NOT_READY = (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator)


class Persister(Protocol):
    """The states of all share partitions (Kafka: Persister). A method calls `found` or `done` when
    it has ended, at once or later and on another thread, or raises a KafkaError instead. ShareState
    is the Persister of a single node."""

    def initialize(self, key: ShareKey, state_epoch: int, start: int, done: Done) -> None: ...

    def read(self, key: ShareKey, leader_epoch: int, found: Found) -> None: ...

    def write(
        self,
        key: ShareKey,
        state_epoch: int,
        leader_epoch: int,
        start: int,
        complete_count: int,
        batches: Iterable[StateBatch],
        done: Done,
    ) -> None: ...

    def delete(self, keys: Iterable[ShareKey], done: Done) -> None: ...

    def summary(self, key: ShareKey, found: Found) -> None: ...


@dataclass(slots=True, eq=False)
class _Operation:
    """One operation. `call` carries it out at this node's coordinator; `fields` are those of its
    row in the request to another broker."""

    api: int
    key: ShareKey
    call: Callable[[Found], None]
    fields: Mapping[str, object]
    found: Found
    ends_ms: int
    retry_ms: int = RETRY_MS

    def may_be_tried_again(self, error: KafkaError | None, now_ms: int) -> bool:
        """Returns whether the operation may succeed later. A broker may not have heard of a new
        topic yet; its coordinator itself deletes the states of a deleted topic."""
        if now_ms >= self.ends_ms:
            return False
        is_new = isinstance(error, UnknownTopicOrPartition) and self.api != DELETE
        return is_new or isinstance(error, NOT_READY)


class ClusterPersister:
    """The states of all share partitions of a cluster (Kafka: DefaultStatePersister). Its methods
    raise nothing."""

    def __init__(
        self,
        *,
        node_id: int,
        state: ShareState,
        cluster: Callable[[], ClusterState],
        connect: Callable[[int], Connection],
        timers: Timers,
    ) -> None:
        """`state`: the states that this node coordinates. `connect` connects to a broker by its id
        and raises ClientError."""
        self._node_id = node_id
        self._state = state
        self._cluster = cluster
        self._timers = timers
        self._lock = threading.Lock()
        self._by_key: dict[ShareKey, deque[_Operation]] = {}  # the first is being carried out
        self._queues: BrokerQueues[_Operation] = BrokerQueues(
            "share-at", connect, log, _fitting, self._send
        )
        self.apply = self._queues.apply  # called with each new cluster state
        self.stop = self._queues.stop

    def initialize(self, key: ShareKey, state_epoch: int, start: int, done: Done) -> None:
        self._begin(
            INITIALIZE,
            key,
            lambda found: self._state.initialize(key, state_epoch, start, _done(found)),
            {"stateEpoch": state_epoch, "startOffset": start},
            lambda error, _state: done(error),
        )

    def read(self, key: ShareKey, leader_epoch: int, found: Found) -> None:
        self._begin(
            READ,
            key,
            lambda found: self._state.read(key, leader_epoch, found),
            {"leaderEpoch": leader_epoch},
            found,
        )

    def write(
        self,
        key: ShareKey,
        state_epoch: int,
        leader_epoch: int,
        start: int,
        complete_count: int,
        batches: Iterable[StateBatch],
        done: Done,
    ) -> None:
        rows = tuple(batches)
        batch_of = request(WRITE).struct("topics.partitions.stateBatches")
        self._begin(
            WRITE,
            key,
            lambda found: self._state.write(
                key, state_epoch, leader_epoch, start, complete_count, rows, _done(found)
            ),
            {
                "stateEpoch": state_epoch,
                "leaderEpoch": leader_epoch,
                "startOffset": start,
                "deliveryCompleteCount": complete_count,
                "stateBatches": [
                    batch_of(
                        firstOffset=row.first,
                        lastOffset=row.last,
                        deliveryState=row.state,
                        deliveryCount=row.deliveries,
                    )
                    for row in rows
                ],
            },
            lambda error, _state: done(error),
        )

    def delete(self, keys: Iterable[ShareKey], done: Done) -> None:
        keys = list(keys)
        all_done = together(len(keys), done)
        for key in keys:
            self._begin(
                DELETE,
                key,
                lambda found, key=key: self._state.delete([key], _done(found)),  # type: ignore[misc]
                {},
                lambda error, _state: all_done(error),
            )

    def summary(self, key: ShareKey, found: Found) -> None:
        self._begin(
            SUMMARY,
            key,
            lambda found: self._state.summary(key, found),
            {"leaderEpoch": 0},
            found,
        )

    # -- carrying out -----------------------------------------------------------------------------

    def _begin(
        self,
        api: int,
        key: ShareKey,
        call: Callable[[Found], None],
        fields: Mapping[str, object],
        found: Found,
    ) -> None:
        ends_ms = self._timers.now_ms() + RETRY_FOR_MS
        made = _Operation(api, key, call, fields, found, ends_ms)
        with self._lock:
            waiting = self._by_key.setdefault(key, deque())
            waiting.append(made)
            if len(waiting) > 1:
                return
        self._carry_out(made)

    def _carry_out(self, row: _Operation) -> None:
        coordinator = _coordinator(self._cluster(), row.key)
        if coordinator == self._node_id:
            try:
                row.call(lambda error, state: self._ended(row, error, state))
            except KafkaError as error:
                self._ended(row, error)
        elif coordinator is None:
            self._ended(row, CoordinatorNotAvailable())
        elif not self._queues.put(coordinator, row):
            self._ended(row, CoordinatorNotAvailable("too many operations wait for the broker"))

    def _ended(
        self, row: _Operation, error: KafkaError | None, state: StoredShare | None = None
    ) -> None:
        """Tries an operation again, or ends it and begins the next one of its share partition."""
        if row.may_be_tried_again(error, self._timers.now_ms()):
            delay_ms, row.retry_ms = row.retry_ms, min(2 * row.retry_ms, RETRY_MAX_MS)
            self._timers.after(delay_ms, lambda: self._carry_out(row))
            return
        try:
            row.found(error, state)
        except Exception:  # an error for one share partition must not delay the others
            log.exception("operation %d on the share state of %s", row.api, row.key.text())
        with self._lock:
            waiting = self._by_key[row.key]
            waiting.popleft()
            following = waiting[0] if waiting else None
            if following is None:
                del self._by_key[row.key]
        if following is not None:  # on a thread without the locks of the caller of this one
            self._timers.after(0, lambda: self._carry_out(following))

    def _send(
        self,
        _queue: BrokerQueue[_Operation],
        connection: Reconnecting,
        rows: list[_Operation],
    ) -> None:
        """Sends one request, and ends its operations."""
        try:
            answer = connection.call(rows[0].api, _body(rows))
        except (ClientError, KafkaError) as error:
            if isinstance(error, KafkaError):  # of the login; the connection has logged others
                log.warning("cannot ask a share coordinator: %s", error)
            for row in rows:
                self._ended(row, CoordinatorNotAvailable(str(error)))
            return
        told = {
            (topic.topicId, found.partition): found
            for topic in answer.results
            for found in topic.partitions
        }
        for row in rows:
            found = told.get((row.key.topic_id, row.key.partition))
            refusal = _error_in(found)
            self._ended(row, refusal, None if found is None or refusal else _state_in(row, found))


def _done(found: Found) -> Done:
    return lambda error: found(error, None)


def _coordinator(state: ClusterState, key: ShareKey) -> int | None:
    """Returns the live broker that leads the key's partition of the state topic, or None."""
    topic = state.topic(SHARE_GROUP_STATE)
    if topic is None or not topic.partitions:
        return None
    partition = topic.partitions.get(id_hash(key.text()) % len(topic.partitions))
    if partition is None or partition.state is None or partition.state.leader not in state.brokers:
        return None
    return partition.state.leader


def _fitting(rows: list[_Operation]) -> int:
    """Returns how many of the first operations fit into one request: of one kind and group. A share
    partition has one operation at a time."""
    api, group_id = rows[0].api, rows[0].key.group_id
    for count, row in enumerate(rows[:OPERATIONS_MAX]):
        if row.api != api or row.key.group_id != group_id:
            return count
    return min(len(rows), OPERATIONS_MAX)


def _body(rows: list[_Operation]) -> Struct:
    message = request(rows[0].api)
    topic_of, row_of = message.struct("topics"), message.struct("topics.partitions")
    topics: dict[bytes, list[Struct]] = {}
    for row in rows:
        made = row_of(partition=row.key.partition, **row.fields)
        topics.setdefault(row.key.topic_id, []).append(made)
    return message.cls(
        groupId=rows[0].key.group_id,
        topics=[topic_of(topicId=key, partitions=parts) for key, parts in topics.items()],
    )


def _error_in(found: Struct | None) -> KafkaError | None:
    """Returns the error of a row of an answer."""
    if found is None:
        return UnknownServerError("the share coordinator has not answered for the partition")
    if found.errorCode == 0:
        return None
    error = error_of(found.errorCode)(found.errorMessage)
    if isinstance(error, ClusterAuthorizationFailed):
        log.error(
            "the share coordinator refuses this broker. The principal of the listener between"
            " brokers needs CLUSTER_ACTION there"
        )
        return UnknownServerError()  # clients must not receive the other one
    return error


def _state_in(row: _Operation, found: Struct) -> StoredShare | None:
    """Returns the state in a row of an answer, as far as the request asks for it."""
    if row.api == READ:
        batches = tuple(
            StateBatch(each.firstOffset, each.lastOffset, each.deliveryState, each.deliveryCount)
            for each in found.stateBatches
        )
        return StoredShare(found.stateEpoch, start=found.startOffset, batches=batches)
    if row.api == SUMMARY:
        return StoredShare(
            found.stateEpoch, found.leaderEpoch, found.startOffset, found.deliveryCompleteCount
        )
    return None
