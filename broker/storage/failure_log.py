"""Logs failures of the disks that hold the logs: each at once, then once a minute.

A line names the file, the error, the clients' error and the remedy. While the same failure
continues (a full disk refuses thousands of writes a minute), each further line has the count since
the last one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from barnabas.cext.log.failed_calls import Failure
from barnabas.storage.log_dirs import NO_SPACE
from barnabas.storage.log_manager import LogManager

log = logging.getLogger("barnabas.logs")

PERIOD_MS = 1000
AGAIN_MS = 60_000  # between two lines of the same failure
KNOWN_MAX = 1000  # remembered failures; at this number all are forgotten
LINES_MAX = 20  # for each call: a failing disk has thousands of logs

REFUSED = (
    "%s: %s of %s failed: %s. Producers get KAFKA_STORAGE_ERROR, which they try again; records that"
    " are there are served."
)
LINES = {
    "write": ("a write", REFUSED),
    "open": ("making the files or reserving space for the next batch", REFUSED),
    "cut": (
        "the cut of a failed write",
        "%s: %s of %s failed: %s. The partition is offline: producers and consumers get"
        " KAFKA_STORAGE_ERROR. The broker tries it again every few seconds.",
    ),
    "flush": (
        "a flush",
        "%s: %s of %s failed: %s. The partition is offline until the broker is started again:"
        " producers and consumers get KAFKA_STORAGE_ERROR, because its newest records may be in"
        " memory only. Check the disk, then restart the broker.",
    ),
}
FREED = " Free space on this disk: writes go on by themselves then."


class FailureLog:
    """Writes the log lines of one broker."""

    def __init__(
        self,
        logs: LogManager,
        monotonic_ns: Callable[[], int],
        failed: Callable[[list[tuple[str, int]]], object] = lambda _: None,
    ) -> None:
        """`failed` is called with the partitions of new failures, by topic and number."""
        self._logs = logs
        self._monotonic_ns = monotonic_ns
        self._failed = failed
        self._written_ms: dict[tuple[str, str, int], int] = {}  # when the last line came
        self._since: dict[tuple[str, str, int], int] = {}  # failures since then

    def write(self) -> int:
        """Logs the failures since the last call; returns the number of lines."""
        now_ms = self._monotonic_ns() // 1_000_000
        lines, more = 0, 0
        failures = self._logs.take_failures()
        for row in failures:
            key = row.path, row.what, row.errno
            count = self._since.get(key, 0) + row.times
            self._since[key] = count
            written_ms = self._written_ms.get(key)
            if written_ms is not None and now_ms - written_ms < AGAIN_MS:
                continue
            if lines == LINES_MAX:
                more += 1
                continue
            self._write_one(row, count if written_ms is not None else 0)
            lines += 1
            self._written_ms[key], self._since[key] = now_ms, 0
        if more:
            log.error("%d more files failed in the same second", more)
        if len(self._since) > KNOWN_MAX:
            self._written_ms.clear()
            self._since.clear()
        if failures:
            directories = {Path(row.path).parent for row in failures}
            self._failed(
                [
                    (row.topic, row.partition)
                    for row in self._logs.logs()
                    if row.directory in directories
                ]
            )
        return lines

    @staticmethod
    def _write_one(row: Failure, count: int) -> None:
        what, text = LINES[row.what]
        if row.errno in NO_SPACE and row.what in ("write", "open"):
            text += FREED
        if count:
            text += f" It failed {count} times since the last such line."
        log.error(text, Path(row.path).parent.name, what, row.path, os.strerror(row.errno))
