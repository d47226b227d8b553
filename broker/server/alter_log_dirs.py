"""Moves replicas between the log directories of this broker while they are served (KIP-113).

A request makes a future log in the other directory. One thread copies all future logs in turn, a
part of each at a time, as fast as `replica.alter.log.dirs.io.max.bytes.per.second` allows. When a
future log has nearly all records, it replaces the current log: appends wait while the rest is
copied. A copy that fails is removed, and the replica stays where it is; a request moves it again. A
broker that starts continues the copies that it finds.

Kafka: ReplicaManager.alterReplicaLogDirs, ReplicaAlterLogDirsManager.
Next: storage/future_logs.py.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from barnabas.cext.log.log_handle import LogError
from barnabas.cext.network.quota_sensors import Sensor
from barnabas.cext.partition.partitions import PartitionTable
from barnabas.errors import (
    InvalidTopicException,
    KafkaStorageError,
    LogDirNotFound,
    ReplicaNotAvailable,
    UnknownTopicOrPartition,
)
from barnabas.server.replica_manager import ReplicaManager
from barnabas.storage.checkpoint_writer import CheckpointWriter
from barnabas.storage.future_logs import copy_step
from barnabas.storage.log_manager import LogManager, PartitionLog
from barnabas.storage.partition_dirs import marked_name, plain_name

log = logging.getLogger("barnabas.replicas")

STEP_BYTES = 1 << 20  # copied before the next log has its turn, and while appends wait
BUSY_MS = 100  # between two turns while a log moves: the rate is used up, or it is compacted
IDLE_MS = 60_000


class AlterLogDirs:
    """The moves of one broker."""

    def __init__(
        self,
        replicas: ReplicaManager,
        table: PartitionTable,
        logs: LogManager,
        checkpoints: CheckpointWriter,
        throttle: Sensor,
        monotonic_ns: Callable[[], int],
        stopping: Callable[[], bool],
    ) -> None:
        """`throttle`: limits the copied bytes/s."""
        self._replicas = replicas
        self._table = table
        self._logs = logs
        self._checkpoints = checkpoints
        self._throttle = throttle
        self._monotonic_ns = monotonic_ns
        self._stopping = stopping
        self.wake: Callable[[], object] = lambda: None  # runs the copies at once

    # -- requests ---------------------------------------------------------------------------------

    def alter(self, topic: str, partition: int, directory: str) -> None:
        """Begins to move a replica to a log directory. Another move of it ends; with the directory
        that contains the replica that is all. For a replica that does not exist the directory is
        remembered for its creation. Raises InvalidTopicException for a name that is too long for a
        future log, LogDirNotFound, KafkaStorageError, ReplicaNotAvailable when the broker has no
        replica of the partition, and UnknownTopicOrPartition."""
        name = marked_name(topic, partition, "future")
        if not name.startswith(f"{plain_name(topic, partition)}."):  # it was truncated
            raise InvalidTopicException("The topic's name is too long to move its partitions.")
        path = self._usable(directory)
        self._replicas.while_unchanged(lambda: self._alter(topic, partition, path))
        self.wake()

    def _usable(self, directory: str) -> Path:
        wanted = os.path.normpath(directory)  # a path from the request: no system call takes it
        if wanted in map(os.path.abspath, self._logs.failed_directories):
            raise KafkaStorageError()
        for row in self._logs.directories():
            if os.path.abspath(row.path) == wanted:
                return row.path
        raise LogDirNotFound()

    def _alter(self, topic: str, partition: int, path: Path) -> None:
        if self._replicas.is_offline(topic, partition):
            raise KafkaStorageError()
        future = self._logs.future(topic, partition)
        if future is not None and future.directory.parent != path:
            self._logs.remove_future(topic, partition)
            log.info("%s-%d: the move to %s was ended", topic, partition, future.directory.parent)
            future = None
        current = self._logs.get(topic, partition)
        if current is None:
            self._logs.prefer_directory(topic, partition, path)
            known = self._replicas.is_known(topic, partition)
            raise ReplicaNotAvailable() if known else UnknownTopicOrPartition()
        if current.directory.parent == path or future is not None:
            return
        if self._logs.failed_directories:
            raise KafkaStorageError()  # as in Kafka: a future log may be in one that failed
        try:
            config = self._replicas.topic_config(topic)
            self._logs.add_future(topic, partition, path, config)
        except (OSError, LogError) as error:
            log.error("%s-%d cannot be moved to %s: %s", topic, partition, path, error)
            raise KafkaStorageError() from error
        # An earlier copy may have left its recovery point there.
        self._checkpoints.write_recovery_points()
        log.info("%s-%d moves from %s to %s", topic, partition, current.directory.parent, path)

    # -- copying ----------------------------------------------------------------------------------

    def period_ms(self) -> int:
        return BUSY_MS if self._logs.futures() else IDLE_MS

    def run(self) -> None:
        """Copies until every future log waits: for its rate, or for the end of a compaction."""
        goes_on = True
        while goes_on:
            goes_on = False
            for row in self._logs.futures():
                if self._stopping() or self._throttle.is_exceeded(self._now_ms()):
                    return
                try:
                    goes_on |= self._take_turn(row)
                except (LogError, OSError) as error:
                    self._give_up(row, error)

    def _take_turn(self, row: PartitionLog) -> bool:
        """Copies a part of a log, or replaces the log by its copy. Returns whether it has brought
        the move nearer to its end. Raises LogError, OSError."""
        with self._logs.moving:
            current = self._logs.get(row.topic, row.partition)
            if current is None or not self._is_current(row):
                return False
            copied = copy_step(current.handle, row.handle, STEP_BYTES)
            # The rest after a short step fits into the one that is copied while appends wait.
            is_near = copied < STEP_BYTES // 2
            if is_near:
                row.handle.flush()
        if copied:
            self._throttle.note(copied, self._now_ms())
        if not is_near or self._logs.is_compacted(row.topic, row.partition):
            return copied > 0
        return self._replicas.while_unchanged(lambda: self._replace(row)) or copied > 0

    def _replace(self, row: PartitionLog) -> bool:
        if not self._is_current(row):
            return False  # the move was ended, or the replica deleted
        self._checkpoints.write_log_starts()  # deleted records stay deleted after a crash
        if not self._logs.replace_with_future(row.topic, row.partition, STEP_BYTES):
            return False
        parent = row.directory.parent
        if self._table.partition(row.topic, row.partition) is not None:
            self._table.set_directory(row.topic, row.partition, str(parent))
        self._checkpoints.write_all()
        log.info("%s-%d was moved to %s", row.topic, row.partition, parent)
        return True

    def _give_up(self, row: PartitionLog, error: Exception) -> None:
        if not self._is_current(row):
            return
        self._logs.give_up_future(row.topic, row.partition)
        log.error(
            "%s-%d cannot be moved to %s and stays where it is: %s. Move it again after the cause"
            " is removed.",
            row.topic,
            row.partition,
            row.directory.parent,
            error,
        )

    def _is_current(self, row: PartitionLog) -> bool:
        return self._logs.future(row.topic, row.partition) is row

    def _now_ms(self) -> int:
        return self._monotonic_ns() // 1_000_000
