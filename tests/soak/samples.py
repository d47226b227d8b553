"""What a broker uses in the course of time, and whether that grows.

A process is sampled from outside: memory of its own (RssAnon, without the files that it maps),
descriptors, threads, the blocks of its data directory on disk, and the p99 of a probe. `growths`
compares the first and the last third of one process, by the median.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

MB = 1 << 20
FEWEST = 9  # samples of one process that can be judged


class Sample(NamedTuple):
    """`at_s`: since the begin of the run; `pid`: of the process."""

    at_s: float
    pid: int
    memory_bytes: int
    descriptors: int
    threads: int
    disk_bytes: int
    p99_ms: float


class Limit(NamedTuple):
    """The last third may have `factor` times the first third, and `more`."""

    factor: float
    more: float


LIMITS = {
    "memory_bytes": Limit(1.1, 4 * MB),
    "descriptors": Limit(1.1, 10),
    "threads": Limit(1.0, 4),
    "disk_bytes": Limit(1.25, 8 * MB),
    "p99_ms": Limit(2.0, 2.0),
}


class Growth(NamedTuple):
    """A value that is not flat: the medians of the first and of the last third."""

    name: str
    first: float
    last: float


def growths(samples: Sequence[Sample]) -> list[Growth]:
    """Returns what has grown in the samples of one process. Raises ValueError when there are too
    few to judge."""
    if len({row.pid for row in samples}) != 1 or len(samples) < FEWEST:
        raise ValueError(f"{len(samples)} samples of one process cannot be judged")
    third = len(samples) // 3
    found = []
    for name, limit in LIMITS.items():
        first = median(getattr(row, name) for row in samples[:third])
        last = median(getattr(row, name) for row in samples[-third:])
        if last > first * limit.factor + limit.more:
            found.append(Growth(name, first, last))
    return found


def sample(pid: int, data: Path, at_s: float, p99_ms: float) -> Sample:
    """Raises OSError when the process has ended."""
    status = Path(f"/proc/{pid}/status").read_text()
    return Sample(
        at_s,
        pid,
        _number(status, "RssAnon") << 10,
        len(os.listdir(f"/proc/{pid}/fd")),
        _number(status, "Threads"),
        _bytes_below(data),
        p99_ms,
    )


def _number(status: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+)", status, re.M)
    if found is None:
        raise ProcessLookupError(f"a process without {name} has ended")
    return int(found[1])


def _bytes_below(folder: Path) -> int:
    total = 0
    for place, _folders, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # a segment was deleted meanwhile
                total += os.stat(os.path.join(place, name)).st_blocks * 512
    return total


class Sampler:
    """A thread that samples the broker of the moment until `stop`."""

    def __init__(
        self, pid: Callable[[], int], data: Path, p99_ms: Callable[[], float], every_s: float
    ) -> None:
        self.samples: list[Sample] = []
        self._pid, self._data, self._p99_ms, self._every_s = pid, data, p99_ms, every_s
        self._began = time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            at_s = time.monotonic() - self._began
            with contextlib.suppress(OSError):  # between two processes
                self.samples.append(sample(self._pid(), self._data, at_s, self._p99_ms()))

    def of_process(self, pid: int) -> list[Sample]:
        return [row for row in self.samples if row.pid == pid]

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
