"""The log of Spark's file sink: it lists the valid files of a directory, by batch.

    _spark_metadata/N           v1, then a line of JSON for each file that batch N added:
                                {"path":..,"size":..,"isDir":false,"modificationTime":..,
                                 "blockReplication":1,"blockSize":..,"action":"add"}
    _spark_metadata/N.compact   the same with the files of all batches up to N

Every `interval`-th batch (9, 19, ... for 10) is written compacted. A reader begins at the newest
`.compact` and adds the batches after it. Files that no batch names belong to failed tasks. After a
delay, when no reader can still need them, `expire` deletes log files that a `.compact` replaces.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from barnabas.spark.failures import (
    CheckpointError,
    ConcurrentWriter,
    IncompleteCheckpoint,
    TruncatedFile,
    UnknownVersion,
)
from barnabas.spark.store import Files

DIRECTORY = "_spark_metadata"
COMPACT = ".compact"
INTERVAL = 10  # spark.sql.streaming.fileSink.log.compactInterval
CLEANUP_DELAY_MS = 600_000  # spark.sql.streaming.fileSink.log.cleanupDelay
FIELDS = {
    "path": str,
    "size": int,
    "isDir": bool,
    "modificationTime": int,
    "blockReplication": int,
    "blockSize": int,
    "action": str,
}


@dataclass(frozen=True, slots=True)
class SinkFile:
    """A file of the sink, with Spark's names of its fields."""

    path: str
    size: int
    modificationTime: int
    isDir: bool = False
    blockReplication: int = 1
    blockSize: int = 33_554_432
    action: str = "add"

    def encoded(self) -> str:
        row = asdict(self)
        ordered = {name: row[name] for name in FIELDS}
        return json.dumps(ordered, separators=(",", ":"), ensure_ascii=False)


class SinkLog:
    """The log below the directory of `files`."""

    def __init__(self, files: Files, *, interval: int = INTERVAL) -> None:
        assert interval > 1, "a log that is compacted at each batch would hold everything always"
        self.files, self.interval = files, interval

    def batch_ids(self) -> list[tuple[int, bool]]:
        """Returns (batch, whether it is compacted), ascending."""
        found = []
        for name in self.files.names(DIRECTORY):
            bare = name.removesuffix(COMPACT)
            if bare.isdecimal():
                found.append((int(bare), bare != name))
        return sorted(found)

    def last_batch(self) -> int | None:
        """Returns the newest batch number; None when the log is empty."""
        ids = self.batch_ids()
        return ids[-1][0] if ids else None

    def current(self) -> list[SinkFile]:
        """Returns the valid files, in the order of their batches. Raises CheckpointError."""
        ids = self.batch_ids()
        if not ids:
            return []
        compacted = [n for n, is_compacted in ids if is_compacted]
        first = compacted[-1] if compacted else 0
        rows = self._entries(first, True) if compacted else []
        plain = {n for n, is_compacted in ids if not is_compacted}
        for batch_id in range(first + 1 if compacted else 0, ids[-1][0] + 1):
            if batch_id not in plain:
                raise IncompleteCheckpoint(self._shown(batch_id, False), "this batch is missing")
            rows += self._entries(batch_id, False)
        gone = {row.path for row in rows if row.action == "delete"}
        return [row for row in rows if row.action == "add" and row.path not in gone]

    def _path(self, batch_id: int, compacted: bool) -> str:
        return f"{DIRECTORY}/{batch_id}{COMPACT if compacted else ''}"

    def _shown(self, batch_id: int, compacted: bool) -> str:
        return self.files.shown(self._path(batch_id, compacted))

    def _entries(self, batch_id: int, compacted: bool) -> list[SinkFile]:
        path = self._path(batch_id, compacted)
        shown = self.files.shown(path)
        try:
            head, *lines = self.files.read(path).decode().split("\n")
        except FileNotFoundError:
            raise IncompleteCheckpoint(shown, "it was deleted while the log was read") from None
        except UnicodeDecodeError as error:
            raise TruncatedFile(shown, f"not text ({error.reason})") from error
        if head in ("", "v"):
            raise TruncatedFile(shown, "it ends before its version")
        if head != "v1":
            raise UnknownVersion(shown, f"version {head[:20]!r} is unknown; the known one is v1")
        return [self._entry(shown, line) for line in lines if line]

    def _entry(self, shown: str, line: str) -> SinkFile:
        try:
            row: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TruncatedFile(shown, f"{line[:40]!r}: {error}") from error
        if not isinstance(row, dict) or not all(
            isinstance(row.get(name), kind) for name, kind in FIELDS.items()
        ):
            raise CheckpointError(shown, f"{line[:60]!r} does not describe a file")
        return SinkFile(**{name: row[name] for name in FIELDS})

    def add(self, batch_id: int, rows: Iterable[SinkFile]) -> None:
        """Makes the files of a batch valid. Raises ConcurrentWriter, and CheckpointError when
        batches before it are missing."""
        added = list(rows)
        last = self.last_batch()
        if last is not None and batch_id <= last:
            raise ConcurrentWriter(
                self._shown(batch_id, False), f"batch {last} is already in the log"
            )
        if batch_id != (-1 if last is None else last) + 1:
            raise IncompleteCheckpoint(self._shown(batch_id - 1, False), "this batch is missing")
        compacted = (batch_id + 1) % self.interval == 0
        if compacted:
            added = self.current() + added
        text = "\n".join(["v1", *(row.encoded() for row in added)])
        try:
            self.files.put_if_absent(self._path(batch_id, compacted), text.encode())
        except FileExistsError:
            raise ConcurrentWriter(
                self._shown(batch_id, compacted), "it already exists: another program writes it"
            ) from None

    def expire(self, *, now_ms: int, delay_ms: int = CLEANUP_DELAY_MS) -> list[str]:
        """Deletes log files that the newest `.compact` replaces and that are older than the delay.
        `now_ms`: ms since 1970. Returns the deleted paths."""
        ids = self.batch_ids()
        compacted = [n for n, is_compacted in ids if is_compacted]
        gone = []
        for batch_id, is_compacted in ids:
            path = self._path(batch_id, is_compacted)
            if compacted and batch_id < compacted[-1]:
                if self.files.modified_ms(path) <= now_ms - delay_ms:
                    self.files.delete(path)
                    gone.append(path)
        return gone
