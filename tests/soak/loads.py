"""The loads of a soak beside workload H: a probe, a compacted topic, a topic with retention, and
topics that are created and deleted. Each is a thread, and `check` reads back what it wrote."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import deque

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from history.workload import COMMON, PATIENCE_S

SEGMENT = {"segment.bytes": str(1 << 20)}
KEYS, KEPT_BYTES = 500, 8 << 20
LAST = 2000  # acknowledged records of the topic with retention that are read again
READ_S = 60.0


class Load:
    """A thread that repeats `step` until `stop`, which raises the exception that ended it."""

    topic, settings = "", SEGMENT

    def __init__(self, address: str) -> None:
        self.address = address
        self.count = 0  # of acknowledged records, or of topics
        self._error: Exception | None = None
        self._stopping, self._going = threading.Event(), threading.Event()
        self._going.set()
        self._busy = threading.Lock()
        if self.topic:
            create(address, self.topic, self.settings)
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._going.wait()
                with self._busy:
                    self.step()
        except Exception as error:
            self._error = error

    def step(self) -> None:
        raise NotImplementedError

    def checked(self) -> None:
        """Checks what was written, while nothing more is."""
        self._going.clear()
        try:
            with self._busy:
                self.raise_error()
                self.check()
        finally:
            self._going.set()

    def check(self) -> None:
        """Fails when a record is missing or wrong."""

    def raise_error(self) -> None:
        if self._error is not None:
            raise AssertionError(f"{type(self).__name__} died") from self._error

    def stop(self) -> None:
        self._stopping.set()
        self._going.set()
        self._thread.join(PATIENCE_S + 30)
        assert not self._thread.is_alive(), f"{type(self).__name__} does not end"
        self.raise_error()


def create(address: str, topic: str, settings: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": address, **COMMON})
    new = NewTopic(topic, 1, 1, config={"retention.ms": "-1", **settings})
    admin.create_topics([new], operation_timeout=10)[topic].result(20)


def producer_of(address: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "message.timeout.ms": int(PATIENCE_S * 1000),
            **COMMON,
        }
    )


class Probe(Load):
    """Produces one record at a time with acks=all, 200 a second at most, and times each."""

    topic, settings = "probe", {**SEGMENT, "retention.bytes": str(4 << 20)}

    def __init__(self, address: str) -> None:
        self._times_ms: list[float] = []
        self._producer = producer_of(address)
        super().__init__(address)

    def step(self) -> None:
        began = time.monotonic()
        self._producer.produce(self.topic, b"%d" % self.count, on_delivery=raise_failure)
        assert self._producer.flush(PATIENCE_S) == 0
        self._times_ms.append((time.monotonic() - began) * 1000)
        self.count += 1
        time.sleep(0.005)

    def take_p99_ms(self) -> float:
        """Returns the p99 since the last call; 0 when there was no record."""
        times, self._times_ms = sorted(self._times_ms), []
        return times[len(times) * 99 // 100] if times else 0.0


class Compacted(Load):
    """Writes growing numbers of keys to a compacted topic, 1,000 a second at most."""

    topic = "compacted"
    settings = {**SEGMENT, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.2"}

    def __init__(self, address: str) -> None:
        self._chance = random.Random(1)
        self._sent: dict[bytes, int] = {}
        self._known: dict[bytes, int] = {}
        self._numbers = itertools.count(1)
        self._producer = producer_of(address)
        super().__init__(address)

    def step(self) -> None:
        for _ in range(100):
            key, number = b"k%d" % self._chance.randrange(KEYS), next(self._numbers)
            self._sent[key] = number
            self._producer.produce(
                self.topic, b"%d %s" % (number, bytes(200)), key, on_delivery=self._told
            )
        assert self._producer.flush(PATIENCE_S) == 0
        time.sleep(0.1)

    def _told(self, error, message) -> None:
        raise_failure(error, message)
        self._known[message.key()] = int(message.value().split()[0])
        self.count += 1

    def check(self) -> None:
        last = {key: int(value.split()[0]) for _at, key, value in read(self.address, self.topic, 0)}
        assert last == self._known == self._sent, "a key has another value than its last one"


class Retained(Load):
    """Writes to a topic that keeps 8 MiB, 1 MB a second at most."""

    topic, settings = "retained", {**SEGMENT, "retention.bytes": str(KEPT_BYTES)}

    def __init__(self, address: str) -> None:
        self._last: deque[tuple[int, bytes]] = deque(maxlen=LAST)
        self._numbers = itertools.count()
        self._producer = producer_of(address)
        super().__init__(address)

    def step(self) -> None:
        for _ in range(100):
            value = b"%d %s" % (next(self._numbers), bytes(1000))
            self._producer.produce(self.topic, value, on_delivery=self._told)
        assert self._producer.flush(PATIENCE_S) == 0
        time.sleep(0.1)

    def _told(self, error, message) -> None:
        raise_failure(error, message)
        self._last.append((message.offset(), message.value()))
        self.count += 1

    def check(self) -> None:
        if not self._last:
            return
        wanted = dict(self._last)
        found = {at: value for at, _key, value in read(self.address, self.topic, min(wanted))}
        wrong = [at for at, value in wanted.items() if found.get(at) != value]
        assert not wrong, f"{len(wrong)} of {len(wanted)} records are missing: offset {wrong[0]}"


class Churn(Load):
    """Creates a topic, writes and reads, and deletes it. `interrupted`: how often a restart of the
    broker came between."""

    interrupted = 0

    def step(self) -> None:
        topic = f"churn-{self.count}-{self.interrupted}"
        admin = AdminClient({"bootstrap.servers": self.address, **COMMON})
        try:
            create(self.address, topic, SEGMENT)
            producer = producer_of(self.address)
            for number in range(50):
                producer.produce(topic, b"%d" % number, on_delivery=raise_failure)
            assert producer.flush(PATIENCE_S) == 0
            found = [value for _at, _key, value in read(self.address, topic, 0)]
            assert found == [b"%d" % number for number in range(50)]
            admin.delete_topics([topic], operation_timeout=10)[topic].result(20)
            self.count += 1
        except KafkaException:
            self.interrupted += 1
        time.sleep(0.5)


def raise_failure(error, _message) -> None:
    if error is not None:
        raise KafkaException(error)


def read(address: str, topic: str, start: int):
    """Yields offset, key and value of the records from an offset to the present end."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": f"read-{topic}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            **COMMON,
        }
    )
    consumer.assign([TopicPartition(topic, 0, start)])
    deadline = time.monotonic() + READ_S
    try:
        while time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.2):
                error = message.error()
                if error is None:
                    yield message.offset(), message.key(), message.value()
                elif error.code() == KafkaError._PARTITION_EOF:
                    return
                else:
                    raise KafkaException(error)
        raise AssertionError(f"{topic} was not read to its end in {READ_S} s")
    finally:
        consumer.close()
