"""flush.ms: flushes each log whose appended records have waited that long for the disk.

With log.durability=fsync, acks=all requests and readers request flushes themselves; this file
flushes records that no request waits for, and those of log.durability=os. Each append checks
flush.messages, a number of records (cext/partition/partitions.pyx). The age of a log's unflushed
records counts from the last check that saw none: its precision is
log.flush.scheduler.interval.ms.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from barnabas.cext.log.log_handle import LogError
from barnabas.config import TopicConfig
from barnabas.storage.log_manager import LogManager, PartitionLog

log = logging.getLogger("barnabas.logs")


class Flusher:
    """The flush policy of one node. `flush` makes one log durable, and its records visible."""

    def __init__(
        self,
        logs: LogManager,
        topic_config: Callable[[str], TopicConfig],
        flush: Callable[[PartitionLog], object],
        monotonic_ns: Callable[[], int],
        asked: Callable[[PartitionLog, int, int, int], bool] = lambda *_: False,
    ) -> None:
        """`asked`: whether plugins want a log flushed, by its unflushed records, their age in ms,
        and its flush.ms."""
        self._logs = logs
        self._topic_config = topic_config
        self._flush = flush
        self._monotonic_ns = monotonic_ns
        self._asked = asked
        self._clean_ms: dict[Path, int] = {}  # when a log was last seen without unflushed records

    def run(self) -> int:
        """Checks all logs once; returns the number of flushed logs."""
        now_ms = self._monotonic_ns() // 1_000_000
        rows = self._logs.logs()
        before = self._clean_ms
        self._clean_ms = {}
        count = 0
        for row in rows:
            clean_ms = before.get(row.directory, now_ms)
            try:
                if row.handle.flushed_offset >= row.handle.end_offset:
                    clean_ms = now_ms
                elif self._is_due(row, now_ms - clean_ms):
                    self._flush(row)
                    clean_ms = now_ms
                    count += 1
            except LogError as error:
                log.error("flush of %s-%d failed: %s", row.topic, row.partition, error)
            self._clean_ms[row.directory] = clean_ms
        return count

    def _is_due(self, row: PartitionLog, age_ms: int) -> bool:
        flush_ms = self._topic_config(row.topic).integer("flush.ms")
        if age_ms >= flush_ms:
            return True
        count = row.handle.end_offset - row.handle.flushed_offset
        return self._asked(row, count, age_ms, flush_ms)
