"""Kafka's command line tools in one JVM, behind ToolRunner.java."""

import json
import select
import subprocess
from pathlib import Path
from typing import NamedTuple

from compat.java.driver import compiled
from compat.support import rival

SOURCE = Path(__file__).parent / "ToolRunner.java"
TIMEOUT_S = 60
QUICK = ("-Xmx256M", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xlog:disable")


class Ran(NamedTuple):
    status: int
    out: str
    err: str


class ToolRunner:
    """The tools of one release. Each call runs a tool from its start to its end."""

    def __init__(self, version: str, folder: Path) -> None:
        tools = rival.libs(version) / f"kafka-tools-{version}.jar"
        others = sorted(path for path in rival.libs(version).glob("*.jar") if path != tools)
        *start, _ = rival.java(version, folder / "tools.log", heap=QUICK)
        path = ":".join(map(str, (compiled(version, SOURCE), *others)))
        self._errors = open(folder / "tools.err", "w")
        self._process = subprocess.Popen(
            [*start, path, "ToolRunner", str(tools)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
        )  # fmt: skip

    def run(self, verb: str, *arguments: str, given: str = "") -> Ran:
        """`given`: what the tool reads on stdin. Raises TimeoutError."""
        assert self._process.stdin is not None and self._process.stdout is not None
        order = {"main": rival.TOOLS[verb], "arguments": arguments, "given": given}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], TIMEOUT_S)[0]:
            raise TimeoutError(f"{verb} did not end within {TIMEOUT_S} s")
        line = self._process.stdout.readline()
        assert line, f"the JVM ended: see {self._errors.name}"
        return Ran(**json.loads(line))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        rival.end(self._process)
        self._errors.close()
