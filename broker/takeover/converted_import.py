"""Converts a partition of Kafka 0.7 into a log, with the addresses that its clients have.

    ADDRESS.kafka                  messages of 0.7 (cext/record/messages07.pyx); named by the byte
                                   address of the first one, and the next file begins where it ends
    B.log                          batches of format 2 without timestamps, a file for each of those;
                                   a wrapper becomes a batch with its codec
    addresses07                    the addresses of 0.7 (storage/address_index.py)
    ADDRESS.kafka                  kept beside the log where 0.7's bytes cannot be made of its
                                   records again: wrappers, and magic 0 beside 1
                                   (legacy07/original_segments.py)

Offsets count the records of the partition from 0. A new file has the time of the last change of the
old one: 0.7 uses it for retention and for offsets of a time, and so does this broker for segments
without timestamps. What was written is compared with the messages, and read back.

`pieces` is also what the plan (directory_07.py) reads. Memory: one window or message, and its
decompressed content.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from barnabas.cext.codec.crc import crc32c
from barnabas.cext.record.conversion import CannotConvert, up_convert
from barnabas.cext.record.messages07 import (
    BadMessages,
    messages_of,
    split_messages,
    to_message_set,
    whole_messages,
)
from barnabas.cext.record.records import decode_records, parse_header, seal_batch, stamp
from barnabas.storage import checkpoints
from barnabas.storage.address_index import AddressIndex, copy_original
from barnabas.storage.log_dirs import FailedDirectory, UnusableDirectory
from barnabas.storage.partition_dirs import ADDRESSES
from barnabas.takeover.partition_files import (
    Content,
    PartitionFile,
    Progress,
    content_of,
    copy_file,
)
from barnabas.takeover.stored_batches import INFLATED_BYTES_MAX, mapped
from barnabas.wire import compression
from barnabas.wire.batches import BATCH_OVERHEAD_BYTES, NO_TIMESTAMP

WINDOW_BYTES = 1 << 20
BATCH_BYTES = 65536  # of plain messages in a batch, and of addresses between two entries
SEGMENT_BYTES_MAX = 1 << 30
LEADER_EPOCH = 0
SIZE_BYTES, MAGIC_1 = 4, 1
HEADER_BYTES = (9, 10)  # of a message of magic 0 and 1, with its size


class Piece(NamedTuple):
    """A wrapper, or plain messages that follow one another. `start`, `end`: bytes of the segment;
    `messages`: plain ones, those of a wrapper decompressed."""

    start: int
    end: int
    codec: int
    messages: bytes


def pieces(data: memoryview) -> Iterator[Piece]:
    """Yields what a segment has. Raises BadMessages with the position of what is no message, also
    for a last one that is cut off."""
    at, size, window_bytes = 0, len(data), WINDOW_BYTES
    while at < size:
        window = bytes(data[at : at + window_bytes])
        try:
            parts = split_messages(window)
        except BadMessages as error:
            if error.position == 0 and len(window) < size - at:  # larger than the window
                wanted = SIZE_BYTES + int.from_bytes(window[:SIZE_BYTES], "big", signed=True)
                if len(window) < wanted <= size - at:
                    window_bytes = wanted
                    continue
            if error.position:  # yield the messages before it first
                parts = split_messages(window[: error.position])
            else:
                raise BadMessages(_reason(error), at) from error
        window_bytes = WINDOW_BYTES
        done = 0
        for codec, start, end in parts:
            if codec == compression.NONE:
                yield from _plain(window, start, end, at)
            else:
                yield Piece(
                    at + done, at + end, codec, _content(codec, window[start:end], at + done)
                )
            done = end
        at += done


def _reason(error: Exception) -> str:
    return str(error).partition(" (at byte")[0]


def _plain(window: bytes, start: int, end: int, at: int) -> Iterator[Piece]:
    while start < end:
        part = window[start:end]
        last = whole_messages(part, 0, BATCH_BYTES)
        if last == 0:  # larger
            last = SIZE_BYTES + int.from_bytes(part[:SIZE_BYTES], "big")
        yield Piece(at + start, at + start + last, compression.NONE, part[:last])
        start += last


def _content(codec: int, payload: bytes, position: int) -> bytes:
    try:
        content = compression.decompress(codec, payload, size_max=INFLATED_BYTES_MAX, magic=0)
        to_message_set(content)
    except (
        BadMessages,
        compression.CorruptCompressedData,
        compression.DecompressedTooLarge,
    ) as error:
        raise BadMessages(f"its content is damaged: {_reason(error)}", position) from error
    return content


def borders(messages: bytes) -> Iterator[int]:
    """Yields where each whole message begins."""
    at = 0
    while at + SIZE_BYTES < len(messages):
        size = SIZE_BYTES + int.from_bytes(messages[at : at + SIZE_BYTES], "big")
        if at + size > len(messages):
            return
        yield at
        at += size


def values_of(messages: bytes) -> list[bytes]:
    """Returns the payloads of plain messages."""
    found = []
    for at in borders(messages):
        size = SIZE_BYTES + int.from_bytes(messages[at : at + SIZE_BYTES], "big")
        header = HEADER_BYTES[messages[at + SIZE_BYTES]]
        found.append(messages[at + header : at + size])
    return found


class _Batch(NamedTuple):
    """`magic`: of the messages that the records become again; -1: they become others."""

    data: bytes
    records: int
    magic: int


def _batch(piece: Piece, offset: int) -> _Batch:
    """Returns a piece as a batch of format 2, compared with it. Raises BadMessages."""
    entries = to_message_set(piece.messages)
    if not entries:
        return _Batch(b"", 0, -1)
    try:
        plain = up_convert(entries)
    except CannotConvert as error:
        raise BadMessages(str(error), piece.start) from error
    made = bytearray(plain)
    header = parse_header(plain)
    body = plain[BATCH_OVERHEAD_BYTES:]
    if piece.codec != compression.NONE:
        made = bytearray(
            seal_batch(
                compression.compress(piece.codec, body),
                count=header.record_count,
                last_offset_delta=header.last_offset_delta,
                base_timestamp=NO_TIMESTAMP,
                max_timestamp=NO_TIMESTAMP,
                attributes=piece.codec,
            )
        )
    stamp(made, offset, LEADER_EPOCH)
    data = bytes(made)
    content = None
    if piece.codec != compression.NONE:
        content = compression.decompress(
            piece.codec, data[BATCH_OVERHEAD_BYTES:], size_max=len(body), magic=2
        )
    for magic in (MAGIC_1, 0):
        if messages_of(data, content, first_offset=offset, magic=magic) == piece.messages:
            return _Batch(data, header.record_count, magic)
    records = decode_records(content or body, count=header.record_count)
    if [row.value for row in records] != values_of(piece.messages):
        raise UnusableDirectory("the converted records differ from the messages. Check the memory.")
    return _Batch(data, header.record_count, -1)


class Converted(NamedTuple):
    """`has_originals`: whether the segments of 0.7 are kept beside the log."""

    content: Content
    has_originals: bool


def convert(
    files: Sequence[PartitionFile], directory: Path, progress: Progress, may_link: bool
) -> Converted:
    """Converts the segments of a partition, the oldest first, into a new directory. Messages behind
    a damage of a segment are left out: the plan has said so. `may_link`: sealed segments that are
    kept are linked. Raises UnusableDirectory, FailedDirectory."""
    made = _Conversion(directory, progress)
    try:
        kept = [row._replace(size_bytes=made.add(row)) for row in files]
        has_originals = made.has_others
        made.end(int(files[-1].path.stem) + kept[-1].size_bytes)
        if has_originals:
            for number, row in enumerate(kept):
                target = directory / row.path.name
                is_whole = row.size_bytes == files[number].size_bytes
                if may_link and is_whole and number < len(kept) - 1:
                    copy_original(row.path, target)
                else:
                    copy_file(row, target)
    except OSError as error:
        raise FailedDirectory(f"cannot convert into {directory}", error) from error
    return Converted(made.content(), has_originals)


class _Conversion:
    """Writes the log of one partition."""

    def __init__(self, directory: Path, progress: Progress) -> None:
        self._directory, self._progress = directory, progress
        self._files: dict[Path, int] = {}  # with their CRC-32C
        self._offset = 0
        self._addresses: dict[int, int] = {}  # of offsets
        self._last_address = 0  # of an entry
        self._end = -1  # of the former segment
        self._magic = -1
        self.has_others = False

    def add(self, row: PartitionFile) -> int:
        """Converts a segment. Returns the number of its bytes that are messages."""
        start, done = int(row.path.stem), 0
        if self._end != start:
            self.has_others |= self._end >= 0  # addresses that no file has
            self._addresses[self._offset] = self._last_address = start
        target = self._open()
        try:
            for piece in pieces(mapped(row.path)):
                if target[1] > SEGMENT_BYTES_MAX:
                    self._close(target, row.path)
                    target = self._open()
                target = self._write(target, piece, start + piece.start)
                done = piece.end
                self._progress(0, piece.end - piece.start)
        except BadMessages:
            pass
        finally:
            self._close(target, row.path)
        self._addresses.setdefault(self._offset, start + done)
        self._last_address = self._end = start + done
        return done

    def _open(self) -> tuple[int, int, Path]:
        path = self._directory / f"{self._offset:020d}.log"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._files.setdefault(path, 0)
        return os.open(path, flags, 0o644), 0, path

    def _write(
        self, target: tuple[int, int, Path], piece: Piece, address: int
    ) -> tuple[int, int, Path]:
        fd, size_bytes, path = target
        if address - self._last_address >= BATCH_BYTES:
            self._addresses.setdefault(self._offset, address)
            self._last_address = address
        batch = _batch(piece, self._offset)
        if self._magic < 0 <= batch.magic:
            self._magic = batch.magic
        is_same = piece.codec == compression.NONE and batch.magic == self._magic
        self.has_others |= not is_same
        view = memoryview(batch.data)
        while view:
            view = view[os.write(fd, view) :]
        self._files[path] = crc32c(batch.data, self._files[path])
        self._offset += batch.records
        return fd, size_bytes + len(batch.data), path

    def _close(self, target: tuple[int, int, Path], source: Path) -> None:
        os.close(target[0])
        stat = os.stat(source)
        os.utime(target[2], ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def end(self, address: int) -> None:
        """Writes the addresses. `address`: behind the last message."""
        self._addresses[self._offset] = address
        rows = [(at, row, LEADER_EPOCH if at else -1) for at, row in self._addresses.items()]
        magic = MAGIC_1 if self._magic < 0 else self._magic
        AddressIndex.of(self._directory / ADDRESSES, magic, rows)
        epochs = [(LEADER_EPOCH, 0)] if self._offset else []
        checkpoints.write_leader_epochs(self._directory, epochs)

    def content(self) -> Content:
        """Reads the log back. Raises UnusableDirectory when it differs from what was written."""
        for path, crc in self._files.items():
            if crc32c(mapped(path)) != crc:
                raise UnusableDirectory(f"{path} differs from what was written. Check the disks.")
        files = [PartitionFile(path, path.stat().st_size) for path in self._files]
        return content_of(files, _nothing)


def _nothing(_records: int, _bytes: int) -> None:
    pass
