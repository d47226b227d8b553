"""The hook specifications. Each docstring is the contract: when, where, what comes back.

Hooks run per log, per segment or per decision, never per record.
"""

from typing import NamedTuple

import pluggy

PROJECT = "barnabas"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class SegmentView(NamedTuple):
    """One segment of a log. The last one of a log is active: records are still appended to it."""

    base_offset: int
    next_offset: int  # the offset after the segment's last record
    size_bytes: int
    largest_timestamp_ms: int  # of its records; of the file's last change when they have none
    is_active: bool


class LogView(NamedTuple):
    """A partition's log as a policy sees it; a snapshot."""

    topic: str
    partition: int
    segments: tuple[SegmentView, ...]  # oldest first, at least the active one
    high_watermark: int
    retention_ms: int  # of the topic's configuration; -1: no limit
    retention_bytes: int  # -1: no limit

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)


class Specs:
    """What a plugin may implement; the registry adds this class to pluggy."""

    @hookspec
    def deletable_segments(self, log: LogView, now_ms: int) -> int:
        """How many of the oldest segments of a log may be deleted.

        When: every `log.retention.check.interval.ms`, for each log whose `cleanup.policy` has
        `delete`. On: the retention thread; it may take its time, and holds up only retention.
        `log`: the log, oldest segment first. `now_ms`: the broker's wall clock.
        Returns: a number from 0 to len(log.segments). All implementations are asked and the largest
        answer counts. The broker keeps what lies above the high watermark whatever is answered;
        when all segments may go, it rolls to an empty one first.
        When it raises, or answers something else: it is counted, logged, and taken as 0.
        """
        raise NotImplementedError
