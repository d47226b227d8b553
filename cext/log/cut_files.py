"""Keeps the bytes that recovery cuts off a log in files, and counts the records in them.

    OFFSET.cut, OFFSET-N.cut     the bytes behind OFFSET, where the sound part of the log ended; or
    a
                                 whole segment with base offset OFFSET that lay behind them

The bytes begin with damage or with a torn write, but batches behind it may be sound and may have
been acknowledged. Apache Kafka cuts them off as well and keeps nothing; it ignores these files.
They are deleted with their partition; an operator may delete them earlier. When a log has more than
FILES_MAX from earlier recoveries, the oldest are deleted. A crash may leave zeros, or one batch
whose end is missing, of writes that were never acknowledged: these are not kept.

If a crash interrupts this, the log is not cut yet: the next opening finds the file and uses it
again. `barnabas log dump FILE` reads such a file. Next on the data path: cext/log/log_handle.pyx.
"""

import filecmp
import os
import struct
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import NamedTuple

from barnabas.cext.codec.crc import crc32c

SUFFIX = ".cut"
FILES_MAX = 8
PIECE_BYTES = 1 << 20
PAGE_BYTES = 4096  # so many zeros at the end are kept: a damaged batch may end in zeros
HEADER = struct.Struct(">qiibIhiqqqhii")  # the header of a batch v2
MAGIC_AT, CRC_FROM = 16, 21
NEWER_MAX = 2**31 - 1  # a batch's base offset may exceed the expected one by this


class _Sound(NamedTuple):
    """The sound batches in a range of bytes, and the position where the last of them ends."""

    batches: int
    records: int
    end_offset: int
    end: int


class Cut(NamedTuple):
    """Bytes that were cut off a log.

    `path`: the file that has them now, "" when they were not kept; `size_bytes`; the number of
    sound `batches` and `records` in them; `end_offset`: the offset after the last of these, -1
    without any."""

    path: str
    size_bytes: int
    batches: int
    records: int
    end_offset: int


def set_aside_tail(directory: str, base_offset: int, position: int, end_offset: int) -> Cut:
    """Copies the bytes of a segment's .log from `position` on to a new file.

    `end_offset`: where the sound part of the log ends. Returns a Cut. Raises OSError when the copy
    fails and the bytes contain sound batches."""
    source = os.path.join(directory, f"{base_offset:020d}.log")
    with open(source, "rb", buffering=0) as file:
        fd = file.fileno()
        end = os.fstat(fd).st_size
        sound = _count(fd, position, end, end_offset)
        if not sound.batches and is_unfinished_write(fd, position, end):
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
    """Renames the .log of a segment behind the cut, and leaves its other files as they are. Returns
    a Cut; an empty .log is not renamed. Raises OSError."""
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
    """Returns a batch v2 without records that covers `last_offset_delta` + 1 offsets; the append
    sets its base offset. Compaction leaves such batches (KIP-98), so every reader skips them."""
    size = HEADER.size
    head = (0, size - 12, -1, 2, 0, 0, last_offset_delta, -1, -1, -1, -1, -1, 0)
    batch = HEADER.pack(*head)
    return HEADER.pack(*head[:4], crc32c(batch[CRC_FROM:]), *head[5:])


def remove_oldest(directory: str) -> list[str]:
    """Deletes the oldest .cut files, so that fewer than FILES_MAX remain. Returns their names.
    Raises OSError."""
    names = [name for name in os.listdir(directory) if name.endswith(SUFFIX)]
    if len(names) < FILES_MAX:
        return []
    names.sort(key=lambda name: os.stat(os.path.join(directory, name)).st_mtime)
    gone = names[: len(names) - FILES_MAX + 1]
    for name in gone:
        os.unlink(os.path.join(directory, name))
    return gone


def _name_for(directory: str, offset: int, content: str) -> str:
    """Returns a free name, or the name of a file with the same content that a crashed recovery
    left."""
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
    """Returns the position where the zeros at the end begin; a preallocated segment has up to 1 GB
    of them."""
    data_end = position
    with closing(_pieces(fd, position, end)) as pieces:
        for piece in pieces:
            data = piece.rstrip(b"\0")
            if data:
                data_end = position + len(data)
            position += len(piece)
    return data_end


def is_unfinished_write(fd: int, position: int, end: int) -> bool:
    """Whether the bytes are zeros, or one batch whose end is missing."""
    if _end_of_data(fd, position, end) == position:
        return True
    head = os.pread(fd, 12, position)
    return len(head) < 12 or 12 + int.from_bytes(head[8:], "big", signed=True) > end - position


def _count(fd: int, position: int, end: int, from_offset: int) -> _Sound:
    """Counts the sound batches v2 in [position, end) whose offsets ascend from `from_offset` on."""
    batches, records, end_offset, sound_end = 0, 0, -1, position
    for at, size_bytes, count, next_offset in sound_batches(fd, position, end, from_offset):
        batches, records, end_offset = batches + 1, records + count, next_offset
        sound_end = at + size_bytes
    return _Sound(batches, records, end_offset, sound_end)


def sound_batches(
    fd: int, position: int, end: int, from_offset: int
) -> Iterator[tuple[int, int, int, int]]:
    """Yields (position, size in bytes, records, next offset) of the sound batches v2 in [position,
    end) whose offsets ascend from `from_offset` on. It searches at every byte, because a damaged
    batch may have a wrong length."""
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
            yield position + at, size_bytes, count, expected
            at += size_bytes
            if at + HEADER.size > len(piece):
                break
        if magic_at < 0:
            at = len(piece) - HEADER.size + 1
        position += max(at, 1)


def _sound_at(
    fd: int, piece: bytes, at: int, position: int, end: int, expected: int
) -> tuple[int, int, int] | None:
    """Returns (size in bytes, records, next offset) of the sound batch at piece[at:], or None."""
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
