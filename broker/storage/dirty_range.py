"""The part of a log that a compaction pass would clean.

    clean                first dirty offset      first uncleanable offset
    |  cleaned before    |  cleaned by this pass |  too young, in an open transaction, not
    |                    |                       |  visible yet, or the active segment

Next: compaction.py, the pass itself; log_cleaner.py, which compares logs by this.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.config import TopicConfig
from barnabas.storage.log_manager import PartitionLog


class DirtyRange(NamedTuple):
    """The part of a log that a pass would clean."""

    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    dirty_bytes: int
    delay_ms: int  # time since max.compaction.lag.ms was exceeded; 0: it was not

    @property
    def is_overdue(self) -> bool:
        return self.delay_ms > 0

    @property
    def ratio(self) -> float:
        """The dirty share of the log's cleanable part; 0 for an empty one."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def dirty_range_of(
    row: PartitionLog, config: TopicConfig, checkpoint: int, high_watermark: int, now_ms: int
) -> DirtyRange:
    """Raises LogError or OSError when the log is closed, or a segment deleted, during the call."""
    segments = row.handle.segments()
    start = row.handle.start_offset
    # A checkpoint outside the log precedes a truncation or a new log start: all is dirty.
    first_dirty = checkpoint if start <= checkpoint <= row.handle.end_offset else start
    limit = min(high_watermark, segments[-1].base_offset)
    open_offset = row.handle.first_open_offset
    if open_offset >= 0:
        limit = min(limit, open_offset)
    lag_ms = config.integer("min.compaction.lag.ms")
    if lag_ms > 0:
        for segment in segments[:-1]:
            if segment.base_offset >= first_dirty and row.largest_ms(segment) > now_ms - lag_ms:
                limit = min(limit, segment.base_offset)
                break
    limit = max(limit, first_dirty)
    ends = [segment.base_offset for segment in segments[1:]]
    clean_bytes = dirty_bytes = 0
    oldest_ms = -1
    for segment, end in zip(segments, ends, strict=False):
        if end <= first_dirty:
            clean_bytes += segment.size_bytes
        elif segment.base_offset < limit and first_dirty < limit:
            dirty_bytes += segment.size_bytes
            if oldest_ms < 0:
                oldest_ms = row.largest_ms(segment)
    delay_ms = 0
    if dirty_bytes > 0 and oldest_ms >= 0:
        delay_ms = max(now_ms - oldest_ms - config.integer("max.compaction.lag.ms"), 0)
    return DirtyRange(first_dirty, limit, clean_bytes, dirty_bytes, delay_ms)
