"""Metrics of log compaction, under Kafka's names. The cleaner is log_cleaner.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from barnabas.storage.log_cleaner import LogCleaner
from barnabas.telemetry.registry import COUNTER, GAUGE, Family, Metric, Page, of_mbean


def _cleaner(name: str, meaning: str) -> Metric:
    return of_mbean(f"kafka.log:type=LogCleaner,name={name}", GAUGE, meaning)


def _manager(name: str, meaning: str, labels: tuple[str, ...] = ()) -> Metric:
    return of_mbean(f"kafka.log:type=LogCleanerManager,name={name}", GAUGE, meaning, labels)


DEAD_THREADS = _cleaner("DeadThreadCount", "Cleaner threads that have ended")
MAP_PERCENT = _cleaner(
    "max-buffer-utilization-percent",
    "Largest share of the key map that the last pass of a cleaner thread used, in percent",
)
RECOPY_PERCENT = _cleaner(
    "cleaner-recopy-percent", "Share of the bytes read that the last passes kept, in percent"
)
CLEAN_TIME = _cleaner(
    "max-clean-time-secs", "Duration of the longest of the threads' last passes, in s"
)
DELAY = _cleaner(
    "max-compaction-delay-secs", "Longest time by which a log is past max.compaction.lag.ms, in s"
)
DIRTY_PERCENT = _manager("max-dirty-percent", "Largest dirty share of a log, in percent")
SINCE_LAST_RUN = _manager(
    "time-since-last-run-ms", "Time since the cleaner last looked for a dirty log, in ms"
)
UNCLEANABLE = _manager(
    "uncleanable-partitions-count",
    "Logs that the cleaner skips because cleaning them failed",
    ("logDirectory",),
)
UNCLEANABLE_BYTES = _manager(
    "uncleanable-bytes",
    "Dirty bytes of logs that the cleaner skips because cleaning them failed",
    ("logDirectory",),
)
BYTES_READ = Metric("barnabas_cleaner_bytes_total", COUNTER, (), "Bytes that the cleaner has read")
PASSES = Metric("barnabas_cleaner_passes_total", COUNTER, (), "Completed passes over a log")
METRICS = (
    DEAD_THREADS,
    MAP_PERCENT,
    RECOPY_PERCENT,
    CLEAN_TIME,
    DELAY,
    DIRTY_PERCENT,
    SINCE_LAST_RUN,
    UNCLEANABLE,
    UNCLEANABLE_BYTES,
    BYTES_READ,
    PASSES,
)


class CleanerCollector:
    """The collector of one cleaner."""

    def __init__(self, cleaner: LogCleaner, monotonic_ns: Callable[[], int]) -> None:
        self._cleaner = cleaner
        self._monotonic_ns = monotonic_ns

    def __call__(self, page: Page) -> Iterator[Family]:
        cleaner = self._cleaner
        passes = list(cleaner.last_passes.values())
        yield DEAD_THREADS, [("", cleaner.dead_thread_count)]
        yield MAP_PERCENT, [("", int(max((p.map_share for p in passes), default=0) * 100))]
        left = sum(p.left_share for p in passes) / len(passes) if passes else 0
        yield RECOPY_PERCENT, [("", int(left * 100))]
        yield CLEAN_TIME, [("", int(max((p.seconds for p in passes), default=0)))]
        yield DELAY, [("", cleaner.largest_delay_ms // 1000)]
        yield DIRTY_PERCENT, [("", int(cleaner.largest_ratio * 100))]
        since_ms = self._monotonic_ns() // 1_000_000 - cleaner.looked_ms
        yield SINCE_LAST_RUN, [("", since_ms)]
        found = [
            (page.labels(logDirectory=str(path)), rows)
            for path, rows in cleaner.uncleanable().items()
        ]
        yield UNCLEANABLE, [(labels, len(rows)) for labels, rows in found]
        yield UNCLEANABLE_BYTES, [(labels, sum(rows)) for labels, rows in found]
        yield BYTES_READ, [("", cleaner.bytes_read)]
        yield PASSES, [("", cleaner.passes)]
