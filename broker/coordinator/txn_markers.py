"""Transaction markers: the control batches that end a transaction in each of its partitions.

A round (rounds.py) takes all orders since the last round, appends a marker for each partition,
requests one flush of each log, and then reports the outcome of every partition. So many
transactions share few flushes. A partition that cannot be written to is tried again, because a
coordinator must not complete a transaction before all its markers are durable. A deleted partition
needs no marker. When a newer producer or coordinator has ended the transaction, its marker is not
written.

Markers for partitions that another broker leads are sent to it (remote_markers.py), and the next
round takes their codes.

`on_written` is called when a marker is durable: from then on offsets that were committed in the
transaction count, or are dropped. Next: cext/log/log_transactions.pyx.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from barnabas.cext.log.log_handle import BUMPING_MARKER, TRUSTED, LogError
from barnabas.cext.partition.partitions import PartitionHandle
from barnabas.cext.record.records import Record
from barnabas.coordinator.rounds import Rounds
from barnabas.errors import (
    InvalidProducerEpoch,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollower,
    RequestTimedOut,
    TransactionCoordinatorFenced,
    UnknownTopicOrPartition,
)
from barnabas.wire.batches import encode_batch

log = logging.getLogger("barnabas.transactions")

TopicPartition = tuple[str, int]
RETRY_S = 0.1
COMMIT_TIMEOUT_MS = 30_000
BUMPS_EPOCH = 2  # from this transaction.version on a marker has the next epoch

_KEY = struct.Struct(">hh")  # version, kind
_VALUE = struct.Struct(">hi")  # version, coordinator epoch
ABORT, COMMIT = 0, 1

# The partition does not exist, or a newer producer or coordinator has decided the transaction.
NOT_NEEDED = (
    UnknownTopicOrPartition.code,
    InvalidProducerEpoch.code,
    TransactionCoordinatorFenced.code,
)


class Replicas(Protocol):
    """The part of the replica manager that this module uses."""

    def partition(self, topic: str, index: int) -> PartitionHandle: ...


class MarkerOrder(NamedTuple):
    """Markers to write, one for each partition."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    version: int  # of transaction.version
    partitions: frozenset[TopicPartition]


Codes = Mapping[TopicPartition, int]


class RemoteMarkers(Protocol):
    """Sends markers to other brokers (remote_markers.py)."""

    def send(
        self,
        order: MarkerOrder,
        rows: frozenset[TopicPartition],
        answered: Callable[[Codes], object],
    ) -> frozenset[TopicPartition]: ...
    def stop(self) -> None: ...


@dataclass(slots=True, eq=False)
class _Work:
    order: MarkerOrder
    done: Callable[[Codes], object]
    retries: bool
    left: set[TopicPartition]
    sent: set[TopicPartition] = field(default_factory=set)  # part of `left`: sent to other brokers
    codes: dict[TopicPartition, int] = field(default_factory=dict)


class TransactionMarkers:
    """The writer of markers of one broker."""

    def __init__(
        self,
        replicas: Replicas,
        wall_ms: Callable[[], int],
        on_written: Callable[[str, int, int, bool], object],
        *,
        may_wait: Callable[[], bool],
        remote: RemoteMarkers | None = None,
    ) -> None:
        """`on_written` gets topic, partition, producer id, and whether the transaction committed.
        `may_wait` returns whether rounds wait for a flush. `remote` sends markers to other brokers;
        None: there are none."""
        self._replicas = replicas
        self._wall_ms = wall_ms
        self._on_written = on_written
        self._lock = threading.Lock()
        self._remote = remote
        self._ordered: list[_Work] = []
        self._answers: list[tuple[_Work, Codes]] = []  # codes from other brokers
        self._unfinished: list[_Work] = []
        self._rounds = Rounds("transaction-markers", self._write_ordered, may_wait=may_wait)

    def write(self, order: MarkerOrder, done: Callable[[], object]) -> None:
        """Writes markers and repeats failed ones without a limit. `done` is called on the round's
        thread, unless the broker stops first."""
        self._take(_Work(order, lambda codes: done(), True, set(order.partitions)))

    def write_once(self, order: MarkerOrder, done: Callable[[Codes], object]) -> None:
        """Writes markers once. `done` gets a code for each partition."""
        self._take(_Work(order, done, False, set(order.partitions)))

    def _take(self, work: _Work) -> None:
        with self._lock:
            self._ordered.append(work)
        self._rounds.ask()

    def stop(self) -> None:
        """Stops the writer. The coordinator requests unwritten markers again when it loads."""
        if self._remote is not None:
            self._remote.stop()
        self._rounds.stop()

    def _write_ordered(self) -> float | None:
        """Runs one round; returns when the next one is due for unfinished markers."""
        with self._lock:
            works, self._ordered = self._unfinished + self._ordered, []
            answers, self._answers = self._answers, []
        for work, codes in answers:
            self._take_codes(work, codes)
        self._unfinished = self._round(works)
        return RETRY_S if self._unfinished else None

    def _round(self, works: list[_Work]) -> list[_Work]:
        """Writes the markers of these orders. Returns the orders that must be tried again."""
        written: dict[PartitionHandle, list[tuple[_Work, TopicPartition]]] = {}
        handles: dict[TopicPartition, PartitionHandle] = {}
        for work in works:
            away: set[TopicPartition] = set()
            for row in sorted(work.left - work.sent):
                try:
                    if row not in handles:
                        handles[row] = self._replicas.partition(*row)
                    self._append(handles[row], work.order)
                except NotLeaderOrFollower as error:
                    away.add(row)
                    self._failed(work, row, error.code)
                except (KafkaError, LogError) as error:
                    self._failed(work, row, error.code)
                else:
                    written.setdefault(handles[row], []).append((work, row))
            if self._remote is not None and work.retries and away:
                self._send(self._remote, work, frozenset(away))
        for handle in written:
            handle.appended(wanted=True)
        for handle, rows in written.items():
            code = 0 if handle.commit(COMMIT_TIMEOUT_MS) else _why_not(handle)
            for work, row in rows:
                if code == 0:
                    self._finished(work, row)
                else:
                    self._failed(work, row, code)
        for work in works:
            if not work.left:
                self._tell(work)
        return [work for work in works if work.left]

    def _send(self, remote: RemoteMarkers, work: _Work, rows: frozenset[TopicPartition]) -> None:
        def answered(codes: Codes) -> None:
            with self._lock:
                self._answers.append((work, codes))
            self._rounds.ask()

        work.sent |= rows  # before the response can arrive
        work.sent -= rows - remote.send(work.order, rows, answered)

    def _take_codes(self, work: _Work, codes: Codes) -> None:
        """Takes the codes of another broker, which has informed its own group coordinator."""
        for row, code in codes.items():
            work.sent.discard(row)
            if code == 0:
                work.left.discard(row)
                work.codes[row] = 0
            else:
                self._failed(work, row, code)

    def _append(self, handle: PartitionHandle, order: MarkerOrder) -> None:
        found = handle.log
        if found is None:
            raise KafkaStorageError()
        kind = COMMIT if order.commit else ABORT
        marker = Record(
            _VALUE.pack(0, order.coordinator_epoch), _KEY.pack(0, kind), timestamp=self._wall_ms()
        )
        batch = encode_batch(
            [marker],
            producer_id=order.producer_id,
            producer_epoch=order.producer_epoch,
            transactional=True,
            control=True,
        )
        found.append(
            bytearray(batch),
            leader_epoch=handle.leader_epoch,
            verification=BUMPING_MARKER if order.version >= BUMPS_EPOCH else TRUSTED,
        )

    def _finished(self, work: _Work, row: TopicPartition) -> None:
        work.left.discard(row)
        work.codes[row] = 0
        topic, index = row
        try:
            self._on_written(topic, index, work.order.producer_id, work.order.commit)
        except Exception:
            log.exception("the callback of a marker in %s-%d failed", topic, index)

    def _failed(self, work: _Work, row: TopicPartition, code: int) -> None:
        if work.retries and code not in NOT_NEEDED:
            return  # it stays in `left`
        if code in NOT_NEEDED[1:]:
            log.warning(
                "cannot write the marker of producer %d, epoch %d, to %s-%d: error %d",
                work.order.producer_id, work.order.producer_epoch, *row, code,
            )  # fmt: skip
        work.left.discard(row)
        work.codes[row] = code

    def _tell(self, work: _Work) -> None:
        try:
            work.done(work.codes)
        except Exception:  # an error in one transaction must not delay the others
            log.exception(
                "the callback of the markers of producer %d failed", work.order.producer_id
            )


def _why_not(handle: PartitionHandle) -> int:
    if not handle.alive:
        return NotLeaderOrFollower.code
    return KafkaStorageError.code if handle.offline else RequestTimedOut.code
