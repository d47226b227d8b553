"""The log cleaner: selects the next log to compact, limits the rate, and writes checkpoints.

Each of log.cleaner.threads takes the log with the largest dirty share among those that are due:
min.cleanable.dirty.ratio is reached, or max.compaction.lag.ms exceeded. cleaner-offset-checkpoint
in the log's directory has the offset at which the next pass begins. It is written after each pass;
with an old one the pass takes longer. A log that cannot be cleaned (a damaged batch, an old message
format) stays as it is, is logged once, and is tried again after the next start.
Next: compaction.py.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cext.log.log_handle import LogError
from barnabas.cext.memory.sys import SystemCalls
from barnabas.config import DynamicConfig, TopicConfig
from barnabas.storage import checkpoints as files
from barnabas.storage.checkpoints import DamagedFile, TopicPartition
from barnabas.storage.dirty_range import DirtyRange, dirty_range_of
from barnabas.storage.log_manager import LogManager, PartitionLog

if TYPE_CHECKING:
    from barnabas.storage.compaction import Cleaned

log = logging.getLogger("barnabas.cleaner")

LOOK_S = 0.1  # between two checks of the stop, while a pass waits for its rate


class Candidate(NamedTuple):
    row: PartitionLog
    config: TopicConfig
    dirty_range: DirtyRange


class CleanerStats(NamedTuple):
    """The last pass of a thread."""

    seconds: float
    map_share: float  # the used share of the offset map
    left_share: float  # the share of the read bytes that remains


class LogCleaner:
    """Compaction of one node."""

    def __init__(
        self,
        logs: LogManager,
        config: DynamicConfig,
        system: SystemCalls,
        *,
        topic_config: Callable[[str], TopicConfig],
        high_watermark: Callable[[str, int], int],
        stopping: Callable[[], bool],
        allowed: Callable[[PartitionLog, int, float, bool], bool] = lambda *_: True,
    ) -> None:
        """`allowed`: whether plugins let a log be compacted now, by its dirty bytes, their share,
        and whether max.compaction.lag.ms is over."""
        self._logs = logs
        self._config = config
        self._system = system
        self._topic_config = topic_config
        self._high_watermark = high_watermark
        self._stopping = stopping
        self._allowed = allowed
        self._task_count = 0
        self._lock = threading.Lock()  # of all below
        self._clean_to: dict[TopicPartition, tuple[bytes, int]] = {}  # topic id, offset
        self._busy: set[TopicPartition] = set()
        self._uncleanable: dict[TopicPartition, bytes] = {}  # and its topic id
        self._spent_ns = 0  # until when the threads' common rate is used up
        self.passes = 0
        self.bytes_read = 0
        self.last_pass_ms = 0
        self.largest_ratio = 0.0  # of the logs looked at last
        self.largest_delay_ms = 0  # of these logs, beyond max.compaction.lag.ms
        self.looked_ms = system.monotonic_ns() // 1_000_000  # when they were looked at
        self.last_passes: dict[int, CleanerStats] = {}  # by thread
        self._threads: dict[int, threading.Thread] = {}
        for directory in logs.directories():
            self._load(directory.path)

    def _load(self, directory: Path) -> None:
        try:
            found = files.read_offsets(directory / files.CLEANER)
        except DamagedFile as error:
            log.warning("%s; the cleaner starts at the beginning of its logs", error)
            return
        for name, offset in found.items():
            row = self._logs.get(*name)
            if row is not None and row.directory.parent == directory:
                self._clean_to[name] = row.topic_id, offset

    def begin(self, add: Callable[[str, Callable[[], int], Callable[[], float]], object]) -> None:
        """Adds a repeating task for each of log.cleaner.threads, now and when there are more."""

        def period_ms() -> int:
            return self._config.integer("log.cleaner.backoff.ms")

        def add_tasks() -> None:
            while self._task_count < self._config.integer("log.cleaner.threads"):
                index = self._task_count
                self._task_count += 1
                add(f"log-cleaner-{index}", partial(self.run, index), period_ms)

        def changed(names: frozenset[str]) -> None:
            if "log.cleaner.threads" in names:
                add_tasks()

        if self._config["log.cleaner.enable"]:
            add_tasks()
            self._config.on_change.append(changed)

    @property
    def uncleanable_count(self) -> int:
        with self._lock:
            return len(self._uncleanable)

    @property
    def dead_thread_count(self) -> int:
        return sum(not thread.is_alive() for thread in list(self._threads.values()))

    def uncleanable(self) -> dict[Path, list[int]]:
        """Returns, for each log directory, the dirty bytes of the logs that cannot be cleaned."""
        found: dict[Path, list[int]] = {row.path: [] for row in self._logs.directories()}
        with self._lock:
            names = list(self._uncleanable)
            clean_to = dict(self._clean_to)
        for name in names:
            row = self._logs.get(*name)
            if row is None:
                continue
            config, offset = self._topic_config(row.topic), clean_to.get(name, (b"", -1))[1]
            try:
                dirty_range = dirty_range_of(
                    row, config, offset, self._high_watermark(*name), self._system.wall_ms()
                )
            except (LogError, OSError):
                continue  # closed or cut since it was chosen
            found[row.directory.parent].append(dirty_range.dirty_bytes)
        return found

    def is_busy(self, topic: str, partition: int) -> bool:
        """Returns whether a thread compacts the log."""
        with self._lock:
            return (topic, partition) in self._busy

    # -- which log next -------------------------------------------------------------------------

    def run(self, thread: int = 0) -> int:
        """Cleans until no log is due; returns the number of passes. A thread beyond
        log.cleaner.threads does nothing."""
        count = 0
        self._threads[thread] = threading.current_thread()
        while thread < self._config.integer("log.cleaner.threads") and not self._stopping():
            found = self._take()
            if found is None:
                break
            try:
                count += self._clean(found, thread)
            finally:
                with self._lock:
                    self._busy.discard((found.row.topic, found.row.partition))
        return count

    def _take(self) -> Candidate | None:
        """Returns the dirtiest log that is due and that no other thread cleans."""
        with self._lock:
            due: list[Candidate] = []
            compacted: dict[str, TopicConfig | None] = {}  # asked once a topic
            self.largest_ratio, self.largest_delay_ms = 0.0, 0
            self.looked_ms = self._system.monotonic_ns() // 1_000_000
            for row in self._logs.logs():
                if row.topic not in compacted:
                    compacted[row.topic] = self._compacted(row.topic)
                config = compacted[row.topic]
                if config is None:
                    continue
                try:
                    found = self._candidate(row, config)
                except LogError:
                    continue  # its topic has been deleted
                if found is not None:
                    due.append(found)
            if not due:
                return None
            due.sort(key=lambda found: (found.dirty_range.is_overdue, found.dirty_range.ratio))
            while due and not self._may(due[-1]):
                due.pop()
            if not due:
                return None
            best = due[-1]
            self._busy.add((best.row.topic, best.row.partition))
            return best

    def _may(self, found: Candidate) -> bool:
        dirty_range = found.dirty_range
        return self._allowed(
            found.row, dirty_range.dirty_bytes, dirty_range.ratio, dirty_range.is_overdue
        )

    def _compacted(self, topic: str) -> TopicConfig | None:
        config = self._topic_config(topic)
        return config if "compact" in config.names("cleanup.policy") else None

    def _candidate(self, row: PartitionLog, config: TopicConfig) -> Candidate | None:
        name = row.topic, row.partition
        if self._logs.future(*name) is not None:
            return None  # Kafka does not compact a log while it moves to another directory either
        if name in self._busy or self._uncleanable.get(name) == row.topic_id:
            return None
        topic_id, offset = self._clean_to.get(name, (row.topic_id, -1))
        checkpoint = offset if topic_id == row.topic_id else -1
        high_watermark = self._high_watermark(*name)
        dirty_range = dirty_range_of(
            row, config, checkpoint, high_watermark, self._system.wall_ms()
        )
        self.largest_ratio = max(self.largest_ratio, dirty_range.ratio)
        self.largest_delay_ms = max(self.largest_delay_ms, dirty_range.delay_ms)
        if dirty_range.dirty_bytes == 0:
            return None
        is_due = dirty_range.is_overdue or dirty_range.ratio >= _number(
            config["min.cleanable.dirty.ratio"]
        )
        return Candidate(row, config, dirty_range) if is_due else None

    # -- one pass -------------------------------------------------------------------------------

    def _clean(self, found: Candidate, thread: int) -> bool:
        """Runs a pass; returns whether it succeeded. The first pass imports its modules: a broker
        without compacted topics never loads them."""
        from barnabas.cext.log.cleaner.compact import Uncleanable
        from barnabas.cext.log.cleaner.offset_map import OffsetMap
        from barnabas.storage.compaction import Stopped, compact

        row = found.row
        began_ns = self._system.monotonic_ns()
        threads = max(self._config.integer("log.cleaner.threads"), 1)
        offsets = OffsetMap(
            self._config.integer("log.cleaner.dedupe.buffer.size") // threads,
            _number(self._config["log.cleaner.io.buffer.load.factor"]),
        )
        try:
            done = compact(
                row,
                found.config,
                found.dirty_range,
                offsets,
                self._system,
                found.config.integer("max.decompressed.message.bytes"),
                self._system.wall_ms(),
                lambda size_bytes: self._pace(row, size_bytes),
                # One half of a thread's share is for reading, the other for writing.
                io_bytes=max(self._config.integer("log.cleaner.io.buffer.size") // threads // 2, 1),
                linking=self._logs.linking,
            )
        except Stopped as reason:
            log.info("compaction of %s-%d ended early: %s", row.topic, row.partition, reason)
            return False
        except (Uncleanable, LogError, OSError) as error:
            self._give_up(row, error)
            return False
        finally:
            map_share = offsets.count / max(offsets.keys_max, 1)
            offsets.release()
        self._remember(row, done)
        self.last_pass_ms = (self._system.monotonic_ns() - began_ns) // 1_000_000
        left_share = done.bytes_after / max(done.bytes_before, 1)
        self.last_passes[thread] = CleanerStats(self.last_pass_ms / 1e3, map_share, left_share)
        log.info(
            "%s-%d compacted up to offset %d: %d of %d records, %d of %d bytes left, %d keys,"
            " %d ms",
            row.topic,
            row.partition,
            done.first_dirty,
            done.records_after,
            done.records_before,
            done.bytes_after,
            done.bytes_before,
            done.keys,
            self.last_pass_ms,
        )
        return True

    def _pace(self, row: PartitionLog, size_bytes: int) -> bool:
        """Waits for log.cleaner.io.max.bytes.per.second; False when the pass is to end."""
        rate = _number(self._config["log.cleaner.io.max.bytes.per.second"])
        now_ns = self._system.monotonic_ns()
        with self._lock:
            self.bytes_read += size_bytes
            self._spent_ns = max(self._spent_ns, now_ns) + int(size_bytes / max(rate, 1.0) * 1e9)
            until_ns = self._spent_ns
        while (left_ns := until_ns - self._system.monotonic_ns()) > 0 and not self._stopping():
            time.sleep(min(left_ns / 1e9, LOOK_S))
        if self._stopping():
            return False
        return (
            self._logs.get(row.topic, row.partition) is row
            and self._logs.future(row.topic, row.partition) is None
        )

    def _give_up(self, row: PartitionLog, error: Exception) -> None:
        if self._logs.get(row.topic, row.partition) is not row:
            return  # it has been deleted
        log.error("cannot compact %s-%d; the cleaner skips it: %s", row.topic, row.partition, error)
        with self._lock:
            self._uncleanable[row.topic, row.partition] = row.topic_id

    def _remember(self, row: PartitionLog, done: Cleaned) -> None:
        with self._lock:
            self._clean_to[row.topic, row.partition] = row.topic_id, done.first_dirty
            offsets = {}
            for name, (topic_id, offset) in list(self._clean_to.items()):
                known = self._logs.get(*name)
                if known is None or known.topic_id != topic_id:
                    del self._clean_to[name]
                elif known.directory.parent == row.directory.parent:
                    offsets[name] = offset
            try:
                files.write_offsets(row.directory.parent / files.CLEANER, offsets)
            except OSError as error:
                log.error(
                    "cannot write the cleaner checkpoint of %s; the next start repeats work: %s",
                    row.directory,
                    error,
                )
            self.passes += 1


def _number(value: object) -> float:
    """A setting of type DOUBLE."""
    assert isinstance(value, float | int)
    return float(value)
