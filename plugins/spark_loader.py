"""Keeps segments that a load into Spark has not read yet, and exposes the load's lag as metrics.

    plugins=spark-loader
    plugin.spark-loader.group=nightly             the group of commitOffsetsToGroup, or
    plugin.spark-loader.checkpoint=/load/news     a query's checkpoint, at a path of this machine
    retention.policy=spark-loader                 (a setting of each topic that is loaded)

The plugin lets a segment be deleted when the load has read it and `retention.ms` or
`retention.bytes` of its topic allows the deletion. It keeps a segment that the load has not read,
until the segment is older than `keep.ms` or the partition holds more than `keep.bytes` with it:
then the segment may go, and a log line names the offsets that the load has lost. When the load has
read nothing yet, or the plugin cannot read the checkpoint, it keeps everything within these limits.

`/metrics` has, as `barnabas_plugin_metric` of each such topic, `lag_records` (records that the load
has not read) and `overdue_bytes` (bytes that are kept only for the load). A topic appears after the
first retention check.
"""

import logging
import threading
from collections.abc import Mapping

from barnabas.hooks import LogView, Option, Options, Services, hookimpl
from barnabas.plugins.retention_size import RetentionSize
from barnabas.plugins.retention_time import RetentionTime

log = logging.getLogger("barnabas.plugins.spark_loader")

DAY_MS = 86_400_000
CHECKPOINT_AGE_MS = 5_000  # shortest time between two reads of a checkpoint


class SparkLoader:
    """Keeps segments until a Spark load has read them, within limits; reports the load's lag."""

    OPTIONS = {
        "group": Option("text", "the group that the load commits to", ""),
        "checkpoint": Option("text", "a directory or file: URL, in place of a group", ""),
        "keep.ms": Option(
            "integer", "age up to which segments are kept for the load; -1: no limit", 28 * DAY_MS
        ),
        "keep.bytes": Option(
            "integer",
            "size up to which a partition keeps segments for the load; -1: no limit",
            100 << 30,
        ),
    }

    def __init__(self, options: Options) -> None:
        self.group, self.checkpoint = options["group"], options["checkpoint"]
        if bool(self.group) == bool(self.checkpoint):
            raise ValueError("set one of the options group and checkpoint")
        self.keep_ms, self.keep_bytes = options["keep.ms"], options["keep.bytes"]
        self._time, self._size = RetentionTime(), RetentionSize()
        self._services: Services | None = None
        self._lock = threading.Lock()
        self._logs: dict[tuple[str, int], LogView] = {}  # the logs of the last retention check
        self._overdue: dict[tuple[str, int], int] = {}
        self._read_ms: int | None = None
        self._loaded: Mapping[str, Mapping[int, int]] = {}  # of the checkpoint

    @hookimpl
    def broker_started(self, services: Services | None) -> None:
        self._services = services

    @hookimpl
    def partition_lost(self, topic: str, partition: int) -> None:
        with self._lock:
            self._logs.pop((topic, partition), None)
            self._overdue.pop((topic, partition), None)

    @hookimpl
    def deletable_segments(self, log: LogView, now_ms: int) -> int:
        due = max(self._time.deletable_segments(log, now_ms), self._size.deletable_segments(log))
        loaded = self._loaded_to(log.topic, log.partition, log.committed_offsets, now_ms)
        count, size_bytes, lost_to = 0, log.size_bytes, -1
        for segment in log.segments[:due]:
            if segment.next_offset > loaded:
                over_ms = now_ms - segment.largest_timestamp_ms - self.keep_ms
                is_over = self.keep_ms >= 0 and over_ms > 0
                if not is_over and not 0 <= self.keep_bytes < size_bytes:
                    break
                lost_to = segment.next_offset
            count += 1
            size_bytes -= segment.size_bytes
        if lost_to >= 0:
            self._say_lost(log, lost_to, loaded)
        with self._lock:
            key = (log.topic, log.partition)
            self._logs[key] = log
            self._overdue[key] = sum(row.size_bytes for row in log.segments[count:due])
        return count

    @hookimpl
    def own_metrics(self) -> Mapping[str, Mapping[str, float]]:
        with self._lock:
            logs, overdue = dict(self._logs), dict(self._overdue)
        lags: dict[str, float] = {}
        kept: dict[str, float] = {}
        for (topic, partition), row in logs.items():
            end, committed = row.high_watermark, row.committed_offsets
            now_ms = None
            if self._services is not None:
                now_ms = self._services.now_ms()
                end = self._services.high_watermark(topic, partition)
                committed = self._services.committed_offsets(topic, partition)
            start = max(
                self._loaded_to(topic, partition, committed, now_ms), row.segments[0].base_offset
            )
            lags[topic] = lags.get(topic, 0) + max(end - start, 0)
            kept[topic] = kept.get(topic, 0) + overdue.get((topic, partition), 0)
        return {"lag_records": lags, "overdue_bytes": kept}

    def _loaded_to(
        self, topic: str, partition: int, committed: Mapping[str, int], now_ms: int | None
    ) -> int:
        """Returns the first offset that the load has not read; -1: unknown."""
        if self.group:
            return committed.get(self.group, -1)
        with self._lock:
            if now_ms is not None and (
                self._read_ms is None or now_ms - self._read_ms > CHECKPOINT_AGE_MS
            ):
                self._loaded, self._read_ms = self._read_checkpoint(), now_ms
            return self._loaded.get(topic, {}).get(partition, -1)

    def _read_checkpoint(self) -> Mapping[str, Mapping[int, int]]:
        # A broker without this plugin does not load the pipeline's modules.
        from barnabas.spark.checkpoint import Checkpoint
        from barnabas.spark.failures import CheckpointError
        from barnabas.spark.files import files_at

        try:
            batch = Checkpoint(files_at(self.checkpoint)).last_committed()
        except (CheckpointError, OSError, ValueError) as error:
            log.warning(
                "cannot read the load's checkpoint; keeping all within the limits: %s", error
            )
            return {}
        return {} if batch is None else batch.kafka()

    def _say_lost(self, view: LogView, to: int, loaded: int) -> None:
        first = max(loaded, view.segments[0].base_offset)
        log.warning(
            "%s-%d: deleting offsets %d to %d, not loaded yet: keep.ms or keep.bytes is exceeded",
            view.topic,
            view.partition,
            first,
            to - 1,
        )
