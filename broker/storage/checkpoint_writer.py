"""Writes the offset checkpoints of each log directory, at intervals and at the stop.

    recovery-point     up to where each log is on disk: recovery after a crash begins there; the
                       leader epochs of followers are written before
    replication        high watermarks
    log-start-offset   starts that lie above the first segment's base

An old checkpoint is harmless: recovery reads more, or deleted records become visible again. The
log start is written before DeleteRecords is answered. The files of its directory also have the
recovery point and the log start of a future log, which the log has there later. All three files are
written when topics were deleted: a later topic of the same name must not find their offsets. For
the same reason a new log is served only when none of the files has an offset of a former one.
"""

import logging
import threading
from collections.abc import Callable, Collection
from pathlib import Path

from barnabas.cext.log.log_handle import LogError
from barnabas.storage import checkpoints as files
from barnabas.storage.checkpoints import TopicPartition
from barnabas.storage.log_manager import LogManager, PartitionLog
from barnabas.storage.replace_file import sync_directory

log = logging.getLogger("barnabas.logs")


class CheckpointWriter:
    """The checkpoints of one node. `high_watermark` of a partition comes from the table."""

    def __init__(self, logs: LogManager, high_watermark: Callable[[str, int], int]) -> None:
        self._logs = logs
        self._high_watermark = high_watermark
        self._lock = threading.Lock()  # one writer at a time, so that newer offsets stay
        self._written: dict[Path, dict[TopicPartition, int]] = {}  # the content of each file

    def write_recovery_points(self) -> bool:
        """Writes the leader epochs before: recovery does not read them from the records below a
        recovery point, and from none after a clean stop. Returns whether all were written."""
        failed = self._logs.save_leader_epochs()
        return not self._write(files.RECOVERY_POINT, lambda row: row.handle.flushed_offset, failed)

    def write_high_watermarks(self) -> bool:
        return not self._write(
            files.HIGH_WATERMARK, lambda r: self._high_watermark(r.topic, r.partition)
        )

    def write_log_starts(self) -> bool:
        """Returns whether all files were written."""
        return not self.unwritten_log_starts()

    def unwritten_log_starts(self) -> set[Path]:
        """Writes the log starts, and returns the log directories where that failed. A start that
        its first segment shows is in no file; before one is left out, the names of the segments
        that retention has deleted are gone from the disk: with one of them, a power cut would bring
        deleted records back."""

        def start(row: PartitionLog) -> int | None:
            start = int(row.handle.start_offset)
            if start > row.handle.segments()[0].base_offset:
                return start
            path = row.directory.parent / files.LOG_START
            try:
                if (row.topic, row.partition) in self._known(path):
                    sync_directory(row.directory)
            except OSError as error:
                log.error("cannot flush the directory %s: %s", row.directory, error)
                return start
            return None

        return self._write(files.LOG_START, start)

    def write_all(self) -> bool:
        written = [
            self.write_high_watermarks(),
            self.write_log_starts(),
            self.write_recovery_points(),
        ]
        return all(written)

    def forget_former(self, new: Collection[TopicPartition]) -> dict[TopicPartition, OSError]:
        """Removes offsets of former logs with the names of new, empty ones: a topic was deleted, or
        a replica moved away, since the last write. Returns those where that failed, and why. A
        start takes the offsets of a log from its own log directory: others may fail."""
        failed: dict[TopicPartition, OSError] = {}
        with self._lock:
            for directory in self._logs.directories():
                try:
                    for name in (files.RECOVERY_POINT, files.HIGH_WATERMARK, files.LOG_START):
                        self._forget(directory.path / name, new)
                except OSError as error:
                    opened = filter(None, (self._logs.get(*row) for row in new))
                    failed |= {
                        (row.topic, row.partition): error
                        for row in opened
                        if row.directory.parent == directory.path
                    }
        return failed

    def _forget(self, path: Path, new: Collection[TopicPartition]) -> None:
        known = self._known(path)
        if any(known.get(row) for row in new):
            rows = {row: offset for row, offset in known.items() if row not in new}
            files.write_offsets(path, rows)
            self._written[path] = rows

    def _known(self, path: Path) -> dict[TopicPartition, int]:
        """Returns the content of a file; of a damaged one, which no start uses, nothing."""
        known = self._written.get(path)
        if known is None:
            try:
                known = self._written[path] = files.read_offsets(path)
            except files.DamagedFile:
                return {}
        return known

    def write_all_and_close(self) -> bool:
        """Stops: writes the high watermarks, flushes each log, writes the leader epochs and the
        recovery points, and closes each log. Returns whether every step succeeded."""
        self.write_high_watermarks()
        self.write_log_starts()
        clean = True
        for row in (*self._logs.logs(), *self._logs.futures()):
            try:
                row.handle.flush()
            except LogError as error:
                log.error("%s", error)
                clean = False
        clean = self.write_recovery_points() and clean
        return self._logs.close() and clean

    def _write(
        self,
        name: str,
        value: Callable[[PartitionLog], int | None],
        but: Collection[Path] = (),
    ) -> set[Path]:
        """Writes a file of each log directory, except of those in `but`. Returns the directories
        where it did not."""
        with self._lock:
            return self._write_alone(name, value, but)

    def _write_alone(
        self, name: str, value: Callable[[PartitionLog], int | None], but: Collection[Path]
    ) -> set[Path]:
        offsets: dict[Path, dict[TopicPartition, int]] = {
            directory.path: self._logs.kept_offsets(name, directory.path)
            for directory in self._logs.directories()
        }
        futures = [] if name == files.HIGH_WATERMARK else self._logs.futures()
        for row in (*self._logs.logs(), *futures):
            try:
                found = value(row)
            except LogError:
                continue  # its topic has been deleted
            if found is not None:
                offsets[row.directory.parent][row.topic, row.partition] = found
        failed = set(but)
        for path, rows in offsets.items():
            if path in but:
                continue
            if self._written.get(path / name) == rows and (path / name).exists():
                continue
            self._written.pop(path / name, None)
            try:
                files.write_offsets(path / name, rows)
                self._written[path / name] = rows
            except OSError as error:
                log.error("cannot write %s/%s: %s", path, name, error)
                failed.add(path)
        return failed
