"""Workload H: senders, transactions, copies, pollers and a group, side by side.

Each worker is a thread (a copier: a process) with a client of its own (kafka-python's for messages
of format 0 and 1, else librdkafka's) and a random generator of its own, made from the seed and its
name, so that its requests are the same in each run of a seed; what the broker answers, and when,
may differ. One history records everything. Every reader is read_committed. Topics: "input" is sent
to, and copied in transactions to "copy".
"""

import contextlib
import json
import logging
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from history.model import History, Operation, Outcome, Read, Send, now, parse
from kafka import KafkaProducer
from kafka.errors import KafkaTimeoutError

INPUT, COPY = "input", "copy"
PARTITIONS = 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# For LZ4 in format 0, kafka-python needs one more package; without it, its flush never ends.
OLD_CODECS = {(0, 9): (None, "gzip", "snappy"), (0, 10, 0): (None, "gzip", "snappy", "lz4")}
OLD_BURST_MAX, OLD_DELIVERY_MS = 60, 20_000
PATIENCE_S = 60.0  # a broker restarts much faster
BURST_MAX = 120
PAUSE_S_MAX = 0.03
SILENT_S = 30.0  # longer than one call of a client, with its timeout of 10 s
INCARNATIONS_MAX, VALUES = 1000, 1_000_000  # of a copier program
TESTS = Path(__file__).resolve().parents[1]
BROKER_SETTINGS = {
    "log.retention.ms": "-1",
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


def broker_settings(seed: int) -> dict[str, str]:
    """Half of the seeds use log.durability=os, the others fsync."""
    return BROKER_SETTINGS | {"log.durability": ("fsync", "os")[seed % 2]}


COMMON = {
    "log_level": 0,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 50,
    # After a re-bootstrap, librdkafka 2.16.0 waits without end for a broker that it has dropped:
    # AddOffsetsToTxn is answered, TxnOffsetCommit is not sent, and the call has no timeout.
    "metadata.recovery.strategy": "none",
}
logging.getLogger("kafka").setLevel(logging.CRITICAL)  # as log_level above

# Errors that a broker returns before it writes.
REFUSED = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._QUEUE_FULL, KafkaError._UNKNOWN_PARTITION}


def name_of(topic: str, partition: int) -> str:
    return f"{topic}/{partition}"


def create_topics(address: str, replicas: int = 1, **config: str) -> None:
    """`config`: of both topics, with _ for each dot."""
    given = {name.replace("_", "."): value for name, value in config.items()}
    admin = AdminClient({"bootstrap.servers": address, **COMMON})
    made = admin.create_topics(
        [NewTopic(name, PARTITIONS, replicas, config=given) for name in (INPUT, COPY)],
        operation_timeout=10,
    )
    for future in made.values():
        future.result(20)


class Burst:
    """Records that were sent, and the delivery report of each."""

    def __init__(self) -> None:
        self._sent: dict[int, tuple[str, int | None]] = {}
        self._told: dict[int, tuple[KafkaError | None, int]] = {}

    def send(
        self, producer: Producer, topic: str, partition: int, value: int, source: int | None = None
    ) -> None:
        def told(error: KafkaError | None, message: Message) -> None:
            self._told[value] = error, message.offset()

        producer.produce(topic, b"%d" % value, partition=partition, on_delivery=told)
        self._sent[value] = name_of(topic, partition), source

    def sends(self, transactional: bool) -> tuple[Send, ...]:
        found = []
        for value, (partition, source) in self._sent.items():
            error, offset = self._told.get(value, (None, -1))
            known = offset if error is None and offset >= 0 else None
            outcome = None if transactional else self._outcome(value)
            found.append(Send(partition, value, known, outcome, source))
        return tuple(found)

    def _outcome(self, value: int) -> Outcome:
        if value not in self._told:
            return Outcome.UNKNOWN
        error = self._told[value][0]
        if error is None:
            return Outcome.OK
        return Outcome.FAIL if error.code() in REFUSED else Outcome.UNKNOWN


class Worker:
    """A thread that does one step after the other until the workload stops."""

    def __init__(self, workload: "Workload", name: str) -> None:
        self.workload, self.name = workload, name
        self.history = workload.history
        self.chance = random.Random(f"{workload.seed}:{name}")
        self.tally: Counter[str] = Counter()
        self.codecs = random.Random(f"{workload.seed}:{name}:codecs")
        self.thread = threading.Thread(target=self.run, name=name, daemon=True)

    def run(self) -> None:
        try:
            while not self.workload.stopping.is_set():
                self.step()
                time.sleep(self.chance.random() * PAUSE_S_MAX)
            self.close()
        except Exception as error:  # finish() raises the exception of a worker that died
            self.workload.errors.append((self.name, error))

    def where(self) -> str:
        """The thread's stack, for the report of a worker that does not end."""
        frame = sys._current_frames().get(self.thread.ident or 0)
        return "".join(traceback.format_stack(frame)[-6:]) if frame else "ended"

    def step(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Closes the client."""

    def settings(self, **more: Any) -> dict[str, Any]:
        named = {key.replace("_", "."): value for key, value in more.items()}
        return {"bootstrap.servers": self.workload.address, **COMMON, **self.workload.more, **named}

    def producer_settings(self, **more: Any) -> dict[str, Any]:
        """Each producer that a worker makes has a codec of its own."""
        return self.settings(compression_type=self.codecs.choice(CODECS), **more)

    def note(self, outcome: Outcome = Outcome.OK, process: str = "", **more: Any) -> None:
        ended = None if outcome == Outcome.UNKNOWN else now()
        self.add(Operation(process=process or self.name, outcome=outcome, ended=ended, **more))

    def add(self, operation: Operation) -> None:
        self.history.add(operation)
        self.tally[f"{self.name.split('-')[0]} {operation.outcome}"] += 1


class Sender(Worker):
    """Idempotent, without gaps: a record without a known outcome ends the producer."""

    incarnation = 0
    producer: Producer | None = None

    def step(self) -> None:
        if self.producer is None:
            self.incarnation += 1
            self.producer = Producer(
                self.producer_settings(enable_idempotence=True, linger_ms=1, batch_num_messages=20)
                | {"message.timeout.ms": int(PATIENCE_S * 1000)}
                | {"enable.gapless.guarantee": True}
            )
        burst, began = Burst(), now()
        for _ in range(self.chance.randint(1, BURST_MAX)):
            value = self.history.new_value()
            burst.send(self.producer, INPUT, self.chance.randrange(PARTITIONS), value)
        self.producer.flush(PATIENCE_S + 5)
        sends = burst.sends(transactional=False)
        told = {send.outcome for send in sends}
        outcome = Outcome.UNKNOWN if Outcome.UNKNOWN in told else Outcome.OK
        self.note(outcome, f"{self.name}-{self.incarnation}", began=began, sends=sends)
        if outcome == Outcome.UNKNOWN:
            self.producer = None


class OldSender(Worker):
    """Sends messages of format 0, as a client of Kafka 0.9 does, or of format 1, as one of 0.10.
    The broker stores them as record batches. Nothing is sent twice: without idempotence, a second
    attempt may leave duplicates."""

    incarnation = 0
    producer: KafkaProducer | None = None

    def step(self) -> None:
        if self.producer is None:
            self.incarnation += 1
            self.producer = self._made()
        began, waiting = now(), []
        with contextlib.suppress(KafkaTimeoutError):
            for _ in range(self.chance.randint(1, OLD_BURST_MAX)):
                value, partition = self.history.new_value(), self.chance.randrange(PARTITIONS)
                told = self.producer.send(INPUT, b"%d" % value, partition=partition)
                waiting.append((name_of(INPUT, partition), value, told))
            self.producer.flush(PATIENCE_S)
        known, unknown = [], []
        for place, value, told in waiting:
            if told.succeeded():
                known.append(Send(place, value, told.value.offset, Outcome.OK))
            else:
                unknown.append(Send(place, value, None, Outcome.UNKNOWN))
        process = f"{self.name}-{self.incarnation}"
        self.note(process=process, began=began, sends=tuple(known))
        if unknown:  # a process of their own: records after them may be there without them
            self.note(Outcome.UNKNOWN, f"{process}-gaps", began=began, sends=tuple(unknown))
            self.close()

    def _made(self) -> KafkaProducer:
        version = list(OLD_CODECS)[int(self.name[-1]) % len(OLD_CODECS)]
        more = self.workload.more
        return KafkaProducer(
            bootstrap_servers=self.workload.address,
            api_version=version,
            compression_type=self.codecs.choice(OLD_CODECS[version]),
            enable_idempotence=False,
            acks="all",
            retries=0,
            max_in_flight_requests_per_connection=1,
            linger_ms=1,
            batch_size=1000,
            delivery_timeout_ms=OLD_DELIVERY_MS,
            request_timeout_ms=OLD_DELIVERY_MS // 2,
            max_block_ms=OLD_DELIVERY_MS,
            security_protocol=str(more.get("security.protocol", "plaintext")).upper(),
            ssl_cafile=more.get("ssl.ca.location"),
        )

    def close(self) -> None:
        if self.producer is not None:
            self.producer.close(PATIENCE_S)
            self.producer = None


class Transactor(Worker):
    """Transactions over all partitions; one in four is aborted."""

    producer: Producer | None = None
    began = 0
    deciding: int | None = None

    def step(self) -> None:
        burst = self.begin()
        self.transact(burst, lambda: self._fill(burst))

    def _fill(self, burst: Burst) -> None:
        assert self.producer is not None
        for _ in range(self.chance.randint(1, 12)):
            value = self.history.new_value()
            burst.send(self.producer, INPUT, self.chance.randrange(PARTITIONS), value)
            if self.chance.random() < 0.1:
                self.producer.flush(PATIENCE_S)

    def begin(self) -> Burst:
        self.began, self.deciding = now(), None
        return Burst()

    def transact(self, burst: Burst, fill: Callable[[], None], **more: Any) -> Outcome:
        """Runs one transaction and records it, with `more`."""
        commits = self.chance.random() < 0.75
        outcome = Outcome.FAIL
        try:
            if self.producer is None:
                self.producer = self._made()
            self.producer.begin_transaction()
            fill()
            if commits:
                self.producer.flush(PATIENCE_S)
                self.deciding = now()
                self.history.decides(self._transaction(Outcome.UNKNOWN, burst, more))
                self._again(self.producer.commit_transaction)
                outcome = Outcome.OK
            else:
                self._again(self.producer.abort_transaction)
        except KafkaException as raised:
            self.tally[f"{self.name.split('-')[0]} {raised.args[0].name()}"] += 1
            # After a request to commit, a later abort does not prove that the commit failed.
            outcome = Outcome.FAIL if self.deciding is None else Outcome.UNKNOWN
            self._recover(raised.args[0])
        self.add(self._transaction(outcome, burst, more))
        return outcome

    def _transaction(self, outcome: Outcome, burst: Burst, more: Mapping[str, Any]) -> Operation:
        return Operation(
            process=self.name,
            outcome=outcome,
            ended=None if outcome == Outcome.UNKNOWN else now(),
            began=self.began,
            deciding=self.deciding,
            sends=burst.sends(transactional=True),
            transactional=True,
            **more,
        )

    def _made(self) -> Producer:
        made = Producer(
            self.producer_settings(transactional_id=self.name, linger_ms=1)
            | {"transaction.timeout.ms": 20_000, "message.timeout.ms": 20_000}
        )
        self._again(made.init_transactions)
        return made

    def _again(self, call: Callable[..., object]) -> None:
        """Repeats calls that librdkafka calls retriable, until they succeed."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                call(10)
                return
            except KafkaException as raised:
                if not raised.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def _recover(self, error: KafkaError) -> None:
        if error.txn_requires_abort() and self.producer is not None:
            try:
                self._again(self.producer.abort_transaction)
                return
            except KafkaException:
                pass
        self.producer = None


class GroupMember(Worker):
    """A consumer with a subscription. `fresh` is set after a new assignment."""

    group, topics = "", ()
    consumer: Consumer | None = None
    fresh = True

    def joined(self) -> Consumer:
        if self.consumer is None:
            self.consumer = Consumer(
                self.settings(
                    group_id=self.group,
                    isolation_level="read_committed",
                    enable_auto_commit=False,
                    auto_offset_reset="earliest",
                    session_timeout_ms=10_000,
                    heartbeat_interval_ms=500,
                )
            )
            self.fresh = True
            self.consumer.subscribe(list(self.topics), on_assign=self._assigned)
        return self.consumer

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.fresh = True
        self.positions_of(partitions)

    def positions_of(self, partitions: list[TopicPartition]) -> list[TopicPartition] | None:
        """Fetches the committed positions and records them. None: there was no response."""
        began = now()
        try:
            found = self.joined().committed(partitions, timeout=10)
        except KafkaException:
            return None
        if any(row.error for row in found):
            return None
        rows = {
            name_of(row.topic, row.partition): row.offset if row.offset >= 0 else None
            for row in found
        }
        self.note(began=began, group=self.group, positions=rows)
        return found

    def take(self, most: int) -> tuple[int, bool, tuple[Read, ...]]:
        """The reads of one assignment: their start time, whether it is a new one, and the reads."""
        consumer = self.joined()
        began, reads = now(), []
        fresh, self.fresh = self.fresh, False
        while len(reads) < most:
            message = consumer.poll(0.1)
            if self.fresh:
                # A new assignment, perhaps with a first record: record what was read before it.
                if reads:
                    self.note(began=began, reads=tuple(reads), fresh=fresh, group=self.group)
                began, reads, fresh, self.fresh = now(), [], True, False
            if message is None:
                break
            if message.error():
                continue
            reads.append(read_of(message))
        return began, fresh, tuple(reads)

    def leave(self) -> None:
        if self.consumer is not None:
            self.consumer.close()
            self.consumer = None

    close = leave


class GroupReader(GroupMember):
    """Reads, then commits its position; now and then it leaves the group and joins again."""

    group, topics = "readers", (INPUT, COPY)

    def step(self) -> None:
        began, fresh, reads = self.take(self.chance.randint(1, 400))
        self.note(began=began, reads=reads, fresh=fresh, group=self.group)
        if reads:
            self._commit(ends_of(reads))
        if self.chance.random() < 0.02:
            self.leave()

    def _commit(self, ends: dict[str, int]) -> None:
        began, outcome = now(), Outcome.OK
        try:
            told = self.joined().commit(offsets=rows_of(ends), asynchronous=False)
            if any(row.error for row in told):
                outcome = Outcome.UNKNOWN
        except KafkaException:
            outcome = Outcome.UNKNOWN
        self.note(outcome, began=began, group=self.group, commits=ends)


class Copier(GroupMember, Transactor):
    """Copies what it reads, with its position, in one transaction."""

    group, topics = "copiers", (INPUT,)

    def step(self) -> None:
        burst = self.begin()
        self.began, fresh, reads = self.take(self.chance.randint(1, 60))
        if not reads:
            self.note(began=self.began, fresh=fresh, group=self.group)
            return
        ends = ends_of(reads)

        def fill() -> None:
            assert self.producer is not None
            for read in reads:
                partition = int(read.partition.split("/")[1])
                value = self.history.new_value()
                burst.send(self.producer, COPY, partition, value, source=read.value)
            self._again(lambda wait: self.send_offsets(ends, wait))

        outcome = self.transact(
            burst, fill, reads=reads, fresh=fresh, group=self.group, commits=ends
        )
        if outcome != Outcome.OK:
            self._rewind()

    def send_offsets(self, ends: dict[str, int], wait_s: float) -> None:
        """May not return (CopierProgram)."""
        assert self.producer is not None
        metadata = self.joined().consumer_group_metadata()
        self.producer.send_offsets_to_transaction(rows_of(ends), metadata, wait_s)

    def _rewind(self) -> None:
        """Seeks to the committed positions; if that fails, joins the group again."""
        consumer = self.joined()
        try:
            found = self.positions_of(consumer.assignment())
            for row in found or ():
                row.offset = row.offset if row.offset >= 0 else OFFSET_BEGINNING
                consumer.seek(row)
        except KafkaException:
            found = None
        self.fresh = True
        if found is None:
            self.leave()

    def close(self) -> None:
        self.leave()


class CopierProgram(Worker):
    """A Copier in a process of its own (copier.py). When it hangs in librdkafka's
    send_offsets_to_transaction, it is killed and started again, as its user would do it: that call
    does not return in time when its group coordinator is no longer in the metadata (README.md)."""

    incarnation = 0
    hangs = 0
    process: subprocess.Popen[str] | None = None

    def step(self) -> None:
        """Runs the program until the workload stops, or it hangs."""
        self.incarnation += 1
        number = int(self.name.split("-")[1]) + 1
        first_value = (number * INCARNATIONS_MAX + self.incarnation) * VALUES
        command = [self.workload.address, str(self.workload.seed), self.name, str(first_value)]
        command.append(json.dumps(dict(self.workload.more)))
        started = subprocess.Popen(
            [sys.executable, "-m", "history.copier", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(TESTS)},
        )
        with started as self.process:
            undecided, stack = self._follow(started)
        if stack:
            assert Copier.send_offsets.__name__ in stack, f"{self.name} hangs elsewhere: {stack}"
            self.hangs += 1
            if undecided is not None:
                self.add(undecided)
        else:
            assert started.returncode == 0, f"{self.name} ended with {started.returncode}"

    def _follow(self, program: subprocess.Popen[str]) -> tuple[Operation | None, str]:
        """Adds the operations of a program until it ends, or is killed because it hangs. Returns
        the transaction whose commit it had asked for, without an answer; and where it hung."""
        assert program.stdin is not None and program.stdout is not None
        lines: queue.Queue[str] = queue.Queue()
        reader = threading.Thread(
            target=lambda said: [lines.put(line) for line in said],
            args=(program.stdout,),
            daemon=True,
        )
        reader.start()
        undecided: Operation | None = None
        stack, heard = "", time.monotonic()
        while reader.is_alive() or not lines.empty():
            if self.workload.stopping.is_set():
                program.stdin.close()
            with contextlib.suppress(queue.Empty):
                line = lines.get(timeout=0.2)
                kind, _, said = line.partition(" ")
                if kind not in ("decides", "ended"):
                    stack += line
                    continue
                heard, undecided = time.monotonic(), parse(said)
                if kind == "ended":
                    self.add(undecided)
                    undecided = None
            if time.monotonic() > heard + SILENT_S and program.poll() is None:
                program.send_signal(signal.SIGUSR1)  # prints its stack
                with contextlib.suppress(subprocess.TimeoutExpired):
                    program.wait(1)
                program.kill()
                program.wait()
        return undecided, stack

    def where(self) -> str:
        return f"{self.name} is the process {self.process and self.process.pid}"


class Poller(Worker):
    """Reads all partitions from their start, without any seek."""

    consumer: Consumer | None = None

    def step(self) -> None:
        if self.consumer is None:
            self.consumer = Consumer(
                self.settings(
                    group_id=self.name,
                    isolation_level="read_committed",
                    enable_auto_commit=False,
                    auto_offset_reset="error",
                )
            )
            self.consumer.assign(
                [
                    TopicPartition(topic, partition, 0)
                    for topic in (INPUT, COPY)
                    for partition in range(PARTITIONS)
                ]
            )
        began = now()
        found = self.consumer.consume(self.chance.randint(1, 500), 0.1)
        for message in found:
            error = message.error()
            assert error is None or error.code() != KafkaError._AUTO_OFFSET_RESET, error
        reads = tuple(read_of(message) for message in found if not message.error())
        self.note(began=began, reads=reads)

    def close(self) -> None:
        if self.consumer is not None:
            self.consumer.close()


def read_of(message: Message) -> Read:
    partition = name_of(message.topic(), message.partition())
    return Read(partition, message.offset(), int(message.value()))


def ends_of(reads: Iterable[Read]) -> dict[str, int]:
    """The positions after reads."""
    return {read.partition: read.offset + 1 for read in reads}


def rows_of(ends: dict[str, int]) -> list[TopicPartition]:
    return [
        TopicPartition(topic, int(partition), offset)
        for key, offset in ends.items()
        for topic, partition in [key.split("/")]
    ]


WORKERS: tuple[tuple[str, type[Worker], int], ...] = (
    ("sender", Sender, 2),
    ("oldsender", OldSender, 2),
    ("transactor", Transactor, 2),
    ("copier", CopierProgram, 2),
    ("poller", Poller, 2),
    ("groupreader", GroupReader, 2),
)


class Workload:
    """All workers against one address, and their history."""

    def __init__(
        self, address: str, seed: int, more: Mapping[str, object] = MappingProxyType({})
    ) -> None:
        """`more`: settings of all clients."""
        self.address, self.seed, self.more = address, seed, more
        self.history = History()
        self.stopping = threading.Event()
        self.errors: list[tuple[str, Exception]] = []
        self.workers = [
            kind(self, f"{name}-{at}") for name, kind, count in WORKERS for at in range(count)
        ]
        for worker in self.workers:
            worker.thread.start()

    def stop(self) -> None:
        """Ends the workers. Raises the exception of a worker that died."""
        self.stopping.set()
        deadline = time.monotonic() + PATIENCE_S
        for worker in self.workers:
            worker.thread.join(max(deadline - time.monotonic(), 0.1))
            assert not worker.thread.is_alive(), f"{worker.name} does not end: {worker.where()}"
        for name, error in self.errors:
            raise AssertionError(f"{name} died") from error

    def where(self, kinds: Iterable[str]) -> str:
        """The stacks of the workers of these kinds, and what they have done."""
        stuck = [row.where() for row in self.workers if row.name.split("-")[0] in kinds]
        return "\n".join([self.tally(), *stuck])

    def hangs(self) -> int:
        """Returns how often a copier was killed because it hung."""
        return sum(one.hangs for one in self.workers if isinstance(one, CopierProgram))

    def tally(self) -> str:
        total: Counter[str] = Counter()
        for worker in self.workers:
            total += worker.tally
        return ", ".join(f"{name}: {count}" for name, count in sorted(total.items()))
