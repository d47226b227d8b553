"""A broker process that kills itself with SIGKILL before a system call that the test names, or in
which calls fail.

    python -m durability.armed_broker DIRECTORY [NAME=VALUE ...]

It prints "ready ADDRESS", then reads lines "CALL NTH PATH_PART" and prints "armed": the NTH such
call from then on, for a file whose path contains PATH_PART, is not made. For the line "calls" it
prints how many calls of each kind it has made since the first of these lines.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from barnabas import Broker
from barnabas.cext.memory.sys import SystemCalls

KINDS = ("pwritev", "fdatasync", "fsync_directory", "ftruncate", "open", "rename")
TESTS = Path(__file__).resolve().parents[1]


class ArmedBroker:
    """The process, for the test."""

    def __init__(self, data: Path, settings: dict[str, str]) -> None:
        command = [sys.executable, "-m", "durability.armed_broker", str(data)]
        self.process = subprocess.Popen(
            [*command, *(f"{name}={value}" for name, value in settings.items())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(TESTS)},
        )
        self.address = self._said().removeprefix("ready ")

    def _said(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().rstrip("\n")
        assert line, f"it ended with {self.process.wait(10)}"
        return line

    def kill_before(self, call: str, nth: int, path_part: str) -> None:
        assert self._asked(f"{call} {nth} {path_part}") == "armed"

    def calls(self) -> dict[str, int]:
        """How many calls of each kind it has made since the first kill_before()."""
        return json.loads(self._asked("calls"))

    def _asked(self, line: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self._said()

    def fault(self, **rule: object) -> int:
        """As SystemCalls.fault(); returns the number of the rule, for fired()."""
        return int(self._asked("fault " + json.dumps(rule)))

    def fired(self, rule: int) -> int:
        return int(self._asked(f"fired {rule}"))

    def clear_faults(self) -> None:
        assert self._asked("clear") == "cleared"

    def advance(self, seconds: int) -> None:
        """Moves its clock, as `Broker.clock.advance`."""
        assert self._asked(f"advance {seconds}") == "advanced"

    def killed(self, within_s: float = 0.0) -> bool:
        """Returns whether the fault has fired, or fires within a time."""
        try:
            return self.process.wait(within_s) == -9
        except subprocess.TimeoutExpired:
            return False

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


def answer_to(line: str, broker: Broker) -> object:
    word, _, rest = line.partition(" ")
    system: SystemCalls = broker.node.system
    if word == "advance":
        broker.clock.advance(seconds=int(rest))
        return "advanced"
    if word == "calls":
        return json.dumps({kind: system.calls(kind) for kind in KINDS})
    if word == "fault":
        return system.fault(**json.loads(rest))
    if word == "fired":
        return system.fired(int(rest))
    if word == "clear":
        system.clear_faults()
        return "cleared"
    nth, path_part = rest.split()
    system.fault(word, "kill", nth=int(nth), path_contains=path_part)
    return "armed"


def main(directory: str, *settings: str) -> None:
    given = {"log.dirs": directory, "listeners": "PLAINTEXT://127.0.0.1:0"}
    with Broker(given | dict(row.split("=", 1) for row in settings)) as broker:
        print("ready", broker.bootstrap_servers, flush=True)
        for line in sys.stdin:
            print(answer_to(line.rstrip("\n"), broker), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
