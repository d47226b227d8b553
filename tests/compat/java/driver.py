"""Apache Kafka's Java client of any release, behind Driver.java."""

import base64
import hashlib
import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compat.client import Client
from compat.support import Read, Sent, cache_dir, rival

SOURCE = Path(__file__).parent / "Driver.java"


def missing(version: str) -> str | None:
    """Why the client of a release cannot run here, or None."""
    if shutil.which("javac") is None:
        return "javac is not installed"
    return rival.missing(version)


def compiled(version: str, source: Path = SOURCE) -> Path:
    """The folder of a source's classes; compiles them against that release's jars if they are
    missing."""
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    folder = cache_dir() / "java" / f"{version}-{digest}"
    if not (folder / f"{source.stem}.class").exists():
        folder.mkdir(parents=True, exist_ok=True)
        libs = f"{rival.libs(version)}/*"
        subprocess.run(["javac", "-nowarn", "-cp", libs, "-d", folder, source], check=True)
    return folder


def quick_java(version: str, classes: Path, log: Path, heap: str) -> list[str]:
    """The start of a command line for a program that works for seconds: the name of one of these
    classes and arguments follow. A fast start matters more than speed. Its JVM maps Kafka's classes
    if their jars come first (kafka_classes.py)."""
    *start, libs = rival.java(version, log, rival.mapped(version, (heap, rival.QUICK)))
    return [*start, f"{libs}:{classes}"]


class JavaClient(Client):
    family = "java"
    version: str

    def __init__(self, address: str, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(address, settings)
        classes = compiled(self.version)
        start = quick_java(self.version, classes, classes / "driver.log", "-Xmx768M")
        more = [f"{name}={value}" for name, value in self.settings.items()]
        command = [*start, "Driver", address, *more]
        self._errors = open(classes / "driver.err", "w")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )

    def _ask(self, **order: Any) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the Java client ended: see {self._errors.name}"
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def transact(
        self, topic: str, values: Sequence[str], *, commit: bool, transactional_id: str,
        group: str | None = None, offset: int = 0,
    ) -> None:  # fmt: skip
        """One transaction in partition 0."""
        self._ask(
            do="transact", topic=topic, partition=0, id=transactional_id, values=list(values),
            commit=commit, group=group, offset=offset,
        )  # fmt: skip

    def committed(self, topic: str) -> tuple[list[str], int]:
        """The records of partition 0 that a reader of committed records sees, and its end
        offset."""
        told = self._ask(do="committed", topic=topic, partition=0)
        return told["values"], told["end"]

    def produce(
        self,
        topic: str,
        partition: int,
        records: Sequence[Sent],
        *,
        codec: str = "none",
        idempotent: bool = False,
    ) -> list[int] | None:
        listed = [
            {
                "key": text(record.key),
                "value": text(record.value),
                "timestamp": record.timestamp,
                "headers": [[name, text(value)] for name, value in record.headers],
            }
            for record in records
        ]
        order = {"topic": topic, "partition": partition, "records": listed}
        offsets: list[int] = self._ask(do="produce", codec=codec, idempotent=idempotent, **order)[
            "offsets"
        ]
        return offsets

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Read]:
        where = {"topic": topic, "partition": partition, "offset": offset}
        answer = self._ask(do="read", count=count, **where)
        return [
            Read(
                offset=record["offset"],
                timestamp=record["timestamp"],
                timestamp_type=record["timestamp_type"],
                key=data(record["key"]),
                value=data(record["value"]),
                headers=tuple((name, data(value)) for name, value in record["headers"]),
            )
            for record in answer["records"]
        ]

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        order = {"topic": topic, "partition": partition, "timestamp": timestamp}
        offset: int | None = self._ask(do="offset_at", **order)["offset"]
        return offset

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        rival.end(self._process)
        self._errors.close()


class JavaMember:
    """A member of a group, as test_groups.py wants it, in a JVM of its own."""

    client: type[JavaClient]

    def __init__(self, address: str, group: str, topic: str) -> None:
        self._java, self._at = self.client(address), {"topic": topic, "partition": 0}
        self._java._ask(do="join", group=group, **self._at)

    def poll(self) -> list[bytes]:
        return [value.encode() for value in self._java._ask(do="poll", **self._at)["values"]]

    def owned(self) -> set[int]:
        return set(self._java._ask(do="owned", **self._at)["partitions"])

    def commit(self) -> None:
        self._java._ask(do="commit", **self._at)

    def close(self) -> None:
        self._java._ask(do="leave", **self._at)
        self._java.close()


def text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def data(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)
