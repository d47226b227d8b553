"""Deletes old segments by the retention policies, and unlinks files whose delete delay is over.

Retention deletes segments only below the high watermark, and never because a policy failed
(hooks/registry.py). It renames their files at once and unlinks them `file.delete.delay.ms` later,
so that present readers can finish. The directories of deleted topics are treated in the same way.
For files that a truncation removed the delay begins with the round that finds them.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from barnabas.cext.log import log_files
from barnabas.cext.log.log_handle import LogError, SegmentInfo
from barnabas.config import TopicConfig
from barnabas.hooks.views import LogView, SegmentView
from barnabas.storage import partition_dirs
from barnabas.storage.log_manager import LogManager, PartitionLog

log = logging.getLogger("barnabas.retention")

PLAIN_POLICIES = frozenset({"time", "size"})  # look at nothing but the segments
Policies = Callable[[LogView, int, Sequence[str]], int]
Committed = Callable[[str, int], Mapping[str, int]]


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
        should_roll: Callable[[Callable[[], LogView], int], bool] = lambda view, now_ms: False,
        committed: Committed = lambda topic, partition: {},
    ) -> None:
        self._logs = logs
        self._policies = policies
        self._topic_config = topic_config
        self._high_watermark = high_watermark
        self._wall_ms = wall_ms
        self._delete_delay_ms = delete_delay_ms
        self._should_roll = should_roll
        self._committed = committed  # by group: for policies that use committed offsets
        # By directory of a log, the names of its .deleted files: when each may be unlinked.
        self._due: dict[Path, dict[str, int]] = {}

    def run(self) -> int:
        """Runs one round over all logs; returns the number of deleted segments."""
        count = 0
        configs: dict[str, TopicConfig] = {}  # asked once a topic, not once a partition
        for row in self._logs.logs():
            if row.topic not in configs:
                configs[row.topic] = self._topic_config(row.topic)
            try:
                count += self._clean_again(row, configs[row.topic])
            except (LogError, OSError) as error:
                if self._logs.get(row.topic, row.partition) is not row:
                    continue  # it was deleted, or moved to another log directory
                log.error("retention of %s-%d failed: %s", row.topic, row.partition, error)
        self.unlink()
        return count

    def _clean_again(self, row: PartitionLog, config: TopicConfig) -> int:
        """Cleans a log; once more when compaction has replaced a segment meanwhile."""
        try:
            return self._clean(row, config)
        except FileNotFoundError:
            return self._clean(row, config)

    def _clean(self, row: PartitionLog, config: TopicConfig) -> int:
        is_empty = row.handle.end_offset == row.handle.start_offset
        found = row.handle.segments()
        gone: list[int] = []
        if found[-1].size_bytes and self._should_roll(
            partial(self._view, row, config, found), self._wall_ms()
        ):
            row.handle.roll()
            found = row.handle.segments()
        if len(found) > 1 and found[1].base_offset <= row.handle.start_offset:
            gone = row.handle.delete_segments_before(row.handle.start_offset)
        if not (is_empty and len(found) == 1) and "delete" in config.names("cleanup.policy"):
            gone = gone + self._expire(row, config, found[len(gone) :])
        if row.handle.holds_deleted:
            due_ms = self._wall_ms() + config.integer("file.delete.delay.ms")
            due = self._due.setdefault(row.directory, {})
            for name in log_files.deleted_names(row.handle.directory):
                due.setdefault(name, due_ms)
        if gone:
            log.info("%s-%d: segments %s deleted", row.topic, row.partition, gone)
        return len(gone)

    def _expire(
        self, row: PartitionLog, config: TopicConfig, found: list[SegmentInfo]
    ) -> list[int]:
        view = self._view(row, config, found)
        allowed = sum(1 for segment in view.segments if segment.next_offset <= view.high_watermark)
        policies = config.names("retention.policy")
        count = min(self._policies(view, self._wall_ms(), policies), allowed)
        if count == 0:
            return []
        if count == len(view.segments):
            row.handle.roll()
        offset = view.segments[count - 1].next_offset
        self._logs.start_moves(row.topic, row.partition, offset)
        return list(row.handle.delete_segments_before(offset))

    def _view(self, row: PartitionLog, config: TopicConfig, found: list[SegmentInfo]) -> LogView:
        ends = [segment.base_offset for segment in found[1:]] + [row.handle.end_offset]
        segments = tuple(
            SegmentView(
                base_offset=segment.base_offset,
                next_offset=end,
                size_bytes=segment.size_bytes,
                largest_timestamp_ms=row.largest_ms(segment),
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
            committed_offsets=(
                {}
                if PLAIN_POLICIES.issuperset(config.names("retention.policy"))
                else self._committed(row.topic, row.partition)
            ),
        )

    def unlink(self) -> None:
        """Unlinks files and directories whose delay is over. What cannot be unlinked stays until
        the next round, and keeps no other log."""
        now_ms = self._wall_ms()
        by_path = {row.directory: row.handle for row in self._logs.logs()}
        for directory, due in list(self._due.items()):
            over = [name for name, due_ms in due.items() if due_ms <= now_ms]
            if over and directory in by_path:
                try:
                    by_path[directory].unlink_deleted(over)
                except (LogError, OSError) as error:
                    log.error("cannot delete files of %s: %s", directory, error)
                    continue
            for name in over:
                del due[name]
            if not due or directory not in by_path:
                del self._due[directory]
        before_ms = now_ms - self._delete_delay_ms()
        for parent in self._logs.directories():
            try:
                _remove_deleted(parent.path, before_ms)
            except OSError as error:
                log.error("cannot list %s: %s", parent.path, error)


def _remove_deleted(parent: Path, before_ms: int) -> None:
    """Removes the directories in a log directory that were renamed to -delete at `before_ms` or
    earlier; those that cannot be removed are logged. Raises OSError."""
    for path in parent.iterdir():
        named = partition_dirs.parse(path.name)
        if named is None or named.mark != "delete" or path.is_symlink():
            continue
        try:
            if path.stat().st_ctime * 1000 <= before_ms:
                shutil.rmtree(path)
        except OSError as error:
            log.error("cannot delete %s: %s", path, error)
