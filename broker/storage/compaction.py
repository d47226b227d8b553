"""Compaction of one log: the pass that cleans its dirty part (defined in dirty_range.py).

A pass reads the keys of the dirty part into the offset map until the map is full. Then it rewrites
all segments below that offset, in groups that stay below segment.bytes
(cext/log/cleaner/compact.pyx, cext/log/cleaner/replacement.pyx). Each group replaces its segments
separately: after a stop or a crash only a part of the log is clean, and the log is correct.
Next: log_cleaner.py, which starts the passes and imports this file with the first one.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from barnabas.cext.log.cleaner.compact import Cleaning, Learning
from barnabas.cext.log.cleaner.offset_map import OffsetMap
from barnabas.cext.log.cleaner.replacement import replace_segments
from barnabas.cext.log.log_handle import SegmentInfo
from barnabas.cext.memory.sys import SystemCalls
from barnabas.config import TopicConfig
from barnabas.storage.dirty_range import DirtyRange
from barnabas.storage.log_manager import PartitionLog
from barnabas.wire.compression import compress, decompress

IO_BYTES = 256 << 10
TURN_BYTES = 4 << 20  # between two checks of the rate and of the stop
_ABORTED = struct.Struct(">hqqqq")  # an entry of a .txnindex: cext/log/txn_index.pyx
OFFSET_SPAN_MAX = 2**31 - 1

Pace = Callable[[int], bool]  # takes the bytes read and written; returns False to stop the pass


class Stopped(Exception):
    """The pass was stopped before its end; the log is correct."""


class Cleaned(NamedTuple):
    """The result of a pass."""

    first_dirty: int  # the next pass begins here
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int
    keys: int


def compact(
    row: PartitionLog,
    config: TopicConfig,
    dirty_range: DirtyRange,
    offsets: OffsetMap,
    system: SystemCalls,
    inflated_max: int,
    now_ms: int,
    pace: Pace,
    *,
    io_bytes: int = IO_BYTES,
    linking: AbstractContextManager[object] | None = None,
) -> Cleaned:
    """Runs one pass, which reads and writes `io_bytes` at a time, and replaces segments under
    `linking`. Raises Stopped, Uncleanable,
    LogError and OSError."""
    row.handle.flush()
    sealed = row.handle.segments()[:-1]
    aborted = _aborted_transactions(row)
    open_body = _opener(inflated_max)
    end = _learn(row, sealed, dirty_range, offsets, system, inflated_max, io_bytes, aborted, pace)
    retention_ms = config.integer("delete.retention.ms")
    cleaning = Cleaning(
        system,
        offsets,
        decompress=open_body,
        compress=compress,
        inflated_max=inflated_max,
        io_bytes=io_bytes,
        now_ms=now_ms,
        delete_retention_ms=retention_ms,
        index_interval_bytes=config.integer("index.interval.bytes"),
        aborted=aborted,
        producers=[(p.producer_id, p.epoch, p.last_offset) for p in row.handle.producers()],
    )
    clean = [info for info in sealed if info.base_offset < dirty_range.first_dirty]
    old_horizon_ms = row.changed_ms(clean[-1]) - retention_ms if clean else 0
    before = after = 0
    below = [segment for segment in sealed if segment.base_offset < end]
    for group in _groups(below, config):
        _clean_group(row, cleaning, group, old_horizon_ms, pace)
        with linking or nullcontext():
            bases = [info.base_offset for info in group]
            if not replace_segments(row.handle, bases, cleaning):
                raise Stopped("its segments changed during the pass")
        before += sum(info.size_bytes for info in group)
        after += cleaning.size_bytes
    return Cleaned(end, before, after, cleaning.records_read, cleaning.records_kept, offsets.count)


def _learn(
    row: PartitionLog,
    sealed: Sequence[SegmentInfo],
    dirty_range: DirtyRange,
    offsets: OffsetMap,
    system: SystemCalls,
    inflated_max: int,
    io_bytes: int,
    aborted: Sequence[tuple[int, int, int, int]],
    pace: Pace,
) -> int:
    """Fills the map; returns the offset up to which it has every key."""
    ends = [info.base_offset for info in sealed[1:]] + [dirty_range.first_uncleanable]
    dirty = [
        info
        for info, end in zip(sealed, ends, strict=True)
        if end > dirty_range.first_dirty and info.base_offset < dirty_range.first_uncleanable
    ]
    if not dirty:
        return dirty_range.first_dirty
    offsets.reset(dirty_range.first_uncleanable - dirty_range.first_dirty)
    learning = Learning(
        system,
        offsets,
        decompress=_opener(inflated_max),
        inflated_max=inflated_max,
        io_bytes=io_bytes,
        from_offset=dirty_range.first_dirty,
        end_offset=dirty_range.first_uncleanable,
        aborted=[entry for entry in aborted if entry[2] >= dirty[0].base_offset],
    )
    for info in dirty:
        learning.open(row.path_of(info), info.size_bytes)
        _walk(learning, pace)
        if learning.full:
            break
    return offsets.latest_offset + 1 if learning.full else dirty_range.first_uncleanable


def _clean_group(
    row: PartitionLog,
    cleaning: Cleaning,
    group: Sequence[SegmentInfo],
    old_horizon_ms: int,
    pace: Pace,
) -> None:
    """As in Kafka a tombstone of message format 0 or 1 is removed when its segment was changed
    delete.retention.ms before the last one that was clean already: so a written segment keeps the
    time of its source segments."""
    stem = row.path_of(group[0]).with_suffix("")
    cleaning.begin(stem, group[0].base_offset)
    for info in group:
        cleaning.keeps_old_tombstones = row.changed_ms(info) > old_horizon_ms
        cleaning.open(row.path_of(info), info.size_bytes)
        _walk(cleaning, pace)
    changed_ns = row.path_of(group[-1]).stat().st_mtime_ns
    cleaning.finish()
    os.utime(stem.with_suffix(".log.cleaned"), ns=(changed_ns, changed_ns))


def _walk(walk: Learning | Cleaning, pace: Pace) -> None:
    more = True
    while more:
        before = walk.position
        more = walk.turn(TURN_BYTES)
        if not pace(walk.position - before):
            raise Stopped("the broker stops, or the topic is no longer compacted")


def _groups(segments: Sequence[SegmentInfo], config: TopicConfig) -> Iterator[list[SegmentInfo]]:
    """Groups neighbouring segments that fit into one segment even if no record is removed."""
    size_max = config.integer("segment.bytes")
    group: list[SegmentInfo] = []
    size_bytes = 0
    for index, info in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else None
        last = following if following is not None else info.base_offset
        full = size_bytes + info.size_bytes > size_max
        if group and (full or last - group[0].base_offset > OFFSET_SPAN_MAX):
            yield group
            group, size_bytes = [], 0
        group.append(info)
        size_bytes += info.size_bytes
    if group:
        yield group


def _opener(inflated_max: int) -> Callable[[int, bytes], bytes]:
    return lambda codec, data: decompress(codec, data, size_max=inflated_max)


def _aborted_transactions(row: PartitionLog) -> list[tuple[int, int, int, int]]:
    """Returns (producer id, first offset, last offset, last stable offset) of every aborted
    transaction in the log's transaction indexes."""
    found = []
    for path in row.directory.glob("*.txnindex"):
        data = path.read_bytes()
        whole = len(data) - len(data) % _ABORTED.size
        found += [entry[1:] for entry in _ABORTED.iter_unpack(data[:whole])]
    return found
