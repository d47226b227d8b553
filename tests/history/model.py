"""A history: the operations of each process, their times, and their results.

Times are monotonic nanoseconds of one machine, so operations of several programs can be put in
order. A partition is a string, "topic/index". A value is a number that is sent once in a whole
history. Offsets of a group are fetched with "require stable", as librdkafka does.

`outcome` is FAIL only when it is certain that nothing was done: an acknowledged abort, an
error that a broker gives before it writes, a client that died before it asked for its commit.
Timeouts and lost connections are UNKNOWN: the records may exist, or may appear later.
"""

import json
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path


class Outcome(StrEnum):
    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Send:
    """`offset`: the acknowledged one. `outcome` None: that of the operation, as always
    in a transaction. `source`: the value of which this one is a copy."""

    partition: str
    value: int
    offset: int | None = None
    outcome: Outcome | None = None
    source: int | None = None


@dataclass(frozen=True)
class Read:
    partition: str
    offset: int
    value: int


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One call, or one transaction from its begin to its end. `ended` None: it did not return."""

    process: str
    began: int
    ended: int | None
    outcome: Outcome = Outcome.OK
    sends: tuple[Send, ...] = ()
    reads: tuple[Read, ...] = ()
    transactional: bool = False
    deciding: int | None = None  # when the commit was asked for
    fresh: bool = False  # reads begin anywhere: after an assignment or a seek
    scan: bool = False  # part of a read of whole partitions, from start to end
    scanned: tuple[str, ...] = ()  # the partitions that this scan covers, empty ones too
    group: str = ""
    commits: Mapping[str, int] = field(default_factory=dict)  # committed to the group
    positions: Mapping[str, int | None] = field(default_factory=dict)  # fetched from the group


class History:
    """Operations as they end, from any thread."""

    def __init__(self, operations: Iterable[Operation] = ()) -> None:
        self._lock = threading.Lock()
        self._operations = list(operations)
        self._values = 0

    def add(self, operation: Operation) -> None:
        with self._lock:
            self._operations.append(operation)

    def decides(self, operation: Operation) -> None:
        """Takes a transaction whose commit is about to be asked for; `add` follows, unless its
        client dies."""

    def new_value(self) -> int:
        with self._lock:
            self._values += 1
            return self._values

    def operations(self) -> list[Operation]:
        with self._lock:
            return sorted(self._operations, key=lambda one: one.began)

    def save(self, path: Path) -> None:
        path.write_text("".join(dump(one) + "\n" for one in self.operations()))

    @classmethod
    def load(cls, path: Path) -> "History":
        return cls(parse(line) for line in path.read_text().splitlines())


def now() -> int:
    return time.monotonic_ns()


def dump(operation: Operation) -> str:
    return json.dumps(asdict(operation))


def parse(line: str) -> Operation:
    row = json.loads(line)
    sends = []
    for send in row.pop("sends"):
        said = send.pop("outcome")
        sends.append(Send(**send, outcome=said and Outcome(said)))
    reads = tuple(Read(**read) for read in row.pop("reads"))
    outcome, scanned = Outcome(row.pop("outcome")), tuple(row.pop("scanned"))
    return Operation(**row, outcome=outcome, sends=tuple(sends), reads=reads, scanned=scanned)
