"""A coordinator without a broker, whose flushes, timers, clock and markers the test controls.

Requests go to the native handler as frames; the log of __transaction_state is a real one whose
flushes wait. Nothing happens automatically: a test delivers appends, writes markers,
moves the clock, and ends the coordinator; a new one loads the log.
"""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from barnabas.cext.coordinator.partition_states import LED, PartitionStates
from barnabas.cext.coordinator.transaction_handler import TransactionHandler
from barnabas.cext.coordinator.transaction_steps import TransactionSteps
from barnabas.cext.coordinator.transactional_id_queue import TransactionalIdQueue
from barnabas.cext.coordinator.transactional_ids import TransactionalIds
from barnabas.cext.log.log_handle import LogHandle
from barnabas.cext.log.segment import SegmentCache
from barnabas.cext.memory.epoch import Epochs
from barnabas.cext.memory.sys import SystemCalls
from barnabas.cext.network.detached_request import DetachedRequest
from barnabas.cext.partition.partitions import PartitionTable
from barnabas.cext.record.records import Record
from barnabas.coordinator.transactions.coordinator import (
    TransactionCoordinator,
    TransactionSettings,
)
from barnabas.coordinator.transactions.transaction import Transaction
from barnabas.coordinator.transactions.transaction_records import read_transaction
from barnabas.errors import CoordinatorNotAvailable, KafkaError, error_of
from barnabas.wire import request, response
from barnabas.wire.batches import decode_batches, encode_batch
from barnabas.wire.headers import encode_request
from barnabas.wire.internal import CONSUMER_OFFSETS, TRANSACTION_STATE

SETTINGS = TransactionSettings(
    timeout_max_ms=60_000, id_expiration_ms=3_600_000, retry_ms=20, retry_max_ms=100
)
ADD, END = 24, 26
HEADER_BYTES = 4 + 4  # the head of a response: size and correlation id
FLEXIBLE_FROM = 3
TOPICS = {"t": 2, CONSUMER_OFFSETS: 4}
PATIENCE_MS = 20_000


class Log:
    """The partition of __transaction_state, on disk."""

    def __init__(self, system: SystemCalls) -> None:
        self.directory = tempfile.mkdtemp(prefix="transactions-")
        self.table = PartitionTable(system, Epochs(), node_id=1, durability="fsync")
        self.flushes = self.table.add_directory(self.directory, flush_threads=1)
        folder = Path(self.directory, f"{TRANSACTION_STATE}-0")
        folder.mkdir()
        self.log = LogHandle.open(
            folder, system=system, epochs=self.table.epochs, cache=SegmentCache()
        )
        for at, name in enumerate([TRANSACTION_STATE, *TOPICS], 1):
            self.table.add_topic(name, bytes([at]) * 16)
            self.table.set_partition_count(name, TOPICS.get(name, 1))
            for index in range(TOPICS.get(name, 0)):
                self.table.add_partition(name, index, None)  # another node leads the log
        self.lead(0)

    def lead(self, epoch: int) -> None:
        """Makes this node the leader; all records of the log are durable then."""
        self.partition = self.table.add_partition(
            TRANSACTION_STATE, 0, self.log, directory=self.directory, leader_epoch=epoch
        )
        self.flushes.held = True

    def append(self, entries: Sequence, epoch: int) -> None:
        records = [Record(value, key) for key, value in entries]
        self.log.append(bytearray(encode_batch(records)), leader_epoch=epoch)
        self.partition.appended(wanted=True)

    def flush(self) -> None:
        self.flushes.held = False
        assert self.partition.commit(PATIENCE_MS)
        self.flushes.held = True

    def crash(self, reached: int, epoch: int) -> None:
        """A crash, after which `reached` of the unflushed records are on disk."""
        end = min(self.log.end_offset, self.partition.high_watermark + reached)
        self.flushes.held = False
        self.table.remove_partition(TRANSACTION_STATE, 0)
        self.log.truncate_to(end)
        self.lead(epoch)

    def batches(self, end: int) -> list:
        if end == 0:
            return []
        data = self.log.read(0, 1 << 24)
        found = decode_batches(data, size_max=1 << 24)
        return [batch for batch in found if batch.base_offset < end]

    def close(self) -> None:
        self.flushes.held = False
        self.table.close()
        self.table.remove_topic(TRANSACTION_STATE)
        self.log.close(clean=False)
        shutil.rmtree(self.directory)


@dataclass
class Journal:
    """Appends of Python wait for `deliver`; those of native code wait for a flush."""

    log: Log
    epoch: int = 0
    waiting: list[tuple[list, Callable[[KafkaError | None], object]]] = field(default_factory=list)

    def partition_of(self, name: str) -> int:
        return 0

    def check(self, partition: int) -> None:
        assert partition == 0

    def leader_epoch(self, partition: int) -> int:
        return self.epoch

    def append(self, partition: int, entries: Sequence, done: Callable) -> None:
        self.waiting.append((list(entries), done))

    @property
    def is_behind(self) -> bool:
        """Whether a step is not durable yet."""
        return bool(self.waiting) or self.log.partition.high_watermark < self.log.log.end_offset

    def deliver(self) -> None:
        """Flushes the log and delivers the oldest append of Python."""
        oldest, self.waiting = self.waiting[:1], self.waiting[1:]
        for entries, _ in oldest:
            self.log.append(entries, self.epoch)
        self.log.flush()
        for _, done in oldest:
            done(None)

    def fail(self, reached: bool) -> None:
        """Fails the oldest append, whose record may be in the log nevertheless."""
        entries, done = self.waiting.pop(0)
        if reached:
            self.log.append(entries, self.epoch)
        done(CoordinatorNotAvailable())

    def history(self, name: str) -> list[Transaction | None]:
        batches = self.log.batches(self.log.partition.high_watermark)
        found = [read_transaction(record) for batch in batches for record in batch.records]
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
    """The state that survives a coordinator: the log, the clock, producer ids. Only `pass_time`
    moves the clock."""

    made: ClassVar[list["World"]] = []

    def __init__(self, version_level: int = 2, settings: TransactionSettings = SETTINGS) -> None:
        self.version_level = version_level
        self.settings = settings
        self.system = SystemCalls()
        self.system.stop_clocks(self.system.wall_ms(), self.system.monotonic_ns())
        self.next_id = 0
        self.may_have_lost = False  # a power cut may have taken records before the next start
        self.log = Log(self.system)
        self.journal = Journal(self.log)
        self.on_order: Callable[[Any], object] = lambda order: None
        self.parked: list[tuple[DetachedRequest, Callable[[bytes], None]]] = []
        World.made.append(self)
        self.start()

    @classmethod
    def close_all(cls) -> None:
        while cls.made:
            world = cls.made.pop()
            world.parked.clear()
            world.log.close()

    def start(self) -> None:
        """Starts a coordinator, which loads the durable records."""
        self.timers = Timers(self)
        self.orders: list[tuple[Any, Callable[[], object]]] = []
        self.id_queue = TransactionalIdQueue()
        states, offsets_states = PartitionStates(), PartitionStates()
        states.count, offsets_states.count = 1, TOPICS[CONSUMER_OFFSETS]
        self.ids = TransactionalIds(self.log.table, TRANSACTION_STATE, self.id_queue, states=states)
        self.steps = TransactionSteps(
            self.ids, CONSUMER_OFFSETS, None, retry_max_ms=self.settings.retry_max_ms
        )
        self.native = TransactionHandler(self.steps, offsets_states)
        self.coordinator = TransactionCoordinator(
            journal=self.journal,
            timers=self.timers,
            wall_ms=self.system.wall_ms,
            new_producer_id=self._new_id,
            write_markers=self._ordered,
            version_level=lambda: self.version_level,
            settings=self.settings,
            steps=self.steps,
            may_have_lost=self.may_have_lost,
        )
        for batch in self.log.batches(self.log.log.end_offset):
            self.coordinator.replay(0, batch)
        self.coordinator.loaded(0)
        states.set(0, LED)

    def crash(self, reached: int = 0) -> None:
        """Drops everything in memory; `reached` of the pending appends are in the log."""
        for entries, _ in self.journal.waiting[:reached]:
            self.log.append(entries, self.journal.epoch)
        self.journal.waiting.clear()
        self.parked.clear()
        self.journal.epoch += 1
        self.log.crash(reached, self.journal.epoch)
        self.start()

    @property
    def now_ms(self) -> int:
        return self.system.wall_ms()

    def pass_time(self, ms: int) -> None:
        self.system.move_wall_clock(ms)
        self.system.move_monotonic(ms)
        self.timers.run()
        self.go_on()

    def _new_id(self) -> int:
        self.next_id += 1
        return self.next_id

    def _ordered(self, order: Any, done: Callable[[], object]) -> None:
        self.on_order(order)
        self.orders.append((order, done))

    # -- requests -------------------------------------------------------------------------------

    def add(
        self,
        name: str,
        producer_id: int,
        epoch: int,
        rows: list[tuple[str, int]],
        version: int,
        answer: Callable,
        *,
        connection: int = 1,
    ) -> None:
        """AddPartitionsToTxn 3; from `version` 2 of transactions on, the step that a batch
        takes."""
        if version == 2:
            self.coordinator.add_partitions(name, producer_id, epoch, rows, version, answer)
            return
        ask = request(ADD)
        topics = [
            ask.struct("v3AndBelowTopics")(name=topic, partitions=[index]) for topic, index in rows
        ]
        body = ask.cls(
            v3AndBelowTransactionalId=name,
            v3AndBelowProducerId=producer_id,
            v3AndBelowProducerEpoch=epoch,
            v3AndBelowTopics=topics,
        )

        def done(body: Any) -> None:
            topics = body.resultsByTopicV3AndBelow
            (code,) = {row.partitionErrorCode for one in topics for row in one.resultsByPartition}
            answer(error_of(code)() if code else None)

        self._ask(ADD, 3, body, done, connection)

    def end(
        self,
        name: str,
        producer_id: int,
        epoch: int,
        commit: bool,
        version: int,
        answer: Callable,
        *,
        connection: int = 1,
    ) -> None:
        """EndTxn 4, or 5 for `version` 2 of transactions."""
        body = request(END).cls(
            transactionalId=name, producerId=producer_id, producerEpoch=epoch, committed=commit
        )

        def done(body: Any) -> None:
            code = body.errorCode
            answer(
                error_of(code)() if code else None,
                *((body.producerId, body.producerEpoch) if version == 2 else (producer_id, epoch)),
            )

        self._ask(END, 5 if version == 2 else 4, body, done, connection)

    def _ask(self, key: int, version: int, body: Any, done: Callable, connection: int) -> None:
        frame = encode_request(key, version, 7, "simulation", body)
        asked = DetachedRequest(
            self.native,
            frame,
            flexible=version >= FLEXIBLE_FROM,
            received_ns=self.system.monotonic_ns(),
            connection_id=connection,
        )
        assert not asked.is_for_python

        def answered(answer: bytes) -> None:
            header_bytes = HEADER_BYTES + (version >= FLEXIBLE_FROM)
            found, _ = response(key).program(version).decode(answer, header_bytes)
            done(found)

        self.parked.append((asked, answered))
        self.go_on()

    def go_on(self) -> None:
        """Handles the ids that native code leaves to Python, and resumes requests that need not
        wait."""
        while (name := self.id_queue.next(0)) is not None:
            self.coordinator.complete(name)
        for row in list(self.parked):
            asked, answered = row
            expired = 0 < asked.deadline_ns <= self.system.monotonic_ns()
            answer = asked.resume(expired=expired)
            if answer is not None and row in self.parked:
                self.parked.remove(row)
                answered(answer)
        while (name := self.id_queue.next(0)) is not None:
            self.coordinator.complete(name)

    def deliver(self) -> None:
        self.journal.deliver()
        self.go_on()

    def settle(self) -> None:
        """Completes all pending work without failures."""
        for _ in range(1000):
            self.go_on()
            if self.journal.is_behind:
                self.deliver()
            elif self.orders:
                self.orders.pop(0)[1]()
            elif self.timers.waiting:
                wait_ms = min(at for at, _ in self.timers.waiting) - self.now_ms
                self.pass_time(max(wait_ms, 0))
            elif not self.parked:
                return
        raise AssertionError("it never settles")


class Answer:
    """The response to a request; None while there is none."""

    def __init__(self) -> None:
        self.given: tuple | None = None

    def __call__(self, *given: Any) -> None:
        assert self.given is None, "answered twice"
        self.given = given

    @property
    def error(self) -> KafkaError | None:
        assert self.given is not None, "not answered"
        return self.given[0]
