"""A coordinator without a broker: its journal, timers, clock and markers are held in the hand.

Nothing happens by itself: a test delivers appends, lets markers be written, lets time pass, and
takes the coordinator down; a new one loads what the journal holds.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from barnabas.cext.coordinator.transactions import TransactionHandler
from barnabas.cext.memory.epoch import Epochs
from barnabas.cext.memory.sys import SystemCalls
from barnabas.cext.partition.partitions import PartitionTable
from barnabas.cext.record.records import Record
from barnabas.coordinator.transactions.coordinator import (
    TransactionCoordinator,
    TransactionSettings,
)
from barnabas.coordinator.transactions.transaction import State, Transaction
from barnabas.coordinator.transactions.transaction_records import read_transaction
from barnabas.errors import CoordinatorNotAvailable, KafkaError
from barnabas.wire.internal import CONSUMER_OFFSETS, TRANSACTION_STATE

SETTINGS = TransactionSettings(
    timeout_max_ms=60_000, id_expiration_ms=3_600_000, retry_ms=20, retry_max_ms=100
)


@dataclass
class LoadedBatch:
    """A batch as the journal replays it."""

    records: list[Record]
    control: bool = False


@dataclass
class Journal:
    """Appends wait until they are delivered; `records` is what is durable."""

    epoch: int = 0
    records: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    waiting: list[tuple[list, Callable[[KafkaError | None], object]]] = field(default_factory=list)

    def partition_of(self, name: str) -> int:
        return 0

    def check(self, partition: int) -> None:
        assert partition == 0

    def leader_epoch(self, partition: int) -> int:
        return self.epoch

    def append(self, partition: int, entries: list, done: Callable) -> None:
        self.waiting.append((list(entries), done))

    def deliver(self) -> None:
        entries, done = self.waiting.pop(0)
        self.records += entries
        done(None)

    def fail(self, reached: bool) -> None:
        """An append that is not acknowledged; it may have reached the log all the same."""
        entries, done = self.waiting.pop(0)
        if reached:
            self.records += entries
        done(CoordinatorNotAvailable())

    def history(self, name: str) -> list[Transaction | None]:
        found = (read_transaction(Record(value, key)) for key, value in self.records)
        return [transaction for known, transaction in found if known == name]


class Timers:
    """Calls that wait for the clock."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.waiting: list[tuple[int, Callable[[], object]]] = []

    def after(self, delay_ms: int, call: Callable[[], object]) -> None:
        self.waiting.append((self._world.now_ms + delay_ms, call))

    def run(self) -> None:
        due = [row for row in self.waiting if row[0] <= self._world.now_ms]
        self.waiting = [row for row in self.waiting if row[0] > self._world.now_ms]
        for _, call in due:
            call()


class World:
    """What outlives a coordinator: the journal, the clock, producer ids."""

    def __init__(self, version_level: int = 2, settings: TransactionSettings = SETTINGS) -> None:
        self.version_level = version_level
        self.settings = settings
        self.now_ms = 1_000_000
        self.next_id = 0
        self.expected = 0  # how often logs were told of a transaction
        self.journal = Journal()
        self._partitions = PartitionTable(SystemCalls(), Epochs(), node_id=1, durability="fsync")
        self.on_order: Callable[[Any], object] = lambda order: None
        self.start()

    def start(self) -> None:
        """A coordinator that loads what is durable."""
        self.timers = Timers(self)
        self.orders: list[tuple[Any, Callable[[], object]]] = []
        self.coordinator = TransactionCoordinator(
            journal=self.journal,
            timers=self.timers,
            wall_ms=lambda: self.now_ms,
            new_producer_id=self._new_id,
            write_markers=self._ordered,
            expect=self._expected,
            version_level=lambda: self.version_level,
            settings=self.settings,
            ids=TransactionHandler(self._partitions, TRANSACTION_STATE, CONSUMER_OFFSETS, None),
        )
        records = [Record(value, key) for key, value in self.journal.records]
        self.coordinator.replay(0, LoadedBatch(records))  # type: ignore[arg-type]
        self.coordinator.loaded(0)

    def crash(self, reached: int = 0) -> None:
        """Everything in memory is gone; `reached` of the appends under way are in the log."""
        for entries, _ in self.journal.waiting[:reached]:
            self.journal.records += entries
        self.journal.waiting.clear()
        self.journal.epoch += 1
        self.start()

    def _expected(self, topic: str, index: int, producer_id: int, epoch: int) -> None:
        """Only what belongs to a transaction that has begun, and whose end is yet to be decided."""
        self.expected += 1
        newest = dict(read_transaction(Record(value, key)) for key, value in self.journal.records)
        assert any(
            (row.producer_id, row.producer_epoch, row.state) == (producer_id, epoch, State.ONGOING)
            and (topic, index) in row.partitions
            for row in newest.values()
            if row is not None
        )

    def _new_id(self) -> int:
        self.next_id += 1
        return self.next_id

    def _ordered(self, order: Any, done: Callable[[], object]) -> None:
        self.on_order(order)
        self.orders.append((order, done))

    def settle(self) -> None:
        """Everything that is under way ends well."""
        for _ in range(1000):
            if self.journal.waiting:
                self.journal.deliver()
            elif self.orders:
                self.orders.pop(0)[1]()
            elif self.timers.waiting:
                self.now_ms = max(self.now_ms, min(at for at, _ in self.timers.waiting))
                self.timers.run()
            else:
                return
        raise AssertionError("it never settles")


class Answer:
    """What a request was answered; None while it is not."""

    def __init__(self) -> None:
        self.told: tuple | None = None

    def __call__(self, *told: Any) -> None:
        assert self.told is None, "answered twice"
        self.told = told

    @property
    def error(self) -> KafkaError | None:
        assert self.told is not None, "not answered"
        return self.told[0]
