"""Reads and writes checkpoints of Spark's Structured Streaming, without Spark.

    metadata      {"id":"UUID"}                          of the query; no newline at the end
    offsets/N     v1\\n METADATA \\n OFFSET [\\n OFFSET]    before batch N runs: its end in each
                  source. METADATA is {"batchWatermarkMs":..,"batchTimestampMs":..,
                  "conf":{..}}; an OFFSET that is not known yet is "-"
    commits/N     v1\\n {"nextBatchWatermarkMs":0}        after batch N is in the sink. v2 also
                  names state stores
    sources/S/0   00 v1\\n OFFSET                         where source S began (only for Kafka)

Invariants: each file is written once; batch N is planned after N - 1 is committed; so offsets has
at most one batch more than commits, and after a crash that batch runs again with the same range.
Retention: the newest batch and `batches_kept` before it. For truncation, wrong checksums, unknown
versions and a second writer, this module raises an error that names the file, and writes nothing.

Source: directories that Spark 4.2 and 4.3 wrote.
"""

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from barnabas.spark.failures import (
    CheckpointError,
    ConcurrentWriter,
    IncompleteCheckpoint,
    TruncatedFile,
    UnfinishedBatch,
    UnknownVersion,
)
from barnabas.spark.offsets import Offsets, TopicIds, kafka_offsets, offsets_json, topic_ids
from barnabas.spark.store import Files

NO_OFFSET = "-"
BATCHES_KEPT = 100  # spark.sql.streaming.minBatchesToRetain
OFFSETS_VERSIONS, COMMITS_VERSIONS = (1,), (1, 2)


def compact_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """The content of offsets/N."""

    batch_id: int
    metadata: Mapping[str, Any]
    sources: Sequence[str | None]  # the lines of the file; None for "-"

    @property
    def timestamp_ms(self) -> int:
        """The time of the plan in ms since 1970; 0 when the file lacks it."""
        found = self.metadata.get("batchTimestampMs", 0)
        return found if isinstance(found, int) else 0

    def kafka(self) -> Offsets:
        """Returns the end offsets of all Kafka sources together."""
        found: Offsets = {}
        for line in self.sources:
            for topic, partitions in (kafka_offsets(line or "{}") or {}).items():
                found.setdefault(topic, {}).update(partitions)
        return found

    def topic_ids(self) -> TopicIds:
        """Returns the known topic ids of all Kafka sources together."""
        found: TopicIds = {}
        for line in self.sources:
            found |= topic_ids(line or "{}")
        return found

    def encoded(self) -> bytes:
        """Returns the content of the file."""
        lines = [NO_OFFSET if line is None else line for line in self.sources]
        return "\n".join(["v1", compact_json(self.metadata), *lines]).encode()


@dataclass(slots=True)
class Findings:
    """The result of `verify`: the problems, and the number of files that were read."""

    problems: list[CheckpointError] = field(default_factory=list)
    files: int = 0


class Checkpoint:
    """A checkpoint directory. Every call reads the files again. Raises CheckpointError and
    OSError."""

    def __init__(self, files: Files) -> None:
        self.files = files

    # ------------------------------------------------------------------------------- reading

    def query_id(self) -> str:
        """Returns the id of the query. Raises IncompleteCheckpoint when there is no checkpoint."""
        data = self._read("metadata")
        try:
            found = json.loads(data)["id"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise TruncatedFile(self.files.shown("metadata"), "it has no query id") from error
        if not isinstance(found, str):
            raise TruncatedFile(self.files.shown("metadata"), "it has no query id")
        return found

    def batch_ids(self, log: str = "offsets") -> list[int]:
        """Returns the batch numbers in `log`, which is offsets or commits, ascending."""
        return sorted(int(name) for name in self.files.names(log) if name.isdecimal())

    def batch(self, batch_id: int) -> PlannedBatch:
        """Reads offsets/N."""
        path = f"offsets/{batch_id}"
        _, lines = self._versioned(path, OFFSETS_VERSIONS)
        if len(lines) < 2:
            raise TruncatedFile(self.files.shown(path), "it holds no offset")
        metadata = self._object(path, lines[0])
        sources = [None if line == NO_OFFSET else line for line in lines[1:]]
        for line in sources:
            if line is not None and line[:1] == "{":
                self._object(path, line)
            elif line == "":
                raise TruncatedFile(self.files.shown(path), "it ends before an offset")
        return PlannedBatch(batch_id, metadata, sources)

    def commit(self, batch_id: int) -> dict[str, Any]:
        """Reads commits/N, a JSON object."""
        path = f"commits/{batch_id}"
        _, lines = self._versioned(path, COMMITS_VERSIONS)
        if not lines:
            raise TruncatedFile(self.files.shown(path), "it ends after its version line")
        return self._object(path, lines[0])

    def initial(self, source: int = 0) -> Offsets | None:
        """Returns the start offsets of a Kafka source; None when it wrote none."""
        path = f"sources/{source}/0"
        try:
            data = self.files.read(path)
        except FileNotFoundError:
            return None
        if data[:1] != b"\0":
            raise UnknownVersion(self.files.shown(path), "it does not begin with a zero byte")
        _, lines = self._lines(path, data[1:], (1,))
        found = kafka_offsets(lines[0]) if lines else None
        if found is None:
            raise TruncatedFile(self.files.shown(path), "it holds no offsets")
        return found

    def last_planned(self) -> PlannedBatch | None:
        """Returns the newest planned batch; None when there is none."""
        ids = self.batch_ids()
        return self.batch(ids[-1]) if ids else None

    def last_committed(self) -> PlannedBatch | None:
        """Returns the newest committed batch; None when no batch is committed."""
        ids = self.batch_ids("commits")
        if not ids:
            return None
        self.commit(ids[-1])
        if ids[-1] not in self.batch_ids():
            missing = self.files.shown(f"offsets/{ids[-1]}")
            raise IncompleteCheckpoint(missing, "the batch is committed, but this file is missing")
        return self.batch(ids[-1])

    def unfinished(self) -> int | None:
        """Returns the number of a batch that is planned and not committed; None when there is
        none."""
        planned, committed = self.batch_ids(), self.batch_ids("commits")
        if planned and (not committed or planned[-1] > committed[-1]):
            return planned[-1]
        return None

    def finished_batch(self, *, replay: bool = False) -> PlannedBatch:
        """Returns the newest committed batch. Raises UnfinishedBatch when a later one was begun,
        unless `replay` allows the query to read its records again."""
        self.query_id()
        begun = self.unfinished()
        if begun is not None and not replay:
            raise UnfinishedBatch(
                self.files.shown(f"offsets/{begun}"),
                f"batch {begun} was planned and is not committed: let the query finish it, or allow"
                " its records to be read again (--replay)",
            )
        found = self.last_committed()
        if found is None:
            raise IncompleteCheckpoint(self.files.shown("commits"), "no batch is committed")
        return found

    def _read(self, path: str) -> bytes:
        try:
            return self.files.read(path)
        except FileNotFoundError:
            raise IncompleteCheckpoint(self.files.shown(path), "there is no such file") from None

    def _versioned(self, path: str, known: Sequence[int]) -> tuple[int, list[str]]:
        return self._lines(path, self._read(path), known)

    def _lines(self, path: str, data: bytes, known: Sequence[int]) -> tuple[int, list[str]]:
        """Returns the version, and the lines after it."""
        shown = self.files.shown(path)
        try:
            head, *lines = data.decode().split("\n")
        except UnicodeDecodeError as error:
            raise TruncatedFile(shown, f"not text ({error.reason})") from error
        if not data:
            raise TruncatedFile(shown, "it is empty")
        if head[:1] != "v" or not head[1:].isdecimal():
            if not lines and head == "v":
                raise TruncatedFile(shown, "it ends in the middle of its version")
            raise UnknownVersion(shown, f"it begins with {head[:20]!r} instead of a version")
        version = int(head[1:10])
        if len(head) > 10 or version not in known:
            known_max = max(known)
            raise UnknownVersion(
                shown, f"version {head[1:20]} is unknown (known: up to {known_max})"
            )
        return version, lines

    def _object(self, path: str, line: str) -> dict[str, Any]:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TruncatedFile(self.files.shown(path), f"{line[:40]!r}: {error}") from error
        if not isinstance(found, dict):
            raise TruncatedFile(self.files.shown(path), f"{line[:40]!r} is not a JSON object")
        return found

    # ------------------------------------------------------------------------------- checking

    def verify(self) -> Findings:
        """Reads every file, and checks the files against each other."""
        found = Findings()
        batches: dict[int, PlannedBatch] = {}

        def look(read: Callable[[], object]) -> None:
            found.files += 1
            try:
                read()
            except CheckpointError as error:
                found.problems.append(error)

        look(self.query_id)
        planned, committed = self.batch_ids(), self.batch_ids("commits")
        for n in planned:
            look(lambda n=n: batches.__setitem__(n, self.batch(n)))  # type: ignore[misc]
        for n in committed:
            look(lambda n=n: self.commit(n))  # type: ignore[misc]
        for name in self.files.names("sources"):
            if name.isdecimal() and "0" in self.files.names(f"sources/{name}"):
                look(lambda name=name: self.initial(int(name)))  # type: ignore[misc]
        found.problems += self._gaps(planned, committed)
        found.problems += self._backward(batches)
        return found

    def _gaps(self, planned: list[int], committed: list[int]) -> list[CheckpointError]:
        problems: list[CheckpointError] = []
        for log, ids in (("offsets", planned), ("commits", committed)):
            for before, after in zip(ids, ids[1:], strict=False):
                if after != before + 1:
                    path = self.files.shown(f"{log}/{before + 1}")
                    problems.append(IncompleteCheckpoint(path, "this batch is missing"))
        if committed and (not planned or committed[-1] > planned[-1]):
            path = self.files.shown(f"offsets/{committed[-1]}")
            problems.append(IncompleteCheckpoint(path, "committed, but its offsets are missing"))
        if planned and planned[-1] > (committed[-1] if committed else -1) + 1:
            path = self.files.shown(f"commits/{planned[-1] - 1}")
            if committed or planned[0] != planned[-1]:
                problems.append(
                    IncompleteCheckpoint(path, f"not committed, but batch {planned[-1]} is planned")
                )
        return problems

    def _backward(self, batches: Mapping[int, PlannedBatch]) -> list[CheckpointError]:
        problems: list[CheckpointError] = []
        before: Offsets = {}
        ids: TopicIds = {}
        for batch_id, batch in sorted(batches.items()):
            for topic, topic_id in batch.topic_ids().items():
                if ids.setdefault(topic, topic_id) != topic_id:
                    ids[topic] = topic_id
                    before.pop(topic, None)  # it was created again, and begins at 0
            for topic, partitions in batch.kafka().items():
                for index, offset in partitions.items():
                    known = before.setdefault(topic, {}).get(index, 0)
                    before[topic][index] = offset
                    if offset < known:
                        path = self.files.shown(f"offsets/{batch_id}")
                        where = f"the offset of {topic}-{index} goes back from {known} to {offset}"
                        problems.append(CheckpointError(path, where))
        return problems

    # ------------------------------------------------------------------------------- writing

    def create(self, *, query_id: str | None = None) -> str:
        """Creates a checkpoint and returns the query's id. Raises ConcurrentWriter when there is
        one."""
        found = query_id or str(uuid.uuid4())
        self._put("metadata", compact_json({"id": found}).encode())
        return found

    def begin_at(self, offsets: Mapping[str, Mapping[int, int]], *, now_ms: int) -> None:
        """Makes the query of a new checkpoint start at these offsets, whichever source reads the
        topics. Batch 0 has the offsets and is committed without having run. `now_ms`: ms since
        1970."""
        line = offsets_json(offsets)
        self.start_at(offsets)
        self.plan(0, [line], now_ms=now_ms)
        self.commit_batch(0)

    def start_at(self, offsets: Mapping[str, Mapping[int, int]]) -> None:
        """Writes the start offsets of the first batch of a new checkpoint."""
        self._put("sources/0/0", b"\0v1\n" + offsets_json(offsets).encode())

    def plan(
        self,
        batch_id: int,
        sources: Sequence[str | None],
        *,
        now_ms: int,
        conf: Mapping[str, str] | None = None,
        watermark_ms: int = 0,
    ) -> None:
        """Writes the end offsets of a batch in each source, before the batch runs. `now_ms`,
        `watermark_ms`: ms since 1970. Raises ConcurrentWriter, and IncompleteCheckpoint when the
        batch before it is not committed."""
        assert sources, "a query has a source"
        self._expect(batch_id)
        metadata = {
            "batchWatermarkMs": watermark_ms,
            "batchTimestampMs": now_ms,
            "conf": dict(conf or {}),
        }
        self._put(f"offsets/{batch_id}", PlannedBatch(batch_id, metadata, sources).encoded())

    def _expect(self, batch_id: int) -> None:
        planned, committed = self.batch_ids(), self.batch_ids("commits")
        following = planned[-1] + 1 if planned else 0
        if batch_id < following:
            raise ConcurrentWriter(
                self.files.shown(f"offsets/{batch_id}"),
                f"batch {following - 1} is already planned: another program writes this checkpoint",
            )
        if batch_id > following or (planned and (not committed or committed[-1] < planned[-1])):
            raise IncompleteCheckpoint(
                self.files.shown(f"commits/{batch_id - 1}"),
                f"batch {batch_id} cannot be planned before this one is committed",
            )

    def commit_batch(self, batch_id: int, *, watermark_ms: int = 0) -> None:
        """Commits a batch that is in the sink. Raises ConcurrentWriter, IncompleteCheckpoint."""
        self.batch(batch_id)
        text = compact_json({"nextBatchWatermarkMs": watermark_ms})
        self._put(f"commits/{batch_id}", f"v1\n{text}".encode())

    def _put(self, path: str, data: bytes) -> None:
        try:
            self.files.put_if_absent(path, data)
        except FileExistsError:
            raise ConcurrentWriter(
                self.files.shown(path), "it already exists: another program writes this checkpoint"
            ) from None

    def retain(self, batches_kept: int = BATCHES_KEPT) -> None:
        """Deletes all batches but the newest one and `batches_kept` before it."""
        assert batches_kept >= 1, "the batch before the newest says where that one begins"
        planned = self.batch_ids()
        if not planned:
            return
        first = planned[-1] - batches_kept
        for log in ("commits", "offsets"):
            for batch_id in self.batch_ids(log):
                if batch_id < first:
                    self.files.delete(f"{log}/{batch_id}")

    def rewind(self, batch_id: int, *, replay: bool = False) -> list[int]:
        """Deletes the batches after this one, which must be committed: the query reads their
        records again. Deletes the newest first, so that the query can continue after each deletion.
        Returns the deleted batches. Raises IncompleteCheckpoint, and UnfinishedBatch when a later
        batch was begun and `replay` is False."""
        self.finished_batch(replay=replay)
        if batch_id not in self.batch_ids() or batch_id not in self.batch_ids("commits"):
            kept = [n for n in self.batch_ids() if n in set(self.batch_ids("commits"))]
            shown = f"{kept[0]} to {kept[-1]}" if kept else "none"
            raise IncompleteCheckpoint(
                self.files.shown(f"offsets/{batch_id}"),
                f"there is no committed batch {batch_id} (committed batches: {shown})",
            )
        self.batch(batch_id)
        gone = sorted({*self.batch_ids(), *self.batch_ids("commits")}, reverse=True)
        gone = [n for n in gone if n > batch_id]
        for n in gone:
            self.files.delete(f"commits/{n}")
            self.files.delete(f"offsets/{n}")
        return gone
