"""Setting aside what recovery cuts off a log, and counting the records in it.

    OFFSET.cut, OFFSET-N.cut     the bytes behind OFFSET, where the sound part of a log ended; or a
                                 whole segment of base offset OFFSET that lay behind them

The bytes begin with damage (or with a torn write), but batches behind it may be sound and may have
been acknowledged. Apache Kafka cuts them off as well and keeps nothing; it ignores these files.
They go with their partition; an operator removes them earlier. When there are more than FILES_MAX
of earlier recoveries the oldest are removed. Zeros, and a single batch that the file ends within,
are what a crash leaves of writes that were never acknowledged: they are not set aside.

After a crash half-way the log was not cut yet: the next opening finds the file and uses it again.
`barnabas log dump FILE` reads it. Next on the data path: cext/log/log_handle.pyx.
"""

import filecmp
import os
import struct
from collections.abc import Generator
from contextlib import closing
from typing import NamedTuple

from barnabas.cext.codec.crc import crc32c

SUFFIX = ".cut"
FILES_MAX = 8
PIECE_BYTES = 1 << 20
PAGE_BYTES = 4096  # of the zeros at the end are kept: a damaged batch may end in zeros
HEADER = struct.Struct(">qiibIhiqqqhii")  # of a batch v2
MAGIC_AT, CRC_FROM = 16, 21
NEWER_MAX = 2**31 - 1  # how far beyond the last offset one in the same segment may lie


class _Sound(NamedTuple):
    """Sound batches in a stretch of bytes, and where the last of them ends."""

    batches: int
    records: int
    end_offset: int
    end: int


class Cut(NamedTuple):
    """Bytes cut off a log: the file they are in now, "" when they held nothing; how many sound
    batches and records it holds, and the offset after the last of them (-1: none)."""

    path: str
    size_bytes: int
    batches: int
    records: int
    end_offset: int


def set_aside_tail(directory: str, base_offset: int, position: int, end_offset: int) -> Cut:
    """Copies the bytes of a segment from `position` on to a file of their own; the log's sound part
    ends at `end_offset`. Raises OSError when the copy of sound batches fails."""
    source = os.path.join(directory, f"{base_offset:020d}.log")
    with open(source, "rb", buffering=0) as file:
        fd = file.fileno()
        end = os.fstat(fd).st_size
        sound = _count(fd, position, end, end_offset)
        if not sound.batches and _is_unfinished_write(fd, position, end):
            return Cut("", end - position, 0, 0, -1)
        written_end = min(max(_end_of_data(fd, position, end) + PAGE_BYTES, sound.end), end)
        temporary = os.path.join(directory, f"{end_offset:020d}{SUFFIX}.tmp")
        try:
            _copy(fd, position, written_end, temporary)
            path = _name_for(directory, end_offset, temporary)
            os.rename(temporary, path)
            _sync_directory(directory)
        except OSError:
            if sound.batches:
                raise
            return Cut("", end - position, 0, 0, -1)
    return Cut(path, written_end - position, *sound[:3])


def set_aside_segment(directory: str, base_offset: int, end_offset: int) -> Cut:
    """Renames the .log of a segment that lies behind the cut; its other files are not touched."""
    source = os.path.join(directory, f"{base_offset:020d}.log")
    with open(source, "rb", buffering=0) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes == 0:
            return Cut("", 0, 0, 0, -1)
        found = _count(file.fileno(), 0, size_bytes, end_offset)
    path = _name_for(directory, base_offset, source)
    os.rename(source, path)
    return Cut(path, size_bytes, *found[:3])


def empty_batch(last_offset_delta: int) -> bytes:
    """A batch v2 without records that covers last_offset_delta + 1 offsets; the log stamps the
    first. Compaction leaves such batches (KIP-98), so every reader passes over them."""
    size = HEADER.size
    head = (0, size - 12, -1, 2, 0, 0, last_offset_delta, -1, -1, -1, -1, -1, 0)
    batch = HEADER.pack(*head)
    return HEADER.pack(*head[:4], crc32c(batch[CRC_FROM:]), *head[5:])


def remove_oldest(directory: str) -> list[str]:
    """Makes place for the files of a new recovery; the names that were removed."""
    names = [name for name in os.listdir(directory) if name.endswith(SUFFIX)]
    if len(names) < FILES_MAX:
        return []
    names.sort(key=lambda name: os.stat(os.path.join(directory, name)).st_mtime)
    gone = names[: len(names) - FILES_MAX + 1]
    for name in gone:
        os.unlink(os.path.join(directory, name))
    return gone


def _name_for(directory: str, offset: int, content: str) -> str:
    """A free name; or that of a file with the same content, left by a recovery that crashed."""
    number = 0
    while True:
        tail = f"-{number}" if number else ""
        path = os.path.join(directory, f"{offset:020d}{tail}{SUFFIX}")
        if not os.path.exists(path) or filecmp.cmp(path, content, shallow=False):
            return path
        number += 1


def _copy(fd: int, position: int, end: int, path: str) -> None:
    into = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        for piece in _pieces(fd, position, end):
            view = memoryview(piece)
            while view:
                view = view[os.write(into, view) :]
        os.fsync(into)
    finally:
        os.close(into)


def _sync_directory(directory: str) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _pieces(fd: int, position: int, end: int) -> Generator[bytes, None, None]:
    while position < end:
        piece = os.pread(fd, min(PIECE_BYTES, end - position), position)
        if not piece:
            return
        yield piece
        position += len(piece)


def _end_of_data(fd: int, position: int, end: int) -> int:
    """Where the zeros at the end begin: a preallocated segment has up to a gigabyte of them."""
    data_end = position
    with closing(_pieces(fd, position, end)) as pieces:
        for piece in pieces:
            data = piece.rstrip(b"\0")
            if data:
                data_end = position + len(data)
            position += len(piece)
    return data_end


def _is_unfinished_write(fd: int, position: int, end: int) -> bool:
    """Whether the bytes are zeros, or one batch that the file ends within."""
    if _end_of_data(fd, position, end) == position:
        return True
    head = os.pread(fd, 12, position)
    return len(head) < 12 or 12 + int.from_bytes(head[8:], "big", signed=True) > end - position


def _count(fd: int, position: int, end: int, from_offset: int) -> _Sound:
    """The sound batches v2 in [position, end) whose offsets ascend from `from_offset` on. Each byte
    may be the first of one: what is damaged may be a length."""
    batches, records, end_offset, sound_end = 0, 0, -1, position
    expected = from_offset
    while position + HEADER.size <= end:
        piece = os.pread(fd, min(PIECE_BYTES, end - position), position)
        if len(piece) < HEADER.size:
            break
        at = 0
        while (magic_at := piece.find(2, at + MAGIC_AT)) >= 0:
            at = magic_at - MAGIC_AT
            if at + HEADER.size > len(piece):
                break
            found = _sound_at(fd, piece, at, position, end, expected)
            if found is None:
                at += 1
                continue
            size_bytes, count, expected = found
            batches, records, end_offset = batches + 1, records + count, expected
            at += size_bytes
            sound_end = position + at
            if at + HEADER.size > len(piece):
                break
        if magic_at < 0:
            at = len(piece) - HEADER.size + 1
        position += max(at, 1)
    return _Sound(batches, records, end_offset, sound_end)


def _sound_at(
    fd: int, piece: bytes, at: int, position: int, end: int, expected: int
) -> tuple[int, int, int] | None:
    """(size, records, next offset) of the batch at piece[at:], when there is one."""
    base, length, _, _, crc, _, last_delta, *_, count = HEADER.unpack_from(piece, at)
    size_bytes = 12 + length
    if not HEADER.size <= size_bytes <= end - position - at or last_delta < 0 or count < 0:
        return None
    if not expected <= base <= expected + NEWER_MAX:
        return None
    batch = piece[at : at + size_bytes]
    if len(batch) < size_bytes:
        batch = os.pread(fd, size_bytes, position + at)
    if crc32c(batch[CRC_FROM:]) != crc:
        return None
    return size_bytes, count, base + last_delta + 1
