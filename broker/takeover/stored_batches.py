"""Batches of a stopped broker's segment files, in their order."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from barnabas.cext.record.records import CorruptRecords
from barnabas.storage.log_dirs import FailedDirectory
from barnabas.wire.batches import Batch, decode_batches

INFLATED_BYTES_MAX = 256 * 1024 * 1024


class DamagedSegment(Exception):
    """Bytes of a segment are not a batch: `path`, `position` and why."""

    def __init__(self, path: Path, position: int, reason: str) -> None:
        super().__init__(f"{path}: damaged at byte {position} ({reason})")
        self.path, self.position, self.reason = path, position, reason


def mapped(path: Path) -> memoryview:
    """Returns the mapped bytes of a file. Raises FailedDirectory."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise FailedDirectory(f"cannot read {path}", error) from error
    with open(fd, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def segments(directory: Path) -> list[Path]:
    """Returns the segment files of a partition, the oldest first."""
    return sorted(path for path in directory.glob("*.log") if path.stem.isdecimal())


def batches_of(path: Path) -> Iterator[Batch]:
    """Yields the batches of a file up to its end or to the zeros of a preallocated one. Raises
    DamagedSegment, FailedDirectory."""
    data = mapped(path)
    position = 0
    while position < len(data):
        length = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
        if length == 0 and not any(data[position : position + 64]):
            return
        size_bytes = 12 + length
        if length <= 0 or position + size_bytes > len(data):
            raise DamagedSegment(path, position, "it ends within a batch")
        try:
            yield next(
                decode_batches(data[position : position + size_bytes], size_max=INFLATED_BYTES_MAX)
            )
        except (CorruptRecords, StopIteration) as error:
            raise DamagedSegment(path, position, str(error)) from error
        position += size_bytes
