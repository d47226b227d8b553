"""Apache Kafka's Java clients of 0.8.2 to 0.10, and the oldest versions that kafka-python has.

`Row` is a record as a client tells it: a timestamp of -1 where its protocol version has none.
"""

import base64
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import kafka.codec
from compat.java import driver
from compat.java.driver import compiled
from compat.support import cache_dir, rival
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from telemetry.conftest import Watched

from barnabas import Broker
from barnabas.cext.codec.inflate import hash32

HERE = driver.SOURCE.parents[1] / "old_java"


class Row(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


@contextmanager
def watched_broker(folder: Path) -> Iterator[Watched]:
    """A broker that keeps records of any age, and its page of metrics."""
    settings = {
        "log.dirs": str(folder),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "metrics.port": "0",
        "group.initial.rebalance.delay.ms": "0",
        "log.retention.ms": "-1",
    }
    with Broker(settings) as broker:
        yield Watched(broker)


class Lines:
    """One of the Java programs of this folder: a line of words in, a line of words out."""

    def __init__(self, version: str, program: str, address: str) -> None:
        classes = compiled(version, HERE / f"{program}.java")
        log = cache_dir() / "java" / f"{program}-{version}"
        *start, libs = rival.java(version, f"{log}.log")
        start[1:1] = ["-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        self._errors = open(f"{log}.err", "w")
        self._process = subprocess.Popen(
            [*start, f"{classes}:{libs}", program, address],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
        )  # fmt: skip

    def ask(self, *words: object) -> list[str]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\t".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line.endswith("\n"), f"the program ended: see {self._errors.name}"
        if line.startswith("error"):
            raise RuntimeError(line)
        return [word for word in line.rstrip("\n").split("\t") if word]

    def close(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        rival.end(self._process)
        self._errors.close()


class JavaProducer:
    def __init__(self, version: str, address: str) -> None:
        self._lines = Lines(version, "OldProducer", address)

    def produce(self, topic: str, codec: str, records: Sequence[Row]) -> list[int]:
        words = [f"{text(r.key)}:{text(r.value)}:{r.timestamp}" for r in records]
        return [int(word) for word in self._lines.ask(codec, topic, 0, *words)]

    def close(self) -> None:
        self._lines.close()


class JavaConsumer:
    """`program`: OldConsumer, or SimpleReader for Scala's SimpleConsumer."""

    def __init__(self, version: str, address: str, program: str = "OldConsumer") -> None:
        self.lines = Lines(version, program, address)

    def read(self, topic: str, offset: int, count: int) -> list[Row]:
        return [row_of(word) for word in self.lines.ask("read", topic, 0, offset, count)]

    def close(self) -> None:
        self.lines.close()


class Hash:
    """xxhash.xxh32, which kafka-python wants for lz4 in format 0 and nothing here installs."""

    def __init__(self, data: bytes) -> None:
        self._value = hash32(bytes(data))

    def digest(self) -> bytes:
        return self._value.to_bytes(4, "big")


if kafka.codec.xxhash is None:
    kafka.codec.xxhash = SimpleNamespace(xxh32=Hash)


class PythonProducer:
    """kafka-python, told that the broker is of an old release."""

    def __init__(self, release: tuple[int, ...], address: str) -> None:
        self._release, self._address = release, address

    def produce(self, topic: str, codec: str, records: Sequence[Row]) -> list[int]:
        producer = KafkaProducer(
            bootstrap_servers=self._address, api_version=self._release, acks="all", linger_ms=50,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=False,
        )  # fmt: skip
        stamps = self._release >= (0, 10)
        sent = [
            producer.send(
                topic, r.value, r.key, partition=0, timestamp_ms=r.timestamp if stamps else None
            )
            for r in records
        ]
        found = [one.get(20).offset for one in sent]
        producer.close()
        return found

    def close(self) -> None:
        pass


class PythonConsumer:
    def __init__(self, release: tuple[int, ...], address: str) -> None:
        self._release, self._address = release, address

    def read(self, topic: str, offset: int, count: int) -> list[Row]:
        consumer = KafkaConsumer(
            bootstrap_servers=self._address, api_version=self._release, group_id=None,
            consumer_timeout_ms=20_000, check_crcs=True,
        )  # fmt: skip
        part = TopicPartition(topic, 0)
        consumer.assign([part])
        consumer.seek(part, offset)
        found: list[Row] = []
        for record in consumer:
            stamp = -1 if record.timestamp is None else record.timestamp
            found.append(Row(record.offset, record.key, record.value, stamp))
            if len(found) == count:
                break
        consumer.close()
        return found

    def close(self) -> None:
        pass


def text(data: bytes | None) -> str:
    return "-" if data is None else base64.b64encode(data).decode()


def row_of(word: str) -> Row:
    offset, key, value, timestamp = word.split(":")
    fields = [None if field == "-" else base64.b64decode(field) for field in (key, value)]
    return Row(int(offset), fields[0], fields[1], int(timestamp))
