"""Calculates the ranges of a batch and divides them into tasks: arithmetic over offsets, no I/O.

The rules are those of spark-sql-kafka, so that a query that moves here reads the same batches:

- `latest_within` gives each partition a share of maxOffsetsPerTrigger in proportion to its unread
  records; a share below one record becomes one record.
- `MinOffsets` delays a batch until it has enough records or maxTriggerDelay is over.
- `split` divides partitions that have more than maxRecordsPerPartition; then, when there are fewer
  tasks than minPartitions, it divides the large ones in proportion to their size.

`latest_within_bytes` is our addition: the same shares, of bytes. `starting` decides what happens
when the next offsets are deleted, a partition is new, or a topic was created again.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from barnabas.wire.uuids import uuid_text

TopicPartition: TypeAlias = tuple[str, int]
Positions: TypeAlias = Mapping[TopicPartition, int]
Ends: TypeAlias = dict[TopicPartition, int]
OFFSET_MAX = 2**63 - 1
DELAY_MS = 15 * 60 * 1000  # the default of spark-sql-kafka's maxTriggerDelay


@dataclass(frozen=True, slots=True)
class TaskRange:
    """Offsets [start, end) of a partition, for one task."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return max(self.end - self.start, 0)


# ------------------------------------------------------------------------------ batches


def waiting(start: Positions, latest: Positions) -> dict[TopicPartition, int]:
    """Returns the number of unread offsets, for each partition that has some."""
    sizes = {tp: end - start[tp] for tp, end in latest.items() if tp in start}
    return {tp: size for tp, size in sizes.items() if size > 0}


def latest_within(
    start: Positions, latest: Positions, offsets_max: int
) -> dict[TopicPartition, int]:
    """Returns the ends of a batch of about `offsets_max` offsets."""
    sizes = waiting(start, latest)
    total = sum(sizes.values())
    if total < 1:
        return dict(latest)
    ends = dict(latest)
    for tp, size in sizes.items():
        share = offsets_max * (size / total)
        whole = math.ceil(share) if share < 1 else math.floor(share)
        ends[tp] = min(latest[tp], start[tp] + whole, OFFSET_MAX)
    return ends


def latest_within_bytes(
    start: Positions,
    latest: Positions,
    bytes_max: int,
    bytes_between: Callable[[TopicPartition, int, int], int],
) -> Ends:
    """Returns the ends of a batch of about `bytes_max` stored bytes, with at least one record of
    each partition that has unread ones.

    `bytes_between(partition, start, end)` may be an estimate, but does not fall as `end` grows."""
    sizes = {tp: bytes_between(tp, start[tp], latest[tp]) for tp in waiting(start, latest)}
    total = sum(sizes.values())
    ends = dict(latest)
    if total <= bytes_max:
        return ends
    for tp, size in sizes.items():
        share = math.floor(bytes_max * (size / total))
        low, high = start[tp] + 1, latest[tp]
        while low < high:  # the last end whose bytes are within the share
            middle = (low + high + 1) // 2
            if bytes_between(tp, start[tp], middle) <= share:
                low = middle
            else:
                high = middle - 1
        ends[tp] = low
    return ends


@dataclass(slots=True)
class MinOffsets:
    """minOffsetsPerTrigger with maxTriggerDelay: decides whether a batch runs now."""

    offsets_min: int
    delay_ms: int = DELAY_MS
    last_ms: int | None = None

    def is_due(self, start: Positions, latest: Positions, *, now_ms: int) -> bool:
        """Returns whether a batch runs now. The first one does; each batch that runs restarts the
        delay."""
        enough = sum(waiting(start, latest).values()) >= self.offsets_min
        over = self.last_ms is None or now_ms - self.last_ms >= self.delay_ms
        if enough or over:
            self.last_ms = now_ms
        return enough or over


# ------------------------------------------------------------------------------ tasks


def _part_count(size: int, total: int, parts: int) -> int:
    return max(math.floor(size / total * parts + 0.5), 1)


def _cut(one: TaskRange, parts: int) -> list[TaskRange]:
    """Divides a range into equal parts; the last parts take the remainder."""
    found, at, left = [], one.start, one.size
    for part in range(parts):
        size = left // (parts - part)
        left -= size
        if size:
            found.append(TaskRange(one.topic, one.partition, at, at + size))
        at += size
    return found


def split(
    ranges: Collection[TaskRange],
    *,
    tasks_min: int | None = None,
    records_max: int | None = None,
) -> list[TaskRange]:
    """Returns a task for each range, or several (the rules are at the top of this file)."""
    found = [one for one in ranges if one.size]
    if records_max is not None:
        found = [part for one in found for part in _cut(one, math.ceil(one.size / records_max))]
    if tasks_min is None or not found or tasks_min <= len(found):
        return found
    total = sum(one.size for one in found)
    small = [one for one in found if _part_count(one.size, total, tasks_min) == 1]
    kept = set(small)
    large_total = total - sum(one.size for one in small)
    large_parts = max(tasks_min - len(small), 1)
    cut: list[TaskRange] = []
    for one in found:
        if one in kept:
            cut.append(one)
        else:
            cut += _cut(one, _part_count(one.size, large_total, large_parts))
    return cut


def task_ranges(start: Positions, end: Positions) -> list[TaskRange]:
    """Returns the ranges from `start` to `end` that are not empty, by partition."""
    return [
        TaskRange(topic, index, start[topic, index], until)
        for (topic, index), until in sorted(end.items())
        if (topic, index) in start and until > start[topic, index]
    ]


# ------------------------------------------------------------------------------ data loss


class DataLoss(Exception):
    """Records that the query has not read are deleted."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__(
            f"{'; '.join(reasons)}. Some records cannot be read any more, because they or"
            " their topic were deleted. To go on without them set failOnDataLoss to false."
        )
        self.reasons = reasons


@dataclass(slots=True)
class Start:
    """The start offsets of a batch, and descriptions of the ranges that are lost."""

    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)


def starting(
    asked: Positions,
    earliest: Positions,
    latest: Positions,
    *,
    fail_on_data_loss: bool = True,
    ids_before: Mapping[str, bytes] | None = None,
    ids_now: Mapping[str, bytes] | None = None,
) -> Start:
    """Returns the start offset of each existing partition.

    `asked`: the end of the previous batch; a partition that it lacks is new, and the batch reads it
    from its earliest offset. `ids_before`: the known topic ids at that time; `ids_now`: the current
    ones. The batch reads a topic with another id from its start. Raises DataLoss, which lists all
    lost ranges, unless `fail_on_data_loss` is False."""
    found = Start()
    before, now = ids_before or {}, ids_now or {}
    renewed = {
        topic: (before[topic], now[topic])
        for topic in before
        if topic in now and before[topic] != now[topic]
    }
    for topic, (old, new) in sorted(renewed.items()):
        found.lost.append(
            f"topic {topic} was deleted and created again (its id was {uuid_text(old)} and is"
            f" {uuid_text(new)})"
        )
    for tp in sorted(set(asked) - set(latest)):
        found.lost.append(f"partition {tp[1]} of topic {tp[0]} was deleted (read to {asked[tp]})")
    for tp, first in sorted(earliest.items()):
        topic, index = tp
        where = f"partition {index} of topic {topic}"
        bounds = f"the log has offsets {first} to {latest[tp]}"
        if topic in renewed:
            found.offsets[tp] = first
            if tp in asked:
                found.lost.append(f"{where}: offset {asked[tp]} is wanted, but {bounds}")
        elif tp not in asked:
            found.offsets[tp] = first
            if asked and first > 0:
                found.lost.append(f"{where} is new and does not begin at offset 0: {bounds}")
        elif not first <= asked[tp] <= latest[tp]:
            found.lost.append(f"{where}: offset {asked[tp]} is wanted, but {bounds}")
            found.offsets[tp] = first
        else:
            found.offsets[tp] = asked[tp]
    if found.lost and fail_on_data_loss:
        raise DataLoss(found.lost)
    return found
