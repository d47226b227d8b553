"""A control group with a limit of memory, for a broker of a test."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


class MemoryGroup:
    """A group below the top of the mounted tree."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.folder = folder
        self.is_v1 = folder.parent == V1
        name = "memory.limit_in_bytes" if self.is_v1 else "memory.max"
        (folder / name).write_text(str(limit_bytes))

    @property
    def prefix(self) -> list[str]:
        """The words before a command that begins in the group."""
        join = f'echo $$ > {self.folder}/cgroup.procs && exec "$@"'
        return ["/bin/sh", "-c", join, "sh"]

    @property
    def kills(self) -> int:
        """How many processes the kernel has killed at the limit."""
        text = (self.folder / ("memory.oom_control" if self.is_v1 else "memory.events")).read_text()
        return int(dict(line.split() for line in text.splitlines())["oom_kill"])


@contextlib.contextmanager
def memory_group(limit_bytes: int) -> Iterator[MemoryGroup]:
    """A group that has killed a process which used more than the limit."""
    folder = Path(tempfile.mkdtemp(prefix="barnabas-", dir=_top()))
    try:
        group = MemoryGroup(folder, limit_bytes)
        greedy = [*group.prefix, sys.executable, "-c", f"bytearray({2 * limit_bytes})"]
        assert subprocess.run(greedy, capture_output=True).returncode == -9
        assert group.kills == 1
        yield group
    finally:
        folder.rmdir()


def _top() -> Path:
    return V1 if (V1 / "memory.limit_in_bytes").exists() else V2


def missing() -> str | None:
    """Why no group can be made here."""
    top = _top()
    if not os.access(top / "cgroup.procs", os.W_OK):
        return f"{top} is not writable: a limit of memory needs root and control groups"
    given = V2 / "cgroup.subtree_control"
    if top == V2 and "memory" not in given.read_text().split():
        return f"{given} does not give memory to the groups below"
    return None
