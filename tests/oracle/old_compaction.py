"""Compaction of message formats 0 and 1 in plain Python: the twin of cext.log.cleaner.compact.

A log is a list of entries; an entry has its own offset and timestamp and, when it is a wrapper, the
messages inside with theirs. `cleaned` is the rule of Kafka 4 (Cleaner, MemoryRecords.filterTo).
"""

import struct
import zlib
from dataclasses import dataclass

from oracle.compaction import Row

from barnabas.wire.compression import decompress

APPEND_TIME = 8


@dataclass(frozen=True)
class Message:
    offset: int  # as stored: relative inside a wrapper of format 1
    timestamp: int
    attributes: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class Entry:
    magic: int
    message: Message  # of a wrapper: without its inner messages
    inner: tuple[Message, ...] | None

    @property
    def base(self) -> int:
        """The offset to which the inner offsets are relative."""
        if self.inner is None or self.magic == 0:
            return 0
        return self.message.offset - self.inner[-1].offset


def _sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    (size,) = struct.unpack_from(">i", data, at)
    at += 4
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def messages(data: bytes) -> list[tuple[int, Message]]:
    """(format, message) of each entry; asserts that its checksum is right."""
    found, at = [], 0
    while at < len(data):
        offset, size, crc, magic, attributes = struct.unpack_from(">qiIbb", data, at)
        end = at + 12 + size
        assert zlib.crc32(data[at + 16 : end]) == crc
        place, timestamp = at + 18, -1
        if magic == 1:
            (timestamp,) = struct.unpack_from(">q", data, place)
            place += 8
        key, place = _sized(data, place)
        value, place = _sized(data, place)
        assert place == end
        found.append((magic, Message(offset, timestamp, attributes, key, value)))
        at = end
    return found


def entries(data: bytes) -> list[Entry]:
    found = []
    for magic, one in messages(data):
        inner = None
        if one.attributes & 7:
            content = decompress(one.attributes & 7, one.value, size_max=1 << 24, magic=magic)
            inner = tuple(row for _, row in messages(content))
            one = Message(one.offset, one.timestamp, one.attributes, one.key, None)
        found.append(Entry(magic, one, inner))
    return found


def latest_of(log: list[Entry], first: int, end: int) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for entry in log:
        for row in entry.inner if entry.inner is not None else (entry.message,):
            offset = entry.base + row.offset
            if row.key is not None and first <= offset < end:
                found[row.key] = offset
    return found


def cleaned(
    log: list[Entry], latest: dict[bytes, int], end: int, tombstones: bool, horizon: int
) -> list[Row]:
    """The batch that remains of each entry; entries from `end` on were not read and are kept."""

    def stays(row: Message, offset: int) -> bool:
        if offset >= end:
            return True
        if row.key is None or offset < latest.get(row.key, -1):
            return False
        return row.value is not None or tombstones

    kept = []
    for entry in log:
        outer = entry.message
        appended = entry.magic == 1 and bool(outer.attributes & APPEND_TIME)
        records = tuple(
            (
                entry.base + row.offset,
                outer.timestamp if appended else row.timestamp,
                row.key,
                row.value,
            )
            for row in (entry.inner if entry.inner is not None else (outer,))
            if stays(row, entry.base + row.offset)
        )
        if records:
            kept.append(
                Row(
                    base=records[0][0],
                    last=records[-1][0],
                    producer=-1,
                    epoch=-1,
                    sequence=-1,
                    transactional=False,
                    commit=None,
                    codec=outer.attributes & 7,
                    records=records,
                    horizon=horizon if any(row[3] is None for row in records) else -1,
                )
            )
    return kept
