"""Byte budgets on a small machine: the memory that the control group of this process allows.

A container or a service with a memory limit is a control group. The kernel kills the broker there
when it uses more, so no budget defaults to more than an eighth of that limit: together with the
memory of a broker without load they fit into 64 MB. With a quarter of it they did not. A budget
that is set has the value that was given.

The limit of a group is the smallest of its own and of those above it (cgroups(7)): `memory.max` of
version 2, `memory.limit_in_bytes` of version 1. Inside a container the path that /proc names may
not exist; then the top of the mounted tree is the group of the container.
"""

from collections.abc import Iterator
from pathlib import Path

BUDGETS = (
    "queued.max.request.bytes",
    "socket.request.max.bytes",
    "max.decompressed.bytes",
    "log.cleaner.dedupe.buffer.size",
)
PARTS = 8
NO_LIMIT = 1 << 60  # version 1 writes a number near 2**63 for "no limit"


def memory_limit(root: Path = Path("/")) -> int | None:
    """Returns the bytes that this process may use, None if no control group limits them. `root`:
    where /proc and /sys are."""
    found = [bytes_max for file in _files(root) if (bytes_max := _read(file)) is not None]
    return min(found, default=None)


def budget(bytes_max: int, limit_bytes: int | None) -> int:
    """Returns the bytes that a budget of `bytes_max` has within the limit."""
    return bytes_max if limit_bytes is None else min(bytes_max, limit_bytes // PARTS)


def _files(root: Path) -> Iterator[Path]:
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            top, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        group = top / path.strip("/")
        while group != top:
            yield group / name
            group = group.parent
        yield top / name


def _read(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() and int(text) < NO_LIMIT else None
