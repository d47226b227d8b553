"""The transactional producers of a simulated cluster.

Each transactional id has a producer, and at times a second one that takes the id over: the first
one goes on as a zombie, until it is refused. A transaction writes some batches to one or two
partitions (Produce 13, so the leaders add them to the transaction), and then commits or aborts
(EndTxn 5). A request without an answer is repeated; a producer that is refused begins anew with
InitProducerId, and does not know how its transaction ends.

The value of a record is the number of its transaction, and its own (simulation/judge.py checks
them).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulation.parking import Awaited

from barnabas.cext.network.detached_request import DetachedRequest
from barnabas.cext.produce.produce import ParkedProduce
from barnabas.cext.record.records import Record
from barnabas.coordinator.journal import id_hash
from barnabas.metadata.znodes import uuid_bytes
from barnabas.wire import Struct, request, response
from barnabas.wire.batches import encode_batch
from barnabas.wire.headers import decode_response_header, encode_request
from barnabas.wire.internal import TRANSACTION_STATE

if TYPE_CHECKING:
    from simulation.base_world import BaseWorld
    from simulation.judge import Log
    from simulation.node import SimNode

IDS, PARTITIONS = ("first", "second", "third"), 2  # of __transaction_state
INIT, PRODUCE, END = 22, 0, 26
VERSIONS = {INIT: 4, PRODUCE: 13, END: 5}
BATCHES_MAX, RECORDS_MAX = 4, 3
TIMEOUT_MS, PRODUCE_TIMEOUT_MS, GIVES_UP_NS = 8000, 5000, 20 * 10**9
TAKEN_OVER = 0.02  # the probability that a second producer comes, at each turn
# Codes that end the work of a producer: out of order, fenced, not in a transaction, abortable.
FATAL = (45, 47, 48, 49, 90, 120)


def partition_of(name: str) -> int:
    return id_hash(name) % PARTITIONS


@dataclass(slots=True, eq=False)
class Transaction:
    """`left`: the batches that are not acknowledged yet."""

    number: int
    commits: bool
    left: list[tuple[Log, list[bytes]]]


@dataclass(slots=True, eq=False)
class Asked:
    """A request that waits at a broker. `poll` returns its answer, None while there is none."""

    key: int
    broker: SimNode
    until_ns: int
    poll: Callable[[], bytes | None]


class Producer:
    """One producer of a transactional id."""

    def __init__(self, world: BaseWorld, name: str) -> None:
        self._world, self.name = world, name
        self.producer_id, self.epoch = -1, -1
        self._sequences: dict[Log, int] = {}
        self.transaction: Transaction | None = None
        self.asked: Asked | None = None
        self.is_refused = False

    def act(self, may_begin: bool) -> None:
        """Sends the next request, if none is under way."""
        if self.asked is not None:
            return
        if self.producer_id < 0:
            if may_begin:
                self._begin_id()
        elif self.transaction is None:
            if may_begin:
                self.transaction = self._world.transactions.new_transaction(self.name)
        elif self.transaction.left:
            self._produce(*self.transaction.left[0])
        else:
            self._end(self.transaction)

    def poll(self) -> None:
        """Takes the answer to the request that is under way."""
        asked, world = self.asked, self._world
        if asked is None or asked.broker.is_paused:
            return
        answer = asked.poll()
        if answer is not None or world.now_ns > asked.until_ns:
            self.asked = None
            if answer is not None and not world.loses_answer(asked.key, asked.broker):
                self._answered(asked.key, answer)

    # -- requests

    def _begin_id(self) -> None:
        body = request(INIT).cls(transactionalId=self.name, transactionTimeoutMs=TIMEOUT_MS,
                                 producerId=-1, producerEpoch=-1)  # fmt: skip
        self._ask_coordinator(INIT, body)

    def _end(self, transaction: Transaction) -> None:
        body = request(END).cls(
            transactionalId=self.name,
            producerId=self.producer_id,
            producerEpoch=self.epoch,
            committed=transaction.commits,
        )
        self._ask_coordinator(END, body)

    def _ask_coordinator(self, key: int, body: Struct) -> None:
        world = self._world
        view = world.choice(world.alive()).reader.state
        known = view.partition(TRANSACTION_STATE, partition_of(self.name))
        if known is None or known.state is None or known.state.leader not in world.brokers:
            return
        broker = world.brokers[known.state.leader]
        if not broker.is_running or broker.is_paused or world.loses(key, broker, None):
            return
        frame = encode_request(key, VERSIONS[key], 1, "client", body)
        if key == END:
            call = DetachedRequest(broker.native.transactions, frame, flexible=True,
                                   received_ns=broker.system.monotonic_ns())  # fmt: skip

            def end() -> bytes | None:
                if call.answer is None:
                    call.resume(expired=broker.system.monotonic_ns() >= call.deadline_ns)
                return None if call.answer is None else call.answer[4:]

            self._wait(key, broker, end)
        elif broker.takes_now(key):
            waiting = world.handled(broker, frame[4:])
            if isinstance(waiting, Awaited):
                self._wait(key, broker, lambda: waiting.answer)
            elif waiting is not None:
                self._wait(key, broker, lambda: waiting)

    def _produce(self, log: Log, values: list[bytes]) -> None:
        world = self._world
        view = world.choice(world.alive()).reader.state
        found = [
            topic.partitions[log[1]].state
            for topic in view.topics.values()
            if topic.topic_id is not None and uuid_bytes(topic.topic_id) == log[0]
        ]
        if not found or found[0] is None or found[0].leader not in world.brokers:
            return
        leader = world.brokers[found[0].leader]
        if not leader.is_running or leader.is_paused:
            return
        frame = self._frame(leader, log, values)
        if world.loses(PRODUCE, leader, frame):
            return
        waiting = [leader.handle(frame)]

        def produced() -> bytes | None:
            if isinstance(waiting[0], ParkedProduce):
                answer = waiting[0].resume(0)
                waiting[0] = answer[4:] if isinstance(answer, bytes) else answer
            return waiting[0] if isinstance(waiting[0], bytes) else None

        self._wait(PRODUCE, leader, produced)

    def _frame(self, leader: SimNode, log: Log, values: list[bytes]) -> bytes:
        message = request(PRODUCE)
        records = encode_batch(
            [Record(value, timestamp=leader.system.wall_ms()) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self._sequences.get(log, 0),
            transactional=True,
        )
        part = message.struct("topicData.partitionData")(index=log[1], records=records)
        topic = message.struct("topicData")(topicId=log[0], partitionData=[part])
        body = message.cls(
            transactionalId=self.name, acks=-1, timeoutMs=PRODUCE_TIMEOUT_MS, topicData=[topic]
        )
        return encode_request(PRODUCE, VERSIONS[PRODUCE], 1, "client", body, framed=False)

    def _wait(self, key: int, broker: SimNode, poll: Callable[[], bytes | None]) -> None:
        until_ns = self._world.now_ns + GIVES_UP_NS
        self.asked = Asked(key, broker, until_ns, poll)
        self._world.touched.add(broker)

    # -- answers

    def _answered(self, key: int, frame: bytes) -> None:
        _, at = decode_response_header(frame, key, VERSIONS[key])
        answer = response(key).decode(frame, VERSIONS[key], at)
        if key == PRODUCE:
            part = answer.responses[0].partitionResponses[0]
            code = part.errorCode
        else:
            code = answer.errorCode
        if code:
            self._world.counts[f"error {code} of {key} in a transaction"] += 1
            if code in FATAL:
                self._forget()
            return
        if key == INIT:
            self.producer_id, self.epoch = answer.producerId, answer.producerEpoch
            self._sequences = {}
        elif key == PRODUCE:
            self._produced(part.baseOffset)
        else:
            self._ended(answer.producerId, answer.producerEpoch)

    def _forget(self) -> None:
        """Gives up the transaction, whose end is not known, and the epoch."""
        if self.producer_id >= 0:
            self._world.note("fenced", f"a producer of {self.name} with epoch {self.epoch}")
        self.is_refused = True
        self.producer_id, self.transaction = -1, None

    def _produced(self, base_offset: int) -> None:
        assert self.transaction is not None
        log, values = self.transaction.left.pop(0)
        self._sequences[log] = self._sequences.get(log, 0) + len(values)
        for delta, value in enumerate(values):
            self._world.judge.acknowledge(log, base_offset + delta, value)

    def _ended(self, producer_id: int, epoch: int) -> None:
        assert self.transaction is not None
        commits, number = self.transaction.commits, self.transaction.number
        self._world.note("commits of transactions" if commits else "aborts", str(number))
        self._world.judge.transactions.decided(number, commits)
        self.producer_id, self.epoch = producer_id, epoch
        self._sequences, self.transaction = {}, None


class Transactions:
    """The transactional producers of a world, which write to the partitions of `topic`."""

    def __init__(self, world: BaseWorld, topic: str) -> None:
        self._world, self._topic = world, topic
        self._producers = {name: [Producer(world, name)] for name in IDS}
        self._count = 0
        self.name_of: dict[int, str] = {}  # the transactional id, by the number of a transaction

    @property
    def is_idle(self) -> bool:
        """Whether no producer is in a transaction."""
        return all(
            row.transaction is None and row.asked is None
            for rows in self._producers.values()
            for row in rows
        )

    def send(self, may_begin: bool) -> None:
        """Lets one producer send its next request."""
        rows = self._producers[self._world.choice(IDS)]
        if may_begin and len(rows) == 1 and self._world.happens(TAKEN_OVER):
            self._world.note("taken over", rows[0].name)
            rows.append(Producer(self._world, rows[0].name))
        self._world.choice(rows).act(may_begin)

    def lost(self, broker: SimNode) -> None:
        """Drops what waits at a broker that is killed."""
        for rows in self._producers.values():
            for row in rows:
                if row.asked is not None and row.asked.broker is broker:
                    row.asked = None

    def poll(self) -> None:
        """Takes the answers of brokers, and ends the producers that were taken over."""
        for rows in self._producers.values():
            for row in rows:
                row.poll()
            if len(rows) > 1 and rows[0].is_refused and rows[0].asked is None:
                del rows[0]

    def new_transaction(self, name: str) -> Transaction:
        world, self._count = self._world, self._count + 1
        number = self._count
        self.name_of[number] = name
        topic = [row.log for (name, _), row in world.partitions().items() if name == self._topic]
        left: list[tuple[Log, list[bytes]]] = []
        sent = 0
        for _ in range(1 + world.below(BATCHES_MAX)):
            log, count = world.choice(topic), 1 + world.below(RECORDS_MAX)
            values = [b"T%d:%d" % (number, sent + row) for row in range(count)]
            sent += count
            world.judge.send(log, values)
            left.append((log, values))
        return Transaction(number, world.below(3) > 0, left)
