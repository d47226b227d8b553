"""The driver's part of the sink: decides a batch in the ledger, then ends its transactions.

    tasks: write, hand (transactional id, producer id, epoch) over      sink_tasks.py
    commit: claim the key -> read the newest entry -> list what else is open -> DECIDED
            -> end each with commit -> DONE -> abort what else was open
    abort:  claim the key -> read -> decided already: end as decided; otherwise abort all

docs/decisions/spark-sink.md explains states, crashes and fencing. Two rules are essential: a driver
commits a transaction only when a DECIDED record names it. A driver aborts one only after it has
claimed the key and written a record of its own, or when the tasks of its own run handed it over.

`reached` is called with the name of each finished step; tests kill the process there.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from barnabas.client import ClientError, Cluster, NotSpokenByBroker
from barnabas.client.transactional_id import Prepared, end_transaction
from barnabas.client.transactions import describe_transactions, list_transactions
from barnabas.errors import InvalidProducerIdMapping, KafkaError, TransactionalIdNotFound
from barnabas.spark.failures import LostRows, SinkError
from barnabas.spark.sink_ledger import (
    DECIDED,
    DONE,
    JOB,
    WITHDRAWN,
    Entry,
    LedgerHolder,
    decided_before,
    transaction_name,
)
from barnabas.spark.sink_options import SinkOptions

log = logging.getLogger("barnabas.spark")

ONGOING = "Ongoing"
ABANDONED_MS = 120_000  # a driver that has not ended its transactions by then has died
PATTERN_FROM, LIST_TRANSACTIONS = 2, 66

Reached = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Written:
    """The message of a task to the driver. `planned_ms`: the driver's clock before the tasks began,
    in ms since 1970."""

    key: str
    run: str
    batch: int
    planned_ms: int
    prepared: Prepared | None  # None: the task had no rows
    record_count: int = 0
    was_decided: bool = False  # the ledger says that the batch is written


def now_ms() -> int:
    """Returns the time in ms since 1970."""
    return time.time_ns() // 1_000_000


def commit_batch(
    options: SinkOptions, written: Sequence[Written], *, reached: Reached = lambda step: None
) -> None:
    """Commits one batch after all of its tasks have ended. Returns when this or an earlier run has
    committed its rows. Raises SinkError and errors of client and brokers; when the batch is decided
    by then, a later driver finishes it."""
    mine = _prepared(written)
    if not mine and not any(one.was_decided for one in written):
        return
    first = written[0]
    with (
        options.cluster() as cluster,
        LedgerHolder(cluster, options.ledger, first.key) as held,
    ):
        reached("claimed")
        commit = _Commit(options, cluster, held, reached)
        newest = held.newest
        if newest is not None and newest.covers(first.batch):
            commit.finish_earlier(newest, first)
            _abort(cluster, mine)
            return
        if any(one.was_decided for one in written):
            raise SinkError(
                f"batch {first.batch} of {first.key} was decided when its tasks began, but has"
                " since been withdrawn: start the query again"
            )
        if newest is not None and newest.state == DECIDED:
            commit.finish(newest)
        _check_time(options, written)
        others = commit.others(mine, "")
        commit.decide(Entry(first.batch, DECIDED, first.run, tuple(mine)))
        commit.finish(held.newest)
        _abort(cluster, others)
        reached("others aborted")


def abort_batch(options: SinkOptions, written: Sequence[Written | None]) -> None:
    """Aborts the transactions of a failed batch, unless the batch was decided. Raises SinkError,
    and errors of client and brokers."""
    known = [one for one in written if one is not None]
    mine = _prepared(known)
    if not mine:
        return
    first = known[0]
    with (
        options.cluster() as cluster,
        LedgerHolder(cluster, options.ledger, first.key) as held,
    ):
        commit = _Commit(options, cluster, held, lambda step: None)
        newest = held.newest
        if newest is not None and newest.batch == first.batch and newest.state == DECIDED:
            commit.finish(newest)
        decided = set(newest.transactions) if newest is not None else set()
        done = newest is not None and newest.covers(first.batch) and newest.run == first.run
        if not done:
            _abort(cluster, [one for one in mine if one not in decided])
            _abort(cluster, commit.others(mine, first.run))


def finish_abandoned(options: SinkOptions) -> None:
    """Finishes batch writes whose driver died after the decision. No later run repeats them, so the
    next driver finishes them. Logs failures. Raises errors of client and brokers for the ledger."""
    with options.cluster() as cluster:
        keys = decided_before(cluster, options.ledger, JOB, now_ms() - ABANDONED_MS)
    for key in keys:
        try:
            finish_decided(options, key)
        except (SinkError, KafkaError, ClientError) as error:
            log.warning("%s is not finished: %s", key, error)


def finish_decided(options: SinkOptions, key: str) -> bool:
    """Commits the transactions that a dead driver had decided. Returns whether there were any.
    Raises SinkError, and errors of client and brokers."""
    with options.cluster() as cluster, LedgerHolder(cluster, options.ledger, key) as held:
        if held.newest is None or held.newest.state != DECIDED:
            return False
        _Commit(options, cluster, held, lambda step: None).finish(held.newest)
        return True


class _Commit:
    """The steps of a driver that has claimed the key."""

    def __init__(
        self, options: SinkOptions, cluster: Cluster, held: LedgerHolder, reached: Reached
    ) -> None:
        self.options, self.cluster, self.held, self.reached = options, cluster, held, reached

    def decide(self, entry: Entry) -> None:
        self.held.write(entry, before_end=lambda: self.reached("decision written"))
        self.reached("decided")

    def finish_earlier(self, newest: Entry, first: Written) -> None:
        """Finishes a batch that an earlier run decided; does nothing when it is done. Only the
        driver that writes DONE may abort that run's open transactions, because no driver begins the
        next batch before DONE."""
        if newest.state == DECIDED:
            others = self.others(newest.transactions, "")
            self.finish(newest)
            _abort(self.cluster, others)

    def finish(self, entry: Entry | None) -> None:
        assert entry is not None and entry.state == DECIDED
        lost: list[Prepared] = []
        for count, one in enumerate(entry.transactions, 1):
            if not self._committed(one):
                lost.append(one)
            self.reached(f"ended {count}")
        if lost:
            self._give_up(entry, lost)
        self.held.write(None if self.held.key.startswith(JOB) else entry.as_(DONE))
        self.reached("done")

    def _committed(self, one: Prepared) -> bool:
        try:
            return end_transaction(self.cluster, one, commit=True)
        except InvalidProducerIdMapping as error:
            if not self.options.fail_on_lost_rows:
                return True
            raise LostRows(
                f"transactional id {one.name} was decided to be committed, but the brokers have"
                " removed it (transactional.id.expiration.ms): its rows may be lost. To go on set"
                " failOnLostRows to false"
            ) from error

    def _give_up(self, entry: Entry, lost: list[Prepared]) -> None:
        names = ", ".join(one.name for one in lost)
        what = (
            f"batch {entry.batch} of {self.held.key} was decided, and the broker aborted"
            f" {len(lost)} of its {len(entry.transactions)} transactions before they were ended"
            " (kafka.transaction.timeout.ms went by)"
        )
        if len(lost) == len(entry.transactions):
            self.held.write(None if self.held.key.startswith(JOB) else entry.as_(WITHDRAWN))
            raise LostRows(f"{what}; nothing of it was committed: start the query again")
        if self.options.fail_on_lost_rows:
            raise LostRows(
                f"{what}; the rows of {names} are lost, the others are committed. To go on without"
                " them set failOnLostRows to false"
            )

    def others(self, mine: Iterable[Prepared], run: str) -> list[Prepared]:
        """Returns the other open transactions of the key (or of one run): those of failed attempts
        and killed runs. Returns none for brokers before Kafka 3.0, which abort them after their
        timeout."""
        known = set(mine)
        start = transaction_name(self.held.key, f"{run}/" if run else "")
        try:
            names = [
                name for name in _open_names(self.cluster, start) if name != self._ledger_name()
            ]
            found = []
            for name in names:
                try:
                    (row,) = describe_transactions(self.cluster, [name])
                except TransactionalIdNotFound:
                    continue
                if row.transactionState == ONGOING:
                    found.append(Prepared(name, int(row.producerId), int(row.producerEpoch)))
        except NotSpokenByBroker:
            return []
        return [one for one in found if one not in known]

    def _ledger_name(self) -> str:
        return transaction_name(self.held.key)


def _open_names(cluster: Cluster, start: str) -> list[str]:
    newest = cluster.any_connection().versions.get(LIST_TRANSACTIONS, (0, 0))[1]
    # `start` has no special character of the brokers' patterns.
    pattern = f"{start}.*" if newest >= PATTERN_FROM else None
    rows = list_transactions(cluster, states=[ONGOING], pattern=pattern)
    names = (str(row.transactionalId) for row in rows)
    return [name for name in names if name.startswith(start)]


def _prepared(written: Iterable[Written]) -> list[Prepared]:
    return [one.prepared for one in written if one.prepared is not None]


def _abort(cluster: Cluster, transactions: Iterable[Prepared]) -> None:
    """Aborts transactions. When an abort fails, the broker aborts the transaction after its
    timeout."""
    for one in transactions:
        try:
            end_transaction(cluster, one, commit=False)
        except KafkaError:
            continue


def _check_time(options: SinkOptions, written: Iterable[Written]) -> None:
    took_ms = now_ms() - min(one.planned_ms for one in written)
    if took_ms >= options.batch_limit_ms:
        raise SinkError(too_long(options, took_ms))


def too_long(options: SinkOptions, took_ms: int) -> str:
    """Returns the error message for a batch that has exceeded batchLimitMs."""
    return (
        f"the batch has taken {took_ms} ms, more than batchLimitMs={options.batch_limit_ms}, and is"
        " aborted before its transactions time out: make batches smaller, or raise batchLimitMs"
        f" and kafka.transaction.timeout.ms={options.transaction_timeout_ms}"
    )
