"""Compares the records of a topic, read from its log, with the records that a test expects.

An expected record states what matters to the test: a value (bytes, or text in UTF-8), a pair (key,
value), a mapping of some of Record's fields, or a whole Record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from barnabas.cext.log.log_handle import LogHandle
from barnabas.wire.batches import decode_batches

READ_BYTES = 1024 * 1024
SHOWN_MAX = 20  # lines of each part of a failure message


class Record(NamedTuple):
    """One record as the log has it. `timestamp` is in ms since 1970."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int
    partition: int
    offset: int


Expected = bytes | str | None | tuple[Any, Any] | Mapping[str, Any] | Record


def read_records(
    log: LogHandle, partition: int, end_offset: int, *, size_max: int
) -> Iterator[Record]:
    """Yields the records from the log start offset to `end_offset` (excluded), without control
    records; also those of aborted transactions. `size_max`: the most bytes of a decompressed batch.
    Raises CorruptRecords."""
    offset = log.start_offset
    while offset < end_offset:
        data = log.read(offset, READ_BYTES, limit_offset=end_offset)
        before = offset
        for batch in decode_batches(data, size_max=size_max, partial_tail=True):
            if not batch.control:
                for row in batch.records:
                    if offset <= row.offset < end_offset:
                        yield Record(
                            row.key, row.value, row.headers, row.timestamp, partition, row.offset
                        )
            offset = batch.last_offset + 1
        if offset == before:
            return  # compaction removed the rest


def difference(
    topic: str, found: Sequence[Record], expected: Iterable[Expected], in_order: bool
) -> str:
    """Returns how the records differ from the expected ones, as lines for a failure message; ""
    when they do not. `in_order`: the order counts."""
    wanted = [_fields_of(row) for row in expected]
    lines = _in_order(found, wanted) if in_order else _in_any_order(found, wanted)
    if not lines:
        return ""
    head = f"{topic!r} holds {len(found)} record(s); the test expected {len(wanted)}"
    return "\n".join([head, *lines])


def _in_order(found: Sequence[Record], wanted: Sequence[dict[str, Any]]) -> list[str]:
    same = 0
    while same < min(len(found), len(wanted)) and _fits(found[same], wanted[same]):
        same += 1
    if same == len(found) == len(wanted):
        return []
    lines = [f"  the first {same} are as expected; from there on:"] if same else []
    lines += _shown("  expected", [_text(row) for row in wanted[same:]])
    return lines + _shown("  found   ", [_record_text(row) for row in found[same:]])


def _in_any_order(found: Sequence[Record], wanted: Sequence[dict[str, Any]]) -> list[str]:
    left = list(found)
    missing = []
    for row in sorted(
        wanted, key=len, reverse=True
    ):  # the most detailed expectations select their records first
        fitting = next((record for record in left if _fits(record, row)), None)
        if fitting is None:
            missing.append(_text(row))
        else:
            left.remove(fitting)
    return _shown("  missing     ", missing) + _shown(
        "  not expected", [_record_text(row) for row in left]
    )


def _shown(head: str, rows: list[str]) -> list[str]:
    lines = [f"{head}  {row}" for row in rows[:SHOWN_MAX]]
    if len(rows) > SHOWN_MAX:
        lines.append(f"{head}  ... and {len(rows) - SHOWN_MAX} more")
    return lines


def _fields_of(expected: Expected) -> dict[str, Any]:
    if isinstance(expected, Record):
        return expected._asdict()
    if isinstance(expected, Mapping):
        unknown = expected.keys() - set(Record._fields)
        if unknown:
            raise TypeError(f"a Record has no field {', '.join(sorted(unknown))}")
        fields = dict(expected)
    elif isinstance(expected, tuple):
        if len(expected) != 2:
            raise TypeError(f"{expected!r}: an expected tuple must be a pair (key, value)")
        fields = {"key": expected[0], "value": expected[1]}
    else:
        fields = {"value": expected}
    for name in ("key", "value"):
        if isinstance(fields.get(name), str):
            fields[name] = fields[name].encode()
    if "headers" in fields:
        fields["headers"] = tuple((name, value) for name, value in fields["headers"])
    return fields


def _fits(record: Record, wanted: dict[str, Any]) -> bool:
    return all(getattr(record, name) == value for name, value in wanted.items())


def _text(fields: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value!r}" for name, value in fields.items())


def _record_text(record: Record) -> str:
    fields = {"key": record.key, "value": record.value}
    if record.headers:
        fields["headers"] = record.headers  # type: ignore[assignment]
    return f"{_text(fields)} (partition {record.partition}, offset {record.offset})"
