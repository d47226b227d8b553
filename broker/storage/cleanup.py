"""Deleting what is not needed: old segments as the retention policies say, and files whose delay
is over.

A segment goes only below the high watermark and never because a policy failed (hooks/registry.py).
Its files are renamed at once and unlinked `file.delete.delay.ms` later, so that a reader who holds
one is done with it; the directories of deleted topics likewise.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

from barnabas.cext.log import LogError
from barnabas.config import TopicConfig
from barnabas.hooks.specs import LogView, SegmentView
from barnabas.storage import partition_dirs
from barnabas.storage.log_manager import LogManager, PartitionLog

log = logging.getLogger("barnabas.retention")

Policies = Callable[[LogView, int], int]


class Cleanup:
    """Retention of one node."""

    def __init__(
        self,
        logs: LogManager,
        policies: Policies,
        topic_config: Callable[[str], TopicConfig],
        high_watermark: Callable[[str, int], int],
        wall_ms: Callable[[], int],
        delete_delay_ms: Callable[[], int],
    ) -> None:
        self._logs = logs
        self._policies = policies
        self._topic_config = topic_config
        self._high_watermark = high_watermark
        self._wall_ms = wall_ms
        self._delete_delay_ms = delete_delay_ms
        self._due: dict[Path, int] = {}  # directory with .deleted files: when they may go

    def run(self) -> int:
        """One round over all logs; how many segments went."""
        count = 0
        for row in self._logs.logs():
            try:
                count += self._clean(row)
            except (LogError, OSError) as error:
                log.error("retention of %s-%d: %s", row.topic, row.partition, error)
        self.unlink()
        return count

    def _clean(self, row: PartitionLog) -> int:
        config = self._topic_config(row.topic)
        gone = row.handle.delete_segments_before(row.handle.start_offset)
        if "delete" in config.names("cleanup.policy"):
            gone += self._expire(row, config)
        if gone:
            delay_ms = config.integer("file.delete.delay.ms")
            self._due[row.directory] = self._wall_ms() + delay_ms
            log.info("%s-%d: segments %s deleted", row.topic, row.partition, gone)
        return len(gone)

    def _expire(self, row: PartitionLog, config: TopicConfig) -> list[int]:
        view = self._view(row, config)
        allowed = sum(1 for segment in view.segments if segment.next_offset <= view.high_watermark)
        count = min(self._policies(view, self._wall_ms()), allowed)
        if count == 0:
            return []
        if count == len(view.segments):
            row.handle.roll()
        return list(row.handle.delete_segments_before(view.segments[count - 1].next_offset))

    def _view(self, row: PartitionLog, config: TopicConfig) -> LogView:
        found = row.handle.segments()
        ends = [segment.base_offset for segment in found[1:]] + [row.handle.end_offset]
        segments = tuple(
            SegmentView(
                base_offset=segment.base_offset,
                next_offset=end,
                size_bytes=segment.size_bytes,
                largest_timestamp_ms=_largest_ms(row, segment.base_offset, segment),
                is_active=segment.active,
            )
            for segment, end in zip(found, ends, strict=True)
        )
        return LogView(
            topic=row.topic,
            partition=row.partition,
            segments=segments,
            high_watermark=self._high_watermark(row.topic, row.partition),
            retention_ms=config.integer("retention.ms"),
            retention_bytes=config.integer("retention.bytes"),
        )

    def unlink(self) -> None:
        """Unlinks files and directories whose delay is over."""
        now_ms = self._wall_ms()
        by_path = {row.directory: row.handle for row in self._logs.logs()}
        for directory in [path for path, due_ms in self._due.items() if due_ms <= now_ms]:
            del self._due[directory]
            if directory in by_path:
                by_path[directory].unlink_deleted()
        delay_ms = self._delete_delay_ms()
        for parent in self._logs.directories():
            for path in parent.path.iterdir():
                named = partition_dirs.parse(path.name)
                if named is None or named.mark != "delete" or path.is_symlink():
                    continue
                if path.stat().st_ctime * 1000 + delay_ms <= now_ms:
                    shutil.rmtree(path)


def _largest_ms(row: PartitionLog, base_offset: int, segment: object) -> int:
    """The largest record timestamp; the file's last change for a segment without one."""
    largest = int(segment.largest_timestamp)  # type: ignore[attr-defined]
    if largest >= 0:
        return largest
    return int((row.directory / f"{base_offset:020d}.log").stat().st_mtime * 1000)
