"""One transactional id: its state as in the journal, and the steps it may take. Plain values.

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing ...
                     -> PrepareAbort  -> CompleteAbort

A step returns the transaction as it will be when the journal has it. Each step takes the producer's
version of the protocol (KIP-890): from BUMPS_EPOCH on every end bumps the epoch, so that no late
request can change the next transaction. An epoch is exhausted below the largest int16: the last one
is reserved for fencing. Then a new producer id follows, with epoch 0.

Next: transaction_records.py.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from barnabas.errors import ProducerFenced

NO_PRODUCER_ID = -1
NO_EPOCH = -1
EPOCH_MAX = 2**15 - 1
NO_TIME = -1
BUMPS_EPOCH = 2  # the level of transaction.version

TopicPartition = tuple[str, int]


class State(IntEnum):
    """The state of a transaction. The numbers are Kafka's, as stored in the journal."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """Returns the name that Kafka's tools print: PrepareCommit."""
        return self.name.title().replace("_", "")


IDLE = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)


class Transaction(NamedTuple):
    """The newest transaction of an id, and the producer that has the id. Times are wall-clock
    ms."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    update_ms: int = NO_TIME
    previous_producer_id: int = NO_PRODUCER_ID  # before it got a new one
    next_producer_id: int = NO_PRODUCER_ID  # the producer's id after this end
    last_epoch: int = NO_EPOCH  # the former epoch; it is not in the journal
    client_version: int = 0  # the last transaction.version of the producer

    @property
    def is_exhausted(self) -> bool:
        """Returns whether the producer has its last epoch; the one after it is for fencing."""
        return self.producer_epoch >= EPOCH_MAX - 1

    @property
    def commits(self) -> bool:
        """Returns whether the transaction was decided to commit."""
        return self.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)

    def is_late(self, now_ms: int) -> bool:
        """Returns whether the transaction has been open for longer than its timeout."""
        return self.state == State.ONGOING and self.start_ms + self.timeout_ms < now_ms

    def is_unused(self, oldest_ms: int) -> bool:
        """Returns whether the id has no transaction and was last changed at `oldest_ms` or
        before."""
        return self.state in IDLE and self.update_ms <= oldest_ms

    # -- a producer comes -----------------------------------------------------------------------

    def with_next_epoch(self, timeout_ms: int, expected: int | None, now_ms: int) -> Transaction:
        """Returns the state for a new producer, or for one that comes back with its epoch.

        `expected`: the epoch that the producer had, None for a new one. Raises ProducerFenced."""
        epoch, last = self.producer_epoch + 1, NO_EPOCH
        if expected is not None and self.producer_epoch != NO_EPOCH:
            if expected == self.producer_epoch:
                last = expected
            elif expected == self.last_epoch:  # its response was lost
                epoch, last = self.producer_epoch, self.last_epoch
            else:
                raise ProducerFenced()
        elif expected is not None:
            last = expected
        return self._emptied(self.producer_id, epoch, last, timeout_ms, now_ms)

    def with_producer_id(
        self, producer_id: int, timeout_ms: int, recovers: bool, now_ms: int
    ) -> Transaction:
        """Returns the state with a new producer id and epoch 0: the epochs of the former one are
        exhausted, or a power cut may have taken some that were given."""
        last = self.producer_epoch if recovers else NO_EPOCH
        after = self._emptied(producer_id, 0, last, timeout_ms, now_ms)
        return after._replace(previous_producer_id=self.producer_id)

    def _emptied(
        self, producer_id: int, epoch: int, last: int, timeout_ms: int, now_ms: int
    ) -> Transaction:
        return self._replace(
            producer_id=producer_id,
            producer_epoch=epoch,
            last_epoch=last,
            timeout_ms=timeout_ms,
            state=State.EMPTY,
            partitions=frozenset(),
            start_ms=NO_TIME,
            update_ms=now_ms,
        )

    # -- the end of a transaction ---------------------------------------------------------------

    def prepared(
        self, commit: bool, version: int, next_producer_id: int, now_ms: int
    ) -> Transaction:
        """Returns the decided state; markers follow. A transaction without partitions begins and
        ends with this step."""
        epoch, last = self.producer_epoch, self.last_epoch
        if version >= BUMPS_EPOCH:
            epoch, last = epoch + 1, epoch
        return self._replace(
            state=State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
            producer_epoch=epoch,
            last_epoch=last,
            next_producer_id=next_producer_id,
            partitions=self.partitions if self.state == State.ONGOING else frozenset(),
            start_ms=self.start_ms if self.state == State.ONGOING else now_ms,
            update_ms=now_ms,
            client_version=version,
        )

    def fenced(self, version: int, now_ms: int) -> Transaction:
        """Returns the state after the coordinator aborts. No producer has the markers' epoch."""
        if version >= BUMPS_EPOCH:
            return self.prepared(False, version, NO_PRODUCER_ID, now_ms)
        bumped = self._replace(producer_epoch=self.producer_epoch + 1, last_epoch=NO_EPOCH)
        return bumped.prepared(False, version, NO_PRODUCER_ID, now_ms)

    def completed(self, now_ms: int) -> Transaction:
        """Returns the state when every marker is durable. If the producer's epochs are exhausted,
        its next id replaces the present one."""
        after = self._replace(
            state=State.COMPLETE_COMMIT if self.commits else State.COMPLETE_ABORT,
            partitions=frozenset(),
            next_producer_id=NO_PRODUCER_ID,
            update_ms=now_ms,
        )
        if self.client_version < BUMPS_EPOCH or self.next_producer_id == NO_PRODUCER_ID:
            return after
        return after._replace(
            producer_id=self.next_producer_id,
            producer_epoch=0,
            previous_producer_id=self.producer_id,
        )
