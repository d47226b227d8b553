"""The transaction coordinator: every id whose partition of __transaction_state this node leads.

The ids are in a native table (cext/coordinator/transactional_ids.pyx). Native code has the rules of
AddPartitionsToTxn, AddOffsetsToTxn and EndTxn and takes their steps (transaction_steps.pyx). This
module takes the other steps: InitProducerId, the abort of a transaction that exceeds its timeout,
the expiry of an id, and the completion of an end. `find` reads the id, `_step` announces the step
to the table, writes it to the journal and stores it in the table when it is durable. When the id
has changed since it was read, `_step` does nothing and its caller reads it again. While a step is
in progress, every other request about the id waits, or is answered CONCURRENT_TRANSACTIONS.

One lock covers all of this; code under it is short and never waits. Results go out through
callables, without the lock, on any thread.

The Prepare record decides the end of a transaction. The client is answered then; markers go to all
its partitions, and when they are durable the Complete record follows. With log.durability=os the
network thread of an EndTxn writes both. This module writes them for every other end, and when the
network thread could not. A coordinator that stops in between finds the Prepare record when it
loads, and requests the markers again.

Clock, timers, journal, producer ids and the writer of markers are passed in. Next: transaction.py,
and coordinator/txn_markers.py for the markers; administration.py lists and describes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from barnabas.cext.codec.wire import MalformedMessage
from barnabas.cext.coordinator.transaction_steps import TransactionSteps
from barnabas.coordinator.transactions.transaction import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    PREPARED,
    State,
    TopicPartition,
    Transaction,
)
from barnabas.coordinator.transactions.transaction_records import (
    read_transaction,
    value_version,
)
from barnabas.coordinator.transactions.transactional_id import TransactionalId
from barnabas.coordinator.txn_markers import MarkerOrder
from barnabas.errors import (
    ConcurrentTransactions,
    InvalidRequest,
    InvalidTransactionTimeout,
    KafkaError,
    MessageTooLarge,
    NotCoordinator,
    ProducerFenced,
    UnknownServerError,
    UnsupportedVersion,
    error_of,
)
from barnabas.metadata.tree import MetadataError
from barnabas.wire.batches import Batch
from barnabas.wire.internal import UnknownRecord

log = logging.getLogger("barnabas.transactions")

RETRY_MS = 100  # delay after which a failed Complete record is written again
LOADING = -1  # in place of a leader epoch

Entry = tuple[bytes, bytes | None]
Done = Callable[[KafkaError | None], object]
DoneProducer = Callable[[KafkaError | None, int, int], object]  # (error, producer id, epoch)


class Journal(Protocol):
    """The part of coordinator.journal that this module uses. Tests pass another implementation."""

    def partition_of(self, name: str) -> int: ...
    def check(self, partition: int) -> None: ...
    def leader_epoch(self, partition: int) -> int: ...
    def append(self, partition: int, entries: Sequence[Entry], done: Done) -> None: ...


class Timers(Protocol):
    """The part of coordinator.timers that this module uses."""

    def after(self, delay_ms: int, call: Callable[[], object]) -> object: ...


# Calls back when every marker is durable; it repeats failed markers until then.
WriteMarkers = Callable[[MarkerOrder, Callable[[], object]], object]


class TransactionSettings(NamedTuple):
    """The broker's settings for transactions."""

    timeout_max_ms: int
    id_expiration_ms: int
    retry_ms: int
    retry_max_ms: int

    @classmethod
    def of(cls, setting: Callable[[str], int]) -> TransactionSettings:
        """Reads the settings by Kafka's names."""
        return cls(
            timeout_max_ms=setting("transaction.max.timeout.ms"),
            id_expiration_ms=setting("transactional.id.expiration.ms"),
            retry_ms=setting("add.partitions.to.txn.retry.backoff.ms"),
            retry_max_ms=setting("add.partitions.to.txn.retry.backoff.max.ms"),
        )


class TransactionCoordinator:
    """All transactional ids that one node coordinates (Kafka: TransactionCoordinator)."""

    def __init__(
        self,
        *,
        journal: Journal,
        timers: Timers,
        wall_ms: Callable[[], int],
        new_producer_id: Callable[[], int],
        write_markers: WriteMarkers,
        version_level: Callable[[], int],
        settings: TransactionSettings,
        steps: TransactionSteps,
        may_have_lost: bool = False,
    ) -> None:
        """`steps`: the steps of the table of ids, which this coordinator shares with native
        handlers. `version_level` returns the level of transaction.version. `may_have_lost`: a power
        cut may have taken the newest records of the journal before this start."""
        self.journal = journal
        self.settings = settings
        self.wall_ms = wall_ms
        self.version_level = version_level
        self.lock = threading.RLock()
        self.ids, self.steps = steps.ids, steps
        self._timers = timers
        self._new_producer_id = new_producer_id
        self._write_markers = write_markers
        self._may_have_lost = may_have_lost
        self._loaded_ms = NO_TIME  # the newest change of an id that was loaded
        self.follow_version()

    # -- finding an id --------------------------------------------------------------------------

    def check(self, name: str) -> int:
        """Returns the partition of an id whose requests are served here.

        Raises NotCoordinator, CoordinatorLoadInProgress, InvalidRequest."""
        if not name:
            raise InvalidRequest("a transactional id must not be empty")
        partition = self.journal.partition_of(name)
        if partition < 0:
            raise NotCoordinator()
        self.journal.check(partition)
        return partition

    def find(self, name: str) -> TransactionalId | None:
        """Returns the present state of an id, or None when there is no such id."""
        row = self.ids.get(name)
        if row is None:
            return None
        partition, step, is_pending, fields = row
        now = Transaction._make(fields)
        return TransactionalId(
            name, partition, step, is_pending, now._replace(state=State(now.state))
        )

    def find_all(self) -> list[TransactionalId]:
        """Returns every id, each in the state in which it is read."""
        found = (self.find(name) for name in sorted(self.ids.names()))
        return [row for row in found if row is not None]

    def follow_version(self) -> None:
        """Applies the level of transaction.version to the records that native handlers write."""
        self.ids.value_version = value_version(self.version_level())

    # -- steps ----------------------------------------------------------------------------------

    def _step(self, found: TransactionalId, after: Transaction, done: Done) -> bool:
        """Writes a step to the journal. The caller holds the lock; `done` is called without it.
        Returns False when the id has changed since it was found: then nothing was done."""
        name = found.name
        token = self.ids.begin(name, found.step)
        if not token:
            return False

        def stored(error: KafkaError | None) -> None:
            with self.lock:
                self.ids.finish(name, token, after if error is None else None)
            done(_as_kafka_says(error))

        try:
            self.journal.append(found.partition, [self.ids.record(name, after)], stored)
        except KafkaError as error:
            self.ids.finish(name, token)
            raise _as_kafka_says(error) or error from None
        return True

    def complete(self, name: str) -> None:
        """Completes what native code left for an id: sends the markers of a decided end, and
        reserves a producer id. If the flush of the id's step has not ended, as when the connection
        was closed before it, this method runs again later."""
        self._reserve_producer_id()
        with self.lock:
            found = self.find(name)
            if found is not None and found.is_pending:
                self._timers.after(RETRY_MS, lambda: self.complete(name))
                return
            self._carry_out(name)

    def _reserve_producer_id(self) -> None:
        """Reserves a producer id for the next producer whose epochs an EndTxn exhausts."""
        if self.steps.reserved_producer_id != NO_PRODUCER_ID:
            return
        try:
            self.steps.reserved_producer_id = self._new_producer_id()
        except (KafkaError, MetadataError) as error:
            log.info("no producer id is reserved: %s", error)

    # -- a producer comes -----------------------------------------------------------------------

    def init_producer_id(
        self,
        name: str,
        timeout_ms: int,
        expected: tuple[int, int] | None,
        done: DoneProducer,
    ) -> None:
        """Handles InitProducerId with a transactional id. `expected`: the producer id and epoch
        that the producer had, or None. Calls `done` with the error, the producer id and its epoch.
        Raises InvalidTransactionTimeout, ProducerFenced, ConcurrentTransactions, and NotCoordinator
        or CoordinatorLoadInProgress."""
        if not 0 < timeout_ms <= self.settings.timeout_max_ms:
            raise InvalidTransactionTimeout()
        with self.lock:
            partition = self.check(name)
            while True:
                found = self.find(name)
                if found is None:
                    new = Transaction(self._new_producer_id(), NO_EPOCH, timeout_ms)
                    self.ids.put(name, partition, self.journal.leader_epoch(partition), new)
                    self._reserve_producer_id()
                    continue
                found.check_settled()
                if expected is not None and not _may_come_back(found.now, *expected):
                    raise ProducerFenced()
                if found.now.state == State.ONGOING:
                    if self._fence(
                        found, lambda error: done(error or ConcurrentTransactions(), -1, -1)
                    ):
                        return
                    continue
                after = self._next_producer(found.now, timeout_ms, expected)
                answer = partial(_answer_producer, done, after)
                if self._step(found, after, answer):
                    self.ids.forget_connections(name)
                    return

    def _next_producer(
        self, now: Transaction, timeout_ms: int, expected: tuple[int, int] | None
    ) -> Transaction:
        now_ms = self.wall_ms()
        if (now.is_exhausted or self._may_lack_epochs(now)) and (
            expected is None or expected[1] == now.producer_epoch
        ):
            recovers = expected is not None
            return now.with_producer_id(self._new_producer_id(), timeout_ms, recovers, now_ms)
        return now.with_next_epoch(timeout_ms, None if expected is None else expected[1], now_ms)

    def _may_lack_epochs(self, now: Transaction) -> bool:
        """Returns whether the next epoch may have been given before, and lost: a log may have
        batches with it, and would take the first ones of another producer for repetitions."""
        return self._may_have_lost and NO_TIME < now.update_ms <= self._loaded_ms

    def _fence(self, found: TransactionalId, done: Done) -> bool:
        """Aborts an ongoing transaction with an epoch that no producer has. The caller holds the
        lock. Returns False as `_step` does."""
        after = found.now.fenced(self.version_level(), self.wall_ms())
        return self._step(found, after, lambda error: self._decided(found.name, error, done))

    # -- a transaction --------------------------------------------------------------------------

    def add_partitions(
        self,
        name: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
        version: int,
        done: Done,
        *,
        connection_id: int = 0,
    ) -> None:
        """Handles AddPartitionsToTxn and AddOffsetsToTxn in a form that the native handlers leave
        to Python. The table has the rules; this method tries again while the id is busy. `version`:
        of transaction.version. `done` is called when the partitions are durable or were refused."""
        rows = sorted(partitions)
        tries_left = max(1, self.settings.retry_max_ms // self.settings.retry_ms)

        def ask() -> None:
            nonlocal tries_left
            code = self.steps.add(name, producer_id, epoch, rows, version, connection_id)
            if code is not None:
                done(error_of(code)() if code else None)
            elif tries_left == 0:
                done(ConcurrentTransactions())
            else:
                tries_left -= 1
                self._timers.after(self.settings.retry_ms, ask)

        ask()

    # -- markers --------------------------------------------------------------------------------

    def _decided(self, name: str, error: KafkaError | None, done: Done) -> None:
        """Called when the Prepare record is durable or has failed."""
        done(error)
        if error is None:
            self._carry_out(name)

    def _carry_out(self, name: str) -> None:
        """Requests the markers of an end that was decided, once."""
        found = self.find(name)
        if found is None or found.now.state not in PREPARED or found.is_pending:
            return
        if not self.ids.order(name, found.step):
            return
        prepared = found.now
        order = MarkerOrder(
            prepared.producer_id,
            prepared.producer_epoch,
            prepared.commits,
            self.journal.leader_epoch(found.partition),
            prepared.client_version,
            prepared.partitions,
        )
        if order.partitions:
            self._write_markers(order, lambda: self._complete(name, found.step))
        else:
            self._complete(name, found.step)

    def _complete(self, name: str, step: int) -> None:
        """Called when every marker of the end prepared by `step` is durable."""

        def done(error: KafkaError | None) -> None:
            if error is not None:
                self._timers.after(RETRY_MS, lambda: self._complete(name, step))

        with self.lock:
            found = self.find(name)
            if found is None or found.step != step:
                return  # another node coordinates the id now
            try:
                # If another call is already writing this record, `_step` does nothing.
                self._step(found, found.now.completed(self.wall_ms()), done)
            except KafkaError as error:
                log.info("cannot complete the transaction of %s yet: %s", name, error)
                done(error)

    # -- what comes again -----------------------------------------------------------------------

    def abort_timed_out(self) -> int:
        """Aborts transactions that exceeded their timeout and returns their number. Also carries
        out ends that a native handler decided and could not carry out."""
        aborted = 0
        with self.lock:
            now_ms = self.wall_ms()
            for name in sorted(self.ids.late(now_ms)):
                self._carry_out(name)
                found = self.find(name)
                if found is None or not found.now.is_late(now_ms):
                    continue
                try:
                    aborted += self._fence(found, _log_failure(name))
                except KafkaError as error:
                    log.info("cannot abort the transaction of %s yet: %s", name, error)
        return aborted

    def expire_ids(self) -> int:
        """Deletes ids that were not used for transactional.id.expiration.ms and returns their
        number."""
        expired = 0
        with self.lock:
            oldest_ms = self.wall_ms() - self.settings.id_expiration_ms
            for name in sorted(self.ids.unused(oldest_ms)):
                found = self.find(name)
                if found is not None and found.now.is_unused(oldest_ms):
                    expired += self._forget(found)
        return expired

    def _forget(self, found: TransactionalId) -> bool:
        """Deletes an expired id. The caller holds the lock. Returns False when the id has changed
        or the journal has refused the deletion."""
        name = found.name
        token = self.ids.begin(name, found.step)
        if not token:
            return False

        def stored(error: KafkaError | None) -> None:
            if error is None:
                self.ids.remove(name, token)
            else:
                self.ids.finish(name, token)

        try:
            self.journal.append(found.partition, [self.ids.record(name, None)], stored)
        except KafkaError as error:
            self.ids.finish(name, token)
            log.info("cannot remove the expired transactional id %s yet: %s", name, error)
            return False
        return True

    # -- the journal's calls --------------------------------------------------------------------

    def replay(self, partition: int, batch: Batch) -> None:
        """Applies records of the log while a partition loads."""
        if batch.control:
            return
        with self.lock:
            for record in batch.records:
                try:
                    name, transaction = read_transaction(record)
                except (MalformedMessage, UnknownRecord, UnsupportedVersion, ValueError) as error:
                    log.warning("skipped the record at offset %d: %s", record.offset, error)
                    continue
                if transaction is None:
                    self.ids.remove(name)
                else:
                    self.ids.put(name, partition, LOADING, transaction)
                    self._loaded_ms = max(self._loaded_ms, transaction.update_ms)

    def loaded(self, partition: int) -> None:
        """Carries out ends that were decided before the load."""
        leader_epoch = self.journal.leader_epoch(partition)
        for name in sorted(self.ids.open(partition, leader_epoch)):
            self._carry_out(name)

    def unloaded(self, partition: int) -> None:
        """Drops the ids of a partition that another node leads now."""
        with self.lock:
            self.ids.forget(partition)


def _producer_of(transaction: Transaction) -> tuple[int, int]:
    return transaction.producer_id, transaction.producer_epoch


def _answer_producer(
    done: DoneProducer, transaction: Transaction, error: KafkaError | None
) -> None:
    done(error, *_producer_of(transaction))


def _may_come_back(now: Transaction, producer_id: int, epoch: int) -> bool:
    """Returns whether a producer with a former producer id and epoch may take over the id. A new id
    has no epoch, so a producer that recovers from UNKNOWN_PRODUCER_ID may take it over. A producer
    that still has the previous id may have missed the answer with the new one."""
    return (
        now.producer_epoch == NO_EPOCH
        or producer_id == now.producer_id
        or (
            producer_id == now.previous_producer_id
            and (epoch >= 2**15 - 2 or epoch == now.last_epoch)
        )
    )


def _as_kafka_says(error: KafkaError | None) -> KafkaError | None:
    """Returns the error that a client receives when the journal did not accept a step."""
    return UnknownServerError() if isinstance(error, MessageTooLarge) else error


def _log_failure(name: str) -> Done:
    def done(error: KafkaError | None) -> None:
        if error is None:
            log.info("aborted the transaction of %s: it exceeded its transaction timeout", name)
        else:
            log.info("cannot abort the transaction of %s yet: %s", name, error)

    return done
