"""Apache Kafka's Java share consumers (KIP-932), behind ShareDriver.java: one JVM, many members."""

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from compat.java.driver import compiled, quick_java
from compat.support import rival

SOURCE = Path(__file__).parent / "ShareDriver.java"
Row = tuple[str, int, int, str, int]  # topic, partition, offset, value, deliveries


class ShareClients:
    """The share consumers of one process."""

    def __init__(self, version: str, address: str, folder: Path) -> None:
        classes = compiled(version, SOURCE)
        start = quick_java(version, classes, folder / "share-driver.log", "-Xmx256M")
        command = [*start, "ShareDriver", address]
        self._errors = open(folder / "share-driver.err", "w")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )

    def ask(self, do: str, name: str, **order: Any) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": do, "name": name, **order}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the Java client ended: see {self._errors.name}"
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def open(self, name: str, group: str, topics: Iterable[str], **settings: str) -> "Member":
        named = {key.replace("_", "."): value for key, value in settings.items()}
        self.ask("open", name, group=group, topics=list(topics), settings=named)
        return Member(self, name)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        rival.end(self.process)
        self._errors.close()


class Member:
    """One share consumer."""

    def __init__(self, clients: ShareClients, name: str) -> None:
        self._clients = clients
        self.name = name

    def poll(self, ms: int = 300) -> list[Row]:
        told = self._clients.ask("poll", self.name, ms=ms)["records"]
        return [(r["topic"], r["partition"], r["offset"], r["value"], r["count"]) for r in told]

    def poll_until(self, count: int, polls: int = 60, ms: int = 300) -> list[Row]:
        """Polls until there are `count` records, or until nothing more comes."""
        found: list[Row] = []
        for _ in range(polls):
            found += self.poll(ms)
            if len(found) >= count:
                break
        return found

    def acknowledge(self, row: Row, kind: str) -> None:
        topic, partition, offset = row[:3]
        self._clients.ask(
            "acknowledge", self.name, topic=topic, partition=partition, offset=offset, type=kind
        )

    def commit(self) -> dict[str, str]:
        told: dict[str, str] = self._clients.ask("commit", self.name)["partitions"]
        return told

    def close(self) -> None:
        self._clients.ask("close", self.name)
