"""The transaction coordinator: every id whose partition of __transaction_state this node leads.

What the handlers of InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn call, and the
verification of produced batches. One lock over all ids; what happens under it is short and never
waits. A step is journalled first and counts when it is durable; while one is under way, every
request about the id is told CONCURRENT_TRANSACTIONS. Answers go out through callables, without the
lock, on whichever thread has them.

The end of a transaction is decided by its Prepare record. The client is answered then; markers go
to all its partitions, and when they are durable the Complete record follows. A coordinator that
stops in between finds the Prepare record when it loads, and orders the markers once more.

The protocol's first version keeps the epoch from one transaction to the next, so that an EndTxn
that was held up on the way could end the transaction after its own (KAFKA-17754). A producer that
gave a connection up sends on a new one: an EndTxn is put off when the transaction it would end was
begun on another connection than the one it comes from, and that one had begun an earlier one
(docs/decisions/late-end-of-transaction.md). From version 2 on the epoch tells.

An id that has nothing under way is lent to the network threads, which begin its transactions, let
them grow and end them, until anybody here looks at the id again (transactional_id.py).

Clock, timers, journal, producer ids and the writer of markers are passed in. Next: transaction.py,
and coordinator/txn_markers.py for the markers; administration.py lists and describes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from barnabas.cext.codec.wire import MalformedMessage
from barnabas.coordinator.transactions.transaction import (
    BUMPS_EPOCH,
    IDLE,
    NO_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    State,
    TopicPartition,
    Transaction,
)
from barnabas.coordinator.transactions.transaction_records import (
    read_transaction,
    transaction_value,
)
from barnabas.coordinator.transactions.transactional_id import Lane, TransactionalId
from barnabas.coordinator.txn_markers import MarkerOrder
from barnabas.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    InvalidTxnState,
    KafkaError,
    MessageTooLarge,
    NotCoordinator,
    ProducerFenced,
    TransactionAbortable,
    UnknownServerError,
    UnsupportedVersion,
)
from barnabas.wire.batches import Batch
from barnabas.wire.internal import UnknownRecord

log = logging.getLogger("barnabas.transactions")

RETRY_MS = 100  # until a Complete record that could not be written is tried again
WAITING_MAX = 16  # requests of one id that wait for a step to be over

Entry = tuple[bytes, bytes | None]
Done = Callable[[KafkaError | None], object]
DoneProducer = Callable[[KafkaError | None, int, int], object]  # with producer id and epoch


class Journal(Protocol):
    """What of coordinator.journal is used here; tests have their own."""

    def partition_of(self, name: str) -> int: ...
    def check(self, partition: int) -> None: ...
    def leader_epoch(self, partition: int) -> int: ...
    def append(self, partition: int, entries: Sequence[Entry], done: Done) -> None: ...


class Timers(Protocol):
    """What of coordinator.timers is used here."""

    def after(self, delay_ms: int, call: Callable[[], object]) -> object: ...


# Calls back when every marker is durable; it goes on trying until then.
WriteMarkers = Callable[[MarkerOrder, Callable[[], object]], object]
# With topic, partition, producer id and epoch: batches of the transaction may come to this log.
Expect = Callable[[str, int, int, int], object]


class TransactionSettings(NamedTuple):
    """The broker's settings that transactions go by."""

    timeout_max_ms: int
    id_expiration_ms: int
    retry_ms: int
    retry_max_ms: int

    @classmethod
    def of(cls, setting: Callable[[str], int]) -> TransactionSettings:
        """By Kafka's names."""
        return cls(
            timeout_max_ms=setting("transaction.max.timeout.ms"),
            id_expiration_ms=setting("transactional.id.expiration.ms"),
            retry_ms=setting("add.partitions.to.txn.retry.backoff.ms"),
            retry_max_ms=setting("add.partitions.to.txn.retry.backoff.max.ms"),
        )


class TransactionCoordinator:
    """All transactional ids of one node."""

    def __init__(
        self,
        *,
        journal: Journal,
        timers: Timers,
        wall_ms: Callable[[], int],
        new_producer_id: Callable[[], int],
        write_markers: WriteMarkers,
        expect: Expect,
        version_level: Callable[[], int],
        settings: TransactionSettings,
        lane: Lane | None = None,
    ) -> None:
        """`lane`: takes steps of ids that it is lent."""
        self.journal = journal
        self.settings = settings
        self.wall_ms = wall_ms
        self.version_level = version_level
        self.lock = threading.RLock()
        self.ids: dict[str, TransactionalId] = {}
        self._timers = timers
        self._new_producer_id = new_producer_id
        self._write_markers = write_markers
        self._expect = expect
        self._lane = lane

    # -- finding an id --------------------------------------------------------------------------

    def check(self, name: str) -> int:
        """The partition of an id whose requests are served here. Raises NotCoordinator,
        CoordinatorLoadInProgress, InvalidRequest."""
        if not name:
            raise InvalidRequest("a transactional id is not empty")
        partition = self.journal.partition_of(name)
        if partition < 0:
            raise NotCoordinator()
        self.journal.check(partition)
        return partition

    def _known(self, name: str) -> TransactionalId:
        found = self.ids.get(name)
        if found is None:
            self.check(name)
            raise InvalidProducerIdMapping()
        self.journal.check(found.partition)
        return found

    # -- steps ----------------------------------------------------------------------------------

    def _step(
        self,
        found: TransactionalId,
        after: Transaction,
        done: Done,
        added: Iterable[TopicPartition] = (),
    ) -> None:
        """Under the lock: journals a step. `done` is called without it. The logs of what was added
        are told under the lock, so that no end of the transaction comes first."""
        found.pending = after
        value = transaction_value(after, self.version_level())

        def stored(error: KafkaError | None) -> None:
            with self.lock:
                found.pending = None
                if error is None:
                    found.now = after
                    for topic, index in added:
                        self._expect(topic, index, after.producer_id, after.producer_epoch)
                    self._lend(found)
                waiting, found.waiting = found.waiting, []
            done(_as_kafka_says(error))
            for call in waiting:
                call()

        try:
            self.journal.append(found.partition, [(found.key, value)], stored)
        except KafkaError as error:
            found.pending = None
            raise _as_kafka_says(error) or error from None

    def _lend(self, found: TransactionalId) -> None:
        """Under the lock: its next steps need no thought, unless somebody waits with one."""
        if self._lane is not None and not found.waiting and self.ids.get(found.name) is found:
            epoch = self.journal.leader_epoch(found.partition)
            found.lend(self._lane, epoch, self.version_level(), self._order_markers)

    def _wait(self, found: TransactionalId, again: Callable[[], object]) -> bool:
        """Calls `again` when the step under way, or the markers, are over, or after some time.
        False: too many wait already."""
        if len(found.waiting) >= WAITING_MAX:
            return False
        called = threading.Lock()  # taken by whoever comes first

        def once() -> None:
            if called.acquire(blocking=False):
                again()

        found.waiting.append(once)
        self._timers.after(self.settings.retry_max_ms, once)
        return True

    # -- a producer comes -----------------------------------------------------------------------

    def init_producer_id(
        self,
        name: str,
        timeout_ms: int,
        expected: tuple[int, int] | None,
        done: DoneProducer,
    ) -> None:
        """InitProducerId with a transactional id; `expected`: producer id and epoch it had."""
        if not 0 < timeout_ms <= self.settings.timeout_max_ms:
            raise InvalidTransactionTimeout()
        with self.lock:
            partition = self.check(name)
            found = self.ids.get(name)
            if found is None:
                now = Transaction(self._new_producer_id(), NO_EPOCH, timeout_ms)
                found = self.ids[name] = TransactionalId(name, partition, now)
            found.check_settled()
            now = found.now
            if expected is not None and not _may_come_back(now, *expected):
                raise ProducerFenced()
            if now.state == State.ONGOING:
                self._fence(found, lambda error: done(error or ConcurrentTransactions(), -1, -1))
                return
            after = self._next_producer(now, timeout_ms, expected)
            found.connections.clear()
            found.begun_by.clear()
            self._step(found, after, lambda error: done(error, *_producer_of(after)))

    def _next_producer(
        self, now: Transaction, timeout_ms: int, expected: tuple[int, int] | None
    ) -> Transaction:
        now_ms = self.wall_ms()
        if now.is_exhausted and (expected is None or expected[1] == now.producer_epoch):
            recovers = expected is not None
            return now.with_producer_id(self._new_producer_id(), timeout_ms, recovers, now_ms)
        return now.with_next_epoch(timeout_ms, None if expected is None else expected[1], now_ms)

    def _fence(self, found: TransactionalId, done: Done) -> None:
        """Under the lock: aborts an ongoing transaction with an epoch that nobody has."""
        after = found.now.fenced(self.version_level(), self.wall_ms())
        self._step(found, after, lambda error: self._decided(found, after, error, done))

    # -- a transaction --------------------------------------------------------------------------

    def add_partitions(
        self,
        name: str,
        producer_id: int,
        epoch: int,
        partitions: Iterable[TopicPartition],
        version: int,
        done: Done,
        *,
        connection_id: int = 0,
        waits: bool = True,
    ) -> None:
        """AddPartitionsToTxn, AddOffsetsToTxn, and produce of version 2. `done` is called when it
        is durable. A transaction that is about to be complete is waited for, for a while."""
        added = frozenset(partitions)

        def again() -> None:
            try:
                self.add_partitions(
                    name, producer_id, epoch, added, version, done,
                    connection_id=connection_id, waits=False,
                )  # fmt: skip
            except KafkaError as error:
                done(error)

        with self.lock:
            found = self._known(name)
            try:
                found.check_settled()
            except ConcurrentTransactions:
                if waits and self._wait(found, again):
                    return
                raise
            found.check_producer(producer_id, epoch)
            found.takes_part(connection_id, begins=found.now.state != State.ONGOING)
            if found.now.state != State.ONGOING or not added <= found.now.partitions:
                after = found.now.with_partitions(added, version, self.wall_ms())
                # Clients that leave the adding to us ask with the batch itself.
                self._step(found, after, done, () if version >= BUMPS_EPOCH else added)
                return
        done(None)

    def add_for_append(
        self,
        name: str,
        producer_id: int,
        epoch: int,
        partitions: Iterable[TopicPartition],
        renew: Callable[[], bool],
        done: Done,
    ) -> None:
        """Adds partitions for records of version 2 that wait to be appended to them.

        The logs began a verification before this call. `renew` says whether a marker came to one of
        them since, and renews the verification then. While the transaction before is completed its
        marker does come, and the log would refuse the records for it; so the partitions are added
        once more, in the transaction that follows. Every caller that holds a verification uses
        this method."""
        added = frozenset(partitions)

        def once_more(error: KafkaError | None) -> None:
            if error is None and renew():
                try:
                    self.add_for_append(name, producer_id, epoch, added, renew, done)
                    return
                except KafkaError as refused:
                    error = refused
            done(error)

        self.add_partitions(name, producer_id, epoch, added, BUMPS_EPOCH, once_more)

    def verify(
        self, name: str, producer_id: int, epoch: int, partitions: Iterable[TopicPartition]
    ) -> list[int]:
        """Codes that say whether each partition belongs to the transaction. Raises for all."""
        with self.lock:
            found = self._known(name)
            found.check_producer(producer_id, epoch)
            if found.now.state in PREPARED:
                raise ConcurrentTransactions()
            inside = found.now.partitions if found.now.state == State.ONGOING else ()
            return [0 if row in inside else TransactionAbortable.code for row in partitions]

    def end(
        self,
        name: str,
        producer_id: int,
        epoch: int,
        commit: bool,
        version: int,
        done: DoneProducer,
        *,
        connection_id: int = 0,
    ) -> None:
        """EndTxn. `done` gets the producer id and epoch to go on with."""
        with self.lock:
            found = self._known(name)
            if version >= BUMPS_EPOCH:
                found.check_settled()
                begins_end = _ends_bumping(found.now, producer_id, epoch, commit)
            else:
                found.check_producer(producer_id, epoch)
                found.check_settled()
                begins_end = _ends(found.now, commit)
                if begins_end and found.was_left_on(connection_id):
                    log.warning(
                        "an EndTxn of %s came late, from a connection that its producer has left:"
                        " it is put off",
                        name,
                    )
                    raise ConcurrentTransactions()
            if begins_end:
                self._end(found, commit, version, done)
                return
            told = _producer_of(found.now)
        done(None, *told)

    def _end(self, found: TransactionalId, commit: bool, version: int, done: DoneProducer) -> None:
        next_id = NO_PRODUCER_ID
        if version >= BUMPS_EPOCH and found.now.is_exhausted:
            next_id = self._new_producer_id()
        after = found.now.prepared(commit, version, next_id, self.wall_ms())
        told = _producer_of(after.completed(after.update_ms))
        answer: Done = lambda error: done(error, *told)  # noqa: E731
        self._step(found, after, lambda error: self._decided(found, after, error, answer))

    # -- markers --------------------------------------------------------------------------------

    def _decided(
        self, found: TransactionalId, after: Transaction, error: KafkaError | None, done: Done
    ) -> None:
        """The Prepare record is durable, or is not."""
        done(error)
        if error is None:
            self._order_markers(found, after)

    def _order_markers(self, found: TransactionalId, prepared: Transaction) -> None:
        order = MarkerOrder(
            prepared.producer_id,
            prepared.producer_epoch,
            prepared.commits,
            self.journal.leader_epoch(found.partition),
            prepared.client_version,
            prepared.partitions,
        )
        if order.partitions:
            self._write_markers(order, lambda: self._complete(found, prepared))
        else:
            self._complete(found, prepared)

    def _complete(self, found: TransactionalId, prepared: Transaction) -> None:
        """Every marker is durable."""

        def done(error: KafkaError | None) -> None:
            if error is not None:
                self._timers.after(RETRY_MS, lambda: self._complete(found, prepared))

        with self.lock:
            if self.ids.get(found.name) is not found or found.now is not prepared:
                return  # another node coordinates the id by now
            if found.pending is not None:
                return  # this is being written already
            try:
                self._step(found, prepared.completed(self.wall_ms()), done)
            except KafkaError as error:
                log.info("%s is not complete yet: %s", found.name, error)
                done(error)

    # -- what comes again -----------------------------------------------------------------------

    def abort_timed_out(self) -> int:
        """Aborts transactions that are open for longer than they may be; how many."""
        aborted = 0
        with self.lock:
            now_ms = self.wall_ms()
            late = [
                found
                for found in self.ids.values()
                if found.now.state == State.ONGOING
                and found.pending is None
                and found.now.start_ms + found.now.timeout_ms < now_ms
            ]
            for found in late:
                try:
                    self._fence(found, _log_failure(found.name))
                    aborted += 1
                except KafkaError as error:
                    log.info("the transaction of %s cannot be aborted yet: %s", found.name, error)
        return aborted

    def expire_ids(self) -> int:
        """Forgets ids that nobody has used for transactional.id.expiration.ms; how many."""
        expired = 0
        with self.lock:
            oldest_ms = self.wall_ms() - self.settings.id_expiration_ms
            for found in list(self.ids.values()):
                now = found.now
                if now.state in IDLE and found.pending is None and now.update_ms <= oldest_ms:
                    expired += self._forget(found)
        return expired

    def _forget(self, found: TransactionalId) -> bool:
        found.pending = found.now

        def stored(error: KafkaError | None) -> None:
            with self.lock:
                found.pending = None
                if error is None and self.ids.get(found.name) is found:
                    del self.ids[found.name]

        try:
            self.journal.append(found.partition, [(found.key, None)], stored)
        except KafkaError as error:
            found.pending = None
            log.info("%s is kept for now: %s", found.name, error)
            return False
        return True

    # -- the journal's calls --------------------------------------------------------------------

    def replay(self, partition: int, batch: Batch) -> None:
        """Records of the log, while a partition loads."""
        if batch.control:
            return
        with self.lock:
            for record in batch.records:
                try:
                    name, transaction = read_transaction(record)
                except (MalformedMessage, UnknownRecord, UnsupportedVersion, ValueError) as error:
                    log.warning("record %d is passed over: %s", record.offset, error)
                    continue
                if transaction is None:
                    self.ids.pop(name, None)
                else:
                    self.ids[name] = TransactionalId(name, partition, transaction)

    def loaded(self, partition: int) -> None:
        """What was decided before is carried out."""
        with self.lock:
            decided = [
                found
                for found in self.ids.values()
                if found.partition == partition and found.now.state in PREPARED
            ]
        for found in decided:
            self._order_markers(found, found.now)

    def unloaded(self, partition: int) -> None:
        """Another node leads the partition."""
        with self.lock:
            gone = [row for row in self.ids.values() if row.partition == partition]
            for found in gone:
                del self.ids[found.name]
                found.leave()
            waiting = [call for found in gone for call in found.waiting]
        for call in waiting:
            call()


COMPLETE = (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


def _producer_of(transaction: Transaction) -> tuple[int, int]:
    return transaction.producer_id, transaction.producer_epoch


def _may_come_back(now: Transaction, producer_id: int, epoch: int) -> bool:
    """Whether a producer that says what it had may have the id. An id that is new has no epoch: a
    producer that recovers from UNKNOWN_PRODUCER_ID comes like that."""
    return (
        now.producer_epoch == NO_EPOCH
        or producer_id == now.producer_id
        or (producer_id == now.previous_producer_id and epoch >= 2**15 - 2)
    )


def _ends(now: Transaction, commit: bool) -> bool:
    """Whether an EndTxn of the first version ends a transaction, or was answered before."""
    if now.state == State.ONGOING:
        return True
    if now.state not in COMPLETE or now.commits != commit:
        raise InvalidTxnState()
    return False


def _ends_bumping(now: Transaction, producer_id: int, epoch: int, commit: bool) -> bool:
    """The same where each end bumps the epoch. To abort what was not begun is allowed: the
    producer may not know whether a batch of it arrived."""
    overflowed = now.ended_with_last_epoch(producer_id, epoch)
    if now.producer_id != producer_id and not overflowed:
        raise InvalidProducerIdMapping()
    again = now.state in COMPLETE and (overflowed or now.ended_before(epoch))
    if epoch != now.producer_epoch and not again:
        raise ProducerFenced()
    if now.state == State.ONGOING:
        return True
    if again and now.commits == commit:
        return False
    if again or commit:
        raise InvalidTxnState()
    return True


def _as_kafka_says(error: KafkaError | None) -> KafkaError | None:
    """What a client is told when the journal did not take a step."""
    return UnknownServerError() if isinstance(error, MessageTooLarge) else error


def _log_failure(name: str) -> Done:
    def done(error: KafkaError | None) -> None:
        if error is None:
            log.info("the transaction of %s took too long: aborted", name)
        else:
            log.info("the transaction of %s cannot be aborted yet: %s", name, error)

    return done
