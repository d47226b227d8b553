"""Node's clients kafkajs and @platformatic/kafka, driven by driver.mjs: a process for each."""

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compat.support import cache_dir, rival

HERE = Path(__file__).parent
NODE_MIN = 20


def modules() -> Path:
    """The folder where ./install puts the clients."""
    return cache_dir() / "node"


def missing() -> str | None:
    """Why Node's clients cannot run here, or None."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "node and npm are not installed"
    told = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"v(\d+)", told)
    if not found or int(found[1]) < NODE_MIN:
        return f"node {told.strip()} is older than {NODE_MIN}"
    wanted = (HERE / "package-lock.json").read_bytes()
    complete = modules() / "complete"
    if not complete.exists() or complete.read_bytes() != wanted:
        return f"no Node clients: run tests/compat/node/install {modules()}"
    return None


class NodeClient:
    """One client in a process of its own."""

    name: str

    def __init__(self, address: str, settings: Mapping[str, Any] | None = None) -> None:
        """`settings`: more of those that the client is made with, for TLS and logins."""
        more = json.dumps(dict(settings or {}))
        self._process = subprocess.Popen(
            ["node", HERE / "driver.mjs", self.name, modules(), address, more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **order: Any) -> dict[str, Any]:
        """Returns the answer. Raises RuntimeError with the error in the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"node ended with {self._process.poll()}"
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def transact(
        self, topic: str, values: Sequence[str], *, commit: bool, transactional_id: str,
        group: str | None = None, offset: int = 0,
    ) -> None:  # fmt: skip
        """One transaction in partition 0."""
        self.ask(
            do="transact", topic=topic, id=transactional_id, values=list(values), commit=commit,
            group=group, offset=offset,
        )  # fmt: skip

    def committed(self, topic: str, count: int) -> list[str]:
        """The records that a reader of committed records sees: `count` values, and any that come
        after them."""
        values: list[str] = self.ask(do="committed", topic=topic, count=count)["values"]
        return values

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            rival.end(self._process)
        self._process.stdout.close()


class KafkaJs(NodeClient):
    name = "kafkajs"


class Platformatic(NodeClient):
    name = "platformatic"


class Member:
    """A member of a group, with the interface of test_groups.py."""

    client: type[NodeClient]

    def __init__(self, address: str, group: str, topic: str) -> None:
        self._node = self.client(address)
        self._node.ask(do="join", group=group, topic=topic)

    def poll(self) -> list[bytes]:
        return [value.encode() for value in self._node.ask(do="poll")["values"]]

    def owned(self) -> set[int]:
        return set(self._node.ask(do="owned")["partitions"])

    def commit(self) -> None:
        self._node.ask(do="commit")

    def close(self) -> None:
        self._node.close()


class KafkaJsMember(Member):
    client = KafkaJs


class PlatformaticMember(Member):
    client = Platformatic
