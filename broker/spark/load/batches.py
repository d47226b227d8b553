"""One batch: from its ranges to published files. This module sends no requests to brokers."""

import posixpath
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from barnabas.spark.batch import Task
from barnabas.spark.failures import ConcurrentWriter
from barnabas.spark.load.hours import carried, complete_hours, write_late
from barnabas.spark.load.layout import (
    DELTA_LOG,
    STAGING,
    Audit,
    Count,
    Loaded,
    batch_directory,
    batches_of,
    read_audit,
)
from barnabas.spark.load.task import LoadTask
from barnabas.spark.store import SUCCESS, Files

RunTasks = Callable[[Sequence[Any]], Sequence[Loaded]]  # each publisher has its own kind of task
Ends = dict[int, tuple[int, int]]  # partition: start, end
Counts = dict[tuple[int | None, int], Count]  # by hour and partition


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch to load. `planned_ms`: ms since 1970. `ends`: start and end offset of each
    partition."""

    batch_id: int
    planned_ms: int
    ends: Mapping[str, Ends]  # by topic
    topic_ids: Mapping[str, str]


@dataclass(slots=True)
class Publisher:
    """Loads batches of one query into one place."""

    files: Files
    to: str
    query_id: str
    file_bytes: int
    run_tasks: RunTasks
    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def staging(self) -> str:
        """The directory of this run's files in progress."""
        return f"{STAGING}/{self.query_id}/{self.run_id}"

    def load(self, batch: Batch, tasks_of: Callable[[Sequence[str]], list[Task]]) -> list[Audit]:
        """Loads a batch and returns the audits of its topics. `tasks_of(topics)` returns the tasks
        that read these topics. Raises ConcurrentWriter when another batch with this number exists,
        CheckpointError, OSError, and the errors of tasks."""
        audits = {topic: self._published(batch, topic) for topic in batch.ends}
        missing = [topic for topic, audit in audits.items() if audit is None]
        if missing:
            audits |= self._write(batch, missing, tasks_of(missing))
        found = [audit for audit in audits.values() if audit is not None]
        for audit in found:
            write_late(self.files, audit)
        return found

    def clean(self, *, all_runs: bool = False) -> None:
        """Deletes the staged files. `all_runs`: also those of this query's interrupted runs."""
        with suppress(OSError):  # remaining files do no harm
            place = self.staging
            self.files.delete_tree(posixpath.dirname(place) if all_runs else place)

    def audits_at(self, topic: str) -> str:
        """Returns the directory with the audits of a topic's batches, each as batch=N/_SUCCESS."""
        return topic

    def newest_audit(self, topic: str) -> Audit | None:
        """Returns the audit of a topic's newest batch; None when there is none."""
        return last_audit(self.files, self.audits_at(topic))

    def _published(self, batch: Batch, topic: str) -> Audit | None:
        found = read_audit(self.files, topic, batch.batch_id)
        if found is None:
            if self.files.names(f"{topic}/{DELTA_LOG}"):
                shown = self.files.shown(topic)
                raise ConcurrentWriter(shown, "it is a Delta table: use --format delta")
            return None
        if (found.query_id, found.ends) != (self.query_id, batch.ends[topic]):
            raise ConcurrentWriter(
                self.files.shown(batch_directory(topic, batch.batch_id)),
                f"it already exists, from query {found.query_id} with other offsets. Use one"
                " checkpoint for one place; after a rewind remove the batches that are read again",
            )
        return found

    def _write(
        self, batch: Batch, topics: Sequence[str], tasks: Sequence[Task]
    ) -> Mapping[str, Audit]:
        """Reads and publishes these topics, which are not published yet."""
        work = [LoadTask(task, self.to, self.staging, self.file_bytes) for task in tasks]
        done = self.run_tasks(work) if work else []
        return {t: self._publish(batch, t, [row for row in done if row.topic == t]) for t in topics}

    def _publish(self, batch: Batch, topic: str, rows: Sequence[Loaded]) -> Audit:
        files = [file.name for row in rows for file in row.files]
        audit = self._audit(batch, topic, counts_of(rows), files)
        audit.retried = retried(rows)
        success = f"{self.staging}/{topic}{SUCCESS}"
        named = {SUCCESS: success}
        for row in rows:
            own = [file.name for file in row.files] + [row.offsets_name]
            named |= {name: f"{row.directory}/{name}" for name in own}
        with self.files.create(success) as file:
            file.write(audit.encoded())
        directory = batch_directory(topic, batch.batch_id)
        try:
            self.files.publish(named, directory, gathered=f"{self.staging}/together/{topic}")
        except FileExistsError:
            other = self._published(batch, topic)
            if other is None:
                shown = self.files.shown(directory)
                raise ConcurrentWriter(shown, f"it already exists, without {SUCCESS}") from None
            return other
        return audit

    def _audit(self, batch: Batch, topic: str, counts: Counts, files: Sequence[str] = ()) -> Audit:
        audit = Audit(
            query_id=self.query_id,
            batch_id=batch.batch_id,
            topic=topic,
            topic_id=batch.topic_ids.get(topic, ""),
            planned_ms=batch.planned_ms,
            ends=dict(batch.ends[topic]),
            counts=counts,
            files=list(files),
        )
        complete = complete_hours(self.files, topic)
        before = last_audit(self.files, self.audits_at(topic), batch.batch_id)
        audit.late = sorted({hour for hour, _ in counts if hour is not None and hour in complete})
        audit.open = carried(before, audit, complete)
        return audit


def counts_of(rows: Sequence[Loaded]) -> Counts:
    """Returns the counts of these ranges by hour and partition."""
    found: Counts = {}
    for row in rows:
        for hour, count in row.hours.items():
            found.setdefault((hour, row.partition), Count()).add(count.records, count.bytes)
    return found


def retried(rows: Sequence[Loaded]) -> int:
    """Returns the number of tasks that were not the first attempt for their range."""
    return sum(row.attempt > 0 for row in rows)


def last_audit(files: Files, place: str, before: int | None = None) -> Audit | None:
    """Returns the audit of a topic's newest batch, or of the newest batch before `before`; None
    when there is none. `place`: the directory of the audits. Raises CheckpointError, OSError."""
    for batch_id in reversed(batches_of(files, place)):
        if before is None or batch_id < before:
            if found := read_audit(files, place, batch_id):
                return found
    return None
