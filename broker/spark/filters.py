"""Filters of a batch that narrow its offset ranges: on topic, partition, offset and timestamp.

This source applies filters on topic, partition and offset completely. A filter on the timestamp
moves the start of each partition to its first matching record; Spark applies it too, because later
records may be older. Spark alone applies all other filters."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from barnabas.spark.planner import OFFSET_MAX, TaskRange, TopicPartition

NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The part of a batch that its filters leave."""

    topics: frozenset[str] | None = None  # None: all
    partitions: frozenset[int] | None = None
    offset_min: int = 0
    offset_end: int = OFFSET_MAX
    time_min_ms: int | None = None

    def apply(
        self, ranges: Iterable[TaskRange], times: Mapping[TopicPartition, int] | None
    ) -> list[TaskRange]:
        """Returns the parts of the ranges that the filters leave. `times`: for each partition the
        first offset at time_min_ms, -1 when it has none."""
        found = []
        for one in ranges:
            if self.topics is not None and one.topic not in self.topics:
                continue
            if self.partitions is not None and one.partition not in self.partitions:
                continue
            start, end = max(one.start, self.offset_min), min(one.end, self.offset_end)
            if times is not None:
                at = times[one.topic, one.partition]
                start = end if at < 0 else max(start, at)
            if start < end:
                found.append(TaskRange(one.topic, one.partition, start, end))
        return found


EVERYTHING = Narrowed()


def narrow(filters: Iterable[Any]) -> tuple[Narrowed, list[Any]]:
    """Returns the part that PySpark's filters leave, and the filters that Spark must still
    apply."""
    narrowed, left = EVERYTHING, []
    for one in filters:
        step = _step(narrowed, type(one).__name__, one)
        if step is not None:
            narrowed = step
        if step is None or one.attribute[0] == "timestamp" and hasattr(one, "value"):
            left.append(one)
    return narrowed, left


def _step(so_far: Narrowed, kind: str, one: Any) -> Narrowed | None:
    """Returns the part that one more filter leaves; None when this source cannot apply the
    filter."""
    if len(getattr(one, "attribute", ())) != 1:
        return None
    name = one.attribute[0]
    if kind == "IsNotNull":
        return so_far if name in NEVER_NULL else None
    value = getattr(one, "value", None)
    values = tuple(value or ()) if kind == "In" else (value,)
    if kind in ("EqualTo", "EqualNullSafe", "In") and name in ("topic", "partition"):
        wanted = str if name == "topic" else int
        if not all(type(row) is wanted for row in values):
            return None
        if name == "topic":
            return replace(so_far, topics=_both(so_far.topics, frozenset(values)))
        return replace(so_far, partitions=_both(so_far.partitions, frozenset(values)))
    if name == "offset" and type(value) is int:
        return _of_offset(so_far, kind, value)
    if name == "timestamp" and isinstance(value, datetime):
        return _of_time(so_far, kind, value)
    return None


def _both(known: frozenset[Any] | None, wanted: frozenset[Any]) -> frozenset[Any]:
    return wanted if known is None else known & wanted


def _of_offset(so_far: Narrowed, kind: str, value: int) -> Narrowed | None:
    first, end = 0, OFFSET_MAX
    match kind:
        case "EqualTo" | "EqualNullSafe":
            first, end = value, value + 1
        case "GreaterThan":
            first = value + 1
        case "GreaterThanOrEqual":
            first = value
        case "LessThan":
            end = value
        case "LessThanOrEqual":
            end = value + 1
        case _:
            return None
    return replace(
        so_far,
        offset_min=max(so_far.offset_min, first),
        offset_end=min(so_far.offset_end, end),
    )


def _of_time(so_far: Narrowed, kind: str, value: datetime) -> Narrowed | None:
    if kind not in ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual"):
        return None
    moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    since_us = (moment - EPOCH) // timedelta(microseconds=1)
    # Timestamps of records are whole ms.
    first_ms = since_us // 1000 + 1 if kind == "GreaterThan" else -(-since_us // 1000)
    if first_ms <= 0:
        return so_far
    if so_far.time_min_ms is not None:
        first_ms = max(first_ms, so_far.time_min_ms)
    return replace(so_far, time_min_ms=first_ms)
