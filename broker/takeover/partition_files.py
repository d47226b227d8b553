"""The files of a partition that an import takes, their copies, and what is in them.

    taken        B.log .index .timeindex .txnindex, OFFSET.snapshot, leader-epoch-checkpoint,
                 partition.metadata; NAME.swap, which the first start finishes as Kafka would
    left         NAME.deleted, NAME.cleaned, NAME.tmp: Kafka removes them at its next start

A copy is read back and compared by its CRC-32C. Runs of zeros (preallocated indexes) become holes.
The time of the last change is kept: retention uses it for segments without timestamps.
"""

from __future__ import annotations

import errno
import os
import re
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from barnabas.cext.codec.crc import crc32c
from barnabas.cext.record.records import CorruptRecords
from barnabas.storage.checkpoints import LEADER_EPOCHS, PARTITION_METADATA
from barnabas.storage.log_dirs import FailedDirectory, UnusableDirectory
from barnabas.storage.partition_dirs import ORIGINAL_SEGMENT
from barnabas.takeover.stored_batches import INFLATED_BYTES_MAX, mapped
from barnabas.wire.batches import batch_at

PIECE_BYTES = 1 << 20
NAME = re.compile(r"\d{20}\.(log|index|timeindex|txnindex|snapshot)(\.swap)?")
SEGMENTS = (".log", ORIGINAL_SEGMENT)
TEXT_FILES = (LEADER_EPOCHS, PARTITION_METADATA)
_HEAD = struct.Struct(">qi4xb")  # base offset, length, magic
_LAST_DELTA, _COUNT = struct.Struct(">i"), struct.Struct(">i")
HEAD_V2_BYTES = 61

Progress = Callable[[int, int], object]  # records and bytes since the last call


class PartitionFile(NamedTuple):
    """A file and its size in bytes."""

    path: Path
    size_bytes: int

    @property
    def is_segment(self) -> bool:
        return self.path.suffix in SEGMENTS


class Content(NamedTuple):
    """What the segments of a partition hold. `crc`: CRC-32C of all of them, the oldest first;
    `damage`: file, position and reason, of batches that cannot be counted."""

    segments: int
    size_bytes: int
    records: int
    start_offset: int
    end_offset: int
    crc: int
    damage: tuple[str, ...] = ()


def files_of(directory: Path) -> list[PartitionFile]:
    """Returns the files to take, in the order of their names. Raises UnusableDirectory for a link
    or a directory among them, FailedDirectory."""
    if directory.is_symlink():
        raise UnusableDirectory(
            f"{directory} is a symbolic link. Give the log directory that it leads to."
        )
    found = []
    try:
        for entry in sorted(os.scandir(directory), key=lambda row: row.name):
            if entry.name not in TEXT_FILES and not NAME.fullmatch(entry.name):
                continue
            path = directory / entry.name
            if not entry.is_file(follow_symlinks=False):
                raise UnusableDirectory(f"{path} is not a plain file. Replace it by one.")
            found.append(PartitionFile(path, entry.stat(follow_symlinks=False).st_size))
    except OSError as error:
        raise FailedDirectory(f"cannot read {directory}", error) from error
    return found


def content_of(files: Sequence[PartitionFile], progress: Progress) -> Content:
    """Counts and sums what segment files hold. Raises FailedDirectory."""
    crc, records, size_bytes, count = 0, 0, 0, 0
    start, end, damage = -1, 0, []
    for row in files:
        if not row.is_segment:
            continue
        data = mapped(row.path)
        crc = crc32c(data, crc)
        base = int(row.path.stem)
        start = base if start < 0 else start
        found, last, problem = _walk(data)
        if problem:
            damage.append(f"{row.path}: {problem}")
        end = max(base, last + 1)
        count, records, size_bytes = count + 1, records + found, size_bytes + len(data)
        progress(found, len(data))
    return Content(count, size_bytes, records, max(start, 0), end, crc, tuple(damage))


def _walk(data: memoryview) -> tuple[int, int, str]:
    """Returns the number of records of a segment, the offset of the last one (-1 without one), and
    where the walk ended early, "" where it did not."""
    at, records, last, size = 0, 0, -1, len(data)
    while at + _HEAD.size <= size:
        base, length, magic = _HEAD.unpack_from(data, at)
        if length == 0 and base == 0 and not any(data[at : at + 64]):
            return records, last, ""  # preallocated
        after = at + 12 + length
        if length <= 0 or after > size:
            return records, last, f"byte {at}: {size - at} bytes at the end are no whole batch"
        if magic == 2 and length + 12 >= HEAD_V2_BYTES:
            records += _COUNT.unpack_from(data, at + 57)[0]
            last = base + _LAST_DELTA.unpack_from(data, at + 23)[0]
        else:
            try:
                batch = batch_at(data[at:after], 0, INFLATED_BYTES_MAX)
                records, last = records + batch.count, batch.last_offset
            except CorruptRecords as error:
                return records, last, f"byte {at}: {error}"
        at = after
    if at < size and any(data[at:]):  # less than the head of a batch
        return records, last, f"byte {at}: {size - at} bytes at the end are no whole batch"
    return records, last, ""


def link_file(row: PartitionFile, target: Path) -> bool:
    """Makes a second name for a sealed segment, which Kafka does not change, and this broker copies
    before it does (cext/log/linked_file.pyx). Returns False where the file system cannot. Raises
    FailedDirectory."""
    try:
        os.link(row.path, target, follow_symlinks=False)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
            return False
        raise FailedDirectory(f"cannot link {row.path} to {target}", error) from error
    return True


def copy_file(row: PartitionFile, target: Path) -> None:
    """Copies a file and compares the copy. Raises UnusableDirectory when they differ,
    FailedDirectory."""
    try:
        written = _copy(row, target)
    except OSError as error:
        raise FailedDirectory(f"cannot copy {row.path} to {target}", error) from error
    if crc32c(mapped(target)) != written:
        raise UnusableDirectory(
            f"{target} differs from {row.path} after it was copied. Check the disks."
        )


def _copy(row: PartitionFile, target: Path) -> int:
    crc, left = 0, row.size_bytes
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    source = os.open(row.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    with open(source, "rb", buffering=0) as reader:
        with open(os.open(target, flags, 0o644), "wb", buffering=0) as writer:
            while left and (piece := reader.read(min(left, PIECE_BYTES))):
                crc = crc32c(piece, crc)
                left -= len(piece)
                if piece == bytes(len(piece)):
                    writer.seek(len(piece), os.SEEK_CUR)
                else:
                    view = memoryview(piece)
                    while view:
                        view = view[writer.write(view) :]
            writer.truncate(row.size_bytes - left)
        stat = os.fstat(reader.fileno())
    os.utime(target, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    if left:
        raise UnusableDirectory(f"{row.path} became smaller while it was copied.")
    return crc
