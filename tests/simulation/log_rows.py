"""The records of a log as the judge and the readers see them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.cext.record.records import decode_records, parse_header

BATCH_HEADER_BYTES = 61


class Violation(AssertionError):
    """Reports that an invariant does not hold."""


class Row(NamedTuple):
    """A record in a log. `commits`: whether a marker commits; None: the record is no marker."""

    offset: int
    leader_epoch: int
    value: bytes
    producer_id: int
    producer_epoch: int
    is_transactional: bool
    commits: bool | None


def batches_in(data: bytes) -> Iterator[tuple[int, int]]:
    """Yields position and size of each whole batch."""
    at = 0
    while at + BATCH_HEADER_BYTES <= len(data):
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        if at + size > len(data):
            return
        yield at, size
        at += size


def next_offset(data: bytes, offset: int) -> int:
    """Returns the offset behind the last whole batch, which may have no records; `offset`: without
    one."""
    for at, _size in batches_in(data):
        delta = int.from_bytes(data[at + 23 : at + 27], "big")
        offset = int.from_bytes(data[at : at + 8], "big") + delta + 1
    return offset


def records_of(data: bytes) -> list[Row]:
    """Returns the records of whole batches, which are not compressed."""
    found = []
    for at, size in batches_in(data):
        header = parse_header(data[at:])
        body = data[at + BATCH_HEADER_BYTES : at + size]
        for row in decode_records(body, count=header.record_count, base_offset=header.base_offset):
            found.append(
                Row(
                    row.offset,
                    header.leader_epoch,
                    bytes(row.value or b""),
                    header.producer_id,
                    header.producer_epoch,
                    header.transactional,
                    row.key[2:4] == b"\0\1" if header.control and row.key else None,
                )
            )
    return found


def number_of(value: bytes) -> int:
    """Returns the number of the transaction of a value."""
    return int(value[1:].partition(b":")[0])
