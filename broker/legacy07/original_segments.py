"""Segments of Kafka 0.7 in a partition that was imported from it, for its clients.

A wrapper (a compressed message) has other bytes when its records are compressed again, and 0.7 has
addresses of wrappers only. So that addresses stay valid, an import (takeover/converted_import.py)
keeps the segments of a partition with wrappers, or with messages of both magics, beside the log:
ADDRESS.kafka, named by the address at which it begins, with 0.7's own bytes. Addresses in them are
served from them, and later ones from the log (addresses.py). They never change, and are removed
when the log no longer has a record of them.

The address index has an entry for a message at least every INTERVAL_BYTES of them; other messages
are found by walking from the entry before. Memory: that many bytes, or one message.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from barnabas.cext.record.messages07 import BadMessages, split_messages, whole_messages
from barnabas.storage.address_index import DamagedIndex
from barnabas.storage.partition_dirs import ORIGINAL_SEGMENT
from barnabas.wire import compression

SIZE_BYTES = 4  # before a message


class OriginalSegment(NamedTuple):
    """`start`, `end`: addresses."""

    path: Path
    start: int
    end: int


class OriginalSegments:
    """The original segments in a partition's directory."""

    def __init__(self, directory: Path, content_max: int) -> None:
        """`content_max`: the largest decompressed size of a wrapper. Raises OSError."""
        self._content_max = content_max
        self._rows = [
            OriginalSegment(path, int(path.stem), int(path.stem) + path.stat().st_size)
            for path in sorted(directory.glob("*" + ORIGINAL_SEGMENT))
            if path.stem.isdecimal()
        ]

    @property
    def end(self) -> int:
        """The address behind the last one; 0 without segments."""
        return self._rows[-1].end if self._rows else 0

    def has(self, address: int) -> bool:
        return self._find(address) is not None

    def _find(self, address: int) -> OriginalSegment | None:
        return next((row for row in self._rows if row.start <= address < row.end), None)

    def read(self, entry: int, address: int, size_max: int, first_max: int) -> bytes | None:
        """Returns whole messages from an address on, at most to the end of a segment; None when no
        message begins there. `entry`: an address at or below it at which one begins; `size_max` and
        `first_max` as for PartitionAddresses.read. Raises OSError, DamagedIndex."""
        row = self._find(address)
        if row is None:
            return None
        entry = max(entry, row.start)
        before = _read(row, entry, address - entry)
        if whole_messages(before, 0, len(before)) != len(before):
            return None
        data = _read(row, address, min(size_max, row.end - address))
        end = whole_messages(data, 0, len(data))
        if end:
            return data[:end]
        size = SIZE_BYTES + int.from_bytes(_read(row, address, SIZE_BYTES), "big")
        return _read(row, address, min(size, first_max, row.end - address))

    def address_of(self, entry: int, offset: int, wanted: int) -> int:
        """Returns the address of the message that has the record at offset `wanted`. `entry` and
        `offset`: of a message before it. Raises OSError, DamagedIndex."""
        for at, count in self._messages(entry):
            if wanted < offset + count:
                return at
            offset += count
        return self.end

    def count(self, address: int, end: int) -> int:
        """Returns the number of records in the messages of two addresses. Raises OSError,
        DamagedIndex."""
        found = 0
        for at, count in self._messages(address):
            if at >= end:
                break
            found += count
        return found

    def _messages(self, address: int) -> Iterator[tuple[int, int]]:
        """Yields the address and the number of records of each message from `address` on."""
        for row in self._rows:
            at = max(address, row.start)
            while at < row.end:
                size = SIZE_BYTES + int.from_bytes(_read(row, at, SIZE_BYTES), "big")
                try:
                    count = records_of(_read(row, at, size), self._content_max)
                except BadMessages as error:
                    raise DamagedIndex(
                        f"{row.path} is damaged at byte {at - row.start}: {error}"
                    ) from error
                yield at, count
                at += size

    def drop_below(self, address: int) -> None:
        """Removes segments whose messages are all below an address. Raises OSError."""
        while self._rows and self._rows[0].end <= address:
            with suppress(FileNotFoundError):
                os.unlink(self._rows[0].path)
            del self._rows[0]


def records_of(message: bytes, content_max: int) -> int:
    """Returns the number of records of a message. Raises BadMessages."""
    count = 0
    for codec, start, end in split_messages(message):
        if codec == compression.NONE:
            return 1
        try:
            content = compression.decompress(
                codec, message[start:end], size_max=content_max, magic=0
            )
        except (compression.CorruptCompressedData, compression.DecompressedTooLarge) as error:
            raise BadMessages(str(error), 0) from error
        at, size = 0, len(content)
        while at + SIZE_BYTES < size:
            at += SIZE_BYTES + int.from_bytes(content[at : at + SIZE_BYTES], "big")
            count += at <= size
    return count


def _read(row: OriginalSegment, address: int, size_bytes: int) -> bytes:
    fd = os.open(row.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        found = os.pread(fd, size_bytes, address - row.start)
    finally:
        os.close(fd)
    if len(found) < size_bytes:
        raise DamagedIndex(f"{row.path} is shorter than it was")
    return found
