"""Apache Kafka's Java client of any release, behind Driver.java."""

import base64
import hashlib
import json
import shutil
import subprocess
from collections.abc import Sequence
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


def compiled(version: str) -> Path:
    """The folder of Driver.class, compiled against that release's jars unless it is already."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    folder = cache_dir() / "java" / f"{version}-{digest}"
    if not (folder / "Driver.class").exists():
        folder.mkdir(parents=True, exist_ok=True)
        libs = f"{rival.libs(version)}/*"
        subprocess.run(["javac", "-nowarn", "-cp", libs, "-d", folder, SOURCE], check=True)
    return folder


class JavaClient(Client):
    family = "java"
    version: str

    def __init__(self, address: str) -> None:
        super().__init__(address)
        classes = compiled(self.version)
        log = classes / "driver.log"
        *start, libs = rival.java(self.version, log, heap=("-Xmx768M",))
        # Quick to start matters more than quick to run: each driver has seconds of work.
        command = [*start, f"{classes}:{libs}", "Driver", address]
        command[1:1] = ["-XX:TieredStopAtLevel=1", "-Xshare:auto"]
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


def text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def data(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)
