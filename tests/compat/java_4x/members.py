"""Members of groups in one JVM, behind Members.java."""

import json
import subprocess
from pathlib import Path
from typing import Any

from compat.java.driver import compiled, missing, quick_java
from compat.support import KAFKA

SOURCE = Path(__file__).parent / "Members.java"


def cannot_run() -> str | None:
    return missing(KAFKA)


class JavaMembers:
    """The JVM; `open` makes one member."""

    def __init__(self, address: str) -> None:
        classes = compiled(KAFKA, SOURCE)
        start = quick_java(KAFKA, classes, classes / "members.log", "-Xmx256M")
        command = [*start, "Members", address]
        self._errors = open(classes / "members.err", "w")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self._count = 0

    def ask(self, **order: Any) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the Java members ended: see {self._errors.name}"
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def open(self, group: str, *topics: str, pattern: str | None = None, **settings: str) -> "Java":
        self._count += 1
        name = f"member-{self._count}"
        given = {key.replace("_", "."): value for key, value in settings.items()}
        what: dict[str, Any] = {"pattern": pattern} if pattern else {"topics": list(topics)}
        self.ask(do="open", name=name, settings=given | {"group.id": group}, **what)
        return Java(self, name)

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._errors.close()


class Java:
    """One of them."""

    def __init__(self, members: JavaMembers, name: str) -> None:
        self._members = members
        self._name = name
        self.partitions: set[str] = set()
        self.events: list[str] = []
        self.epoch = -1

    def poll(self) -> list[bytes]:
        told = self._members.ask(do="poll", name=self._name, ms=100)
        self.partitions = set(told["owned"])
        self.events += told["events"]
        self.epoch = told["epoch"]
        return [value.encode() for value in told["values"]]

    def owned(self) -> set[int]:
        return {int(name.rpartition("-")[2]) for name in self.partitions}

    def commit(self) -> None:
        self._members.ask(do="commit", name=self._name)

    def close(self) -> None:
        self.events += self._members.ask(do="close", name=self._name)["events"]
        self.partitions = set()
