"""Control groups (version 1 or 2) with a limit of memory, of threads or of processor time, for a
broker of a test."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
MEMORY, THREADS, CPU = "memory", "pids", "cpu"
LIMITS = {
    MEMORY: ("memory.limit_in_bytes", "memory.max"),
    THREADS: ("pids.max", "pids.max"),
    CPU: ("cpu.cfs_quota_us", "cpu.max"),  # microseconds of each tenth of a second
}
KILLS = ("memory.oom_control", "memory.events")


class Group:
    """A group below the top of the mounted tree."""

    def __init__(self, controller: str, folder: Path, limit: int) -> None:
        self.folder = folder
        self._is_v2 = folder.parent == ROOT
        self._limit = folder / LIMITS[controller][self._is_v2]
        self.limit(limit)

    def limit(self, most: int) -> None:
        self._limit.write_text(str(most))

    @property
    def prefix(self) -> list[str]:
        """The words before a command that begins in the group."""
        join = f'echo $$ > {self.folder}/cgroup.procs && exec "$@"'
        return ["/bin/sh", "-c", join, "sh"]

    @property
    def kills(self) -> int:
        """How many processes the kernel has killed at the limit of memory."""
        lines = (self.folder / KILLS[self._is_v2]).read_text().splitlines()
        return int(dict(line.split() for line in lines)["oom_kill"])


@contextlib.contextmanager
def _group(controller: str, limit: int) -> Iterator[Group]:
    folder = Path(tempfile.mkdtemp(prefix="barnabas-", dir=_top(controller)))
    try:
        yield Group(controller, folder, limit)
    finally:
        folder.rmdir()


@contextlib.contextmanager
def memory_group(limit_bytes: int) -> Iterator[Group]:
    """A group that has killed a process which used more than the limit."""
    with _group(MEMORY, limit_bytes) as group:
        greedy = [*group.prefix, sys.executable, "-c", f"bytearray({2 * limit_bytes})"]
        assert subprocess.run(greedy, capture_output=True).returncode == -9
        assert group.kills == 1
        yield group


@contextlib.contextmanager
def thread_group(threads_max: int) -> Iterator[Group]:
    with _group(THREADS, threads_max) as group:
        yield group


@contextlib.contextmanager
def cpu_group(percent: int) -> Iterator[Group]:
    """A group whose processes get `percent` of one processor."""
    with _group(CPU, percent * 1000) as group:
        yield group


def _top(controller: str) -> Path:
    first = ROOT / controller
    return first if (first / "cgroup.procs").exists() else ROOT


def missing(controller: str) -> str | None:
    """Why no group can be made here."""
    top = _top(controller)
    if not os.access(top / "cgroup.procs", os.W_OK):
        return f"{top} is not writable: a limit of {controller} needs root and control groups"
    given = ROOT / "cgroup.subtree_control"
    if top == ROOT and controller not in given.read_text().split():
        return f"{given} does not give {controller} to the groups below"
    return None
