"""The loader: reads the state of the topics, plans batches, writes the checkpoint around them."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from barnabas.client import Cluster
from barnabas.client.groups import commit_offsets
from barnabas.spark.batch import Task, tasks
from barnabas.spark.checkpoint import Checkpoint, PlannedBatch
from barnabas.spark.failures import IncompleteCheckpoint, TruncatedFile
from barnabas.spark.files import files_at
from barnabas.spark.load.batches import Batch, Ends, Publisher, RunTasks
from barnabas.spark.load.hours import write_complete
from barnabas.spark.load.layout import Audit
from barnabas.spark.offsets import Offsets, offsets_json, parse_offsets
from barnabas.spark.options import SourceOptions
from barnabas.spark.planner import (
    DataLoss,
    TaskRange,
    TopicPartition,
    latest_within,
    latest_within_bytes,
    starting,
    waiting,
)
from barnabas.spark.positions import first_offsets
from barnabas.spark.subscription import Seen, look, stored_bytes
from barnabas.wire.uuids import uuid_text

# The name, among Spark's settings in the metadata of offsets/N, of the offsets where a batch
# begins. The previous batch does not show them when records were lost. Spark ignores names that it
# does not know.
START = "barnabas.start"
Positions = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """Settings of a load. `options`: those of a stream with headers that subscribes to topic names;
    its start offsets are for topics that the checkpoint does not know. `to`, `checkpoint`: paths or
    URLs."""

    options: SourceOptions
    to: str
    checkpoint: str
    file_bytes: int = 128 * 1024 * 1024
    lateness_ms: int = 600_000


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of the topics at one moment."""

    at_ms: int
    seen: Seen
    latest: Positions


@dataclass(slots=True)
class Report:
    """The result of a committed batch."""

    batch_id: int
    audits: list[Audit]
    seconds: float
    lost: list[str]
    is_repeated: bool  # an earlier run began it
    complete: dict[str, list[int]] = field(default_factory=dict)  # hours, by topic


class Loader:
    """Loads topics. Each call of `batches` loads up to the current ends of the topics. The
    constructor raises CheckpointError."""

    def __init__(
        self,
        settings: LoadSettings,
        run_tasks: RunTasks,
        *,
        publisher: Callable[..., Publisher] = Publisher,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.settings, self.options, self._now_ms = settings, settings.options, now_ms
        self.checkpoint = Checkpoint(files_at(settings.checkpoint))
        self.files = files_at(settings.to)
        self._run_tasks, self._kind = run_tasks, publisher
        self._publisher: Publisher | None = None
        self.lost: list[str] = []  # of all batches

    def batches(self) -> Iterator[Report]:
        """Loads all records that exist at the call; yields the result of each batch, with the hours
        that it completes. Raises CheckpointError, DataLoss, OSError, and errors of client, brokers
        and tasks; the next call continues after the last committed batch."""
        with self.options.servers.cluster() as cluster:
            publisher = self._open(cluster)
            try:
                yield from self._until_caught_up(cluster, publisher)
            finally:
                publisher.clean()

    def _until_caught_up(self, cluster: Cluster, publisher: Publisher) -> Iterator[Report]:
        begun = self.checkpoint.unfinished()
        if begun is not None:
            yield self._again(cluster, publisher, self.checkpoint.batch(begun))
        goal: Positions | None = None
        while True:
            look = self._look(cluster)
            start, lost = self._starts(cluster, look)
            goal = look.latest if goal is None else goal
            is_there = all(start.get(tp, end) >= end for tp, end in goal.items())
            if is_there or not waiting(start, look.latest):  # lost offsets are never reached
                self.lost += lost
                self._complete_hours(publisher, look, list(self.options.topics), start)
                return
            ends = self._within(cluster, look.seen, start, look.latest)
            yield self._next(cluster, publisher, look, start, ends, lost)

    def _within(
        self, cluster: Cluster, seen: Seen, start: Positions, latest: Positions
    ) -> dict[TopicPartition, int]:
        """Returns the end offsets of one batch."""
        options = self.options
        # The query may have read uncommitted records before the user changed the isolation level.
        ends = {tp: max(at, start.get(tp, at)) for tp, at in latest.items()}
        if options.offsets_max is not None:
            ends = latest_within(start, ends, options.offsets_max)
        if options.bytes_max is not None:
            between = stored_bytes(cluster, options, seen)
            ends = latest_within_bytes(start, ends, options.bytes_max, between)
        return ends

    # ------------------------------------------------------------------------------- looking

    def _look(self, cluster: Cluster) -> Snapshot:
        at_ms = self._now_ms()
        for topic in self.options.topics:
            cluster.forget(topic)  # it may have more partitions, or be another topic
        seen = look(cluster, self.options)
        return Snapshot(at_ms, seen, seen.latest(self.options.committed))

    def _open(self, cluster: Cluster) -> Publisher:
        """Opens the checkpoint, and creates it when there is none. Returns the publisher of its
        query."""
        if self._publisher is None:
            try:
                query_id = self.checkpoint.query_id()
            except IncompleteCheckpoint:
                if self.checkpoint.batch_ids() or self.checkpoint.batch_ids("commits"):
                    raise
                query_id = self.checkpoint.create()
            self._publisher = self._kind(
                self.files,
                self.settings.to,
                query_id,
                self.settings.file_bytes,
                self._run_tasks,
            )
            if self.checkpoint.unfinished() is None:
                self._publisher.clean(all_runs=True)  # of a run that died after its commit
        if not self.checkpoint.batch_ids() and self.checkpoint.initial() is None:
            seen = self._look(cluster).seen
            self.checkpoint.start_at(nested(first_offsets(cluster, self.options, seen)))
        elif done := self.checkpoint.last_committed():
            self._commit_to_group(cluster, done.kafka())
        return self._publisher

    def _starts(
        self, cluster: Cluster, look: Snapshot
    ) -> tuple[dict[TopicPartition, int], list[str]]:
        """Returns the start offsets of the next batch, and messages about the lost ranges. Raises
        DataLoss."""
        before = self.checkpoint.last_committed()
        known = before.kafka() if before else self.checkpoint.initial() or {}
        asked = {
            (topic, index): offset
            for topic, rows in known.items()
            if topic in look.seen.ids
            for index, offset in rows.items()
        }
        if new := {tp: row for tp, row in look.seen.bounds.items() if tp[0] not in known}:
            asked |= first_offsets(cluster, self.options, Seen(new, look.seen.ids))
        found = starting(
            asked,
            look.seen.earliest(),
            look.seen.high(),
            fail_on_data_loss=self.options.fail_on_data_loss,
            ids_before=before.topic_ids() if before else {},
            ids_now=look.seen.known_ids(),
        )
        return found.offsets, found.lost

    # ------------------------------------------------------------------------------- batches

    def _next(
        self,
        cluster: Cluster,
        publisher: Publisher,
        look: Snapshot,
        start: Positions,
        ends: Positions,
        lost: list[str],
    ) -> Report:
        before = self.checkpoint.last_planned()
        known = before.kafka() if before else {}  # topics that this load lacks keep their offsets
        ids = (before.topic_ids() if before else {}) | look.seen.known_ids()
        batch_id = before.batch_id + 1 if before else 0
        self.checkpoint.plan(
            batch_id,
            [offsets_json(known | nested(ends), ids)],
            now_ms=look.at_ms,
            conf={START: offsets_json(nested(start))},
        )
        report = self._run(cluster, publisher, self.checkpoint.batch(batch_id), lost)
        caught_up = {
            topic
            for topic in self.options.topics
            if all(end >= look.latest[tp] for tp, end in ends.items() if tp[0] == topic)
        }
        report.complete = self._complete_hours(publisher, look, sorted(caught_up), ends)
        return report

    def _again(self, cluster: Cluster, publisher: Publisher, planned: PlannedBatch) -> Report:
        report = self._run(cluster, publisher, planned, [])
        report.is_repeated = True
        return report

    def _run(
        self, cluster: Cluster, publisher: Publisher, planned: PlannedBatch, lost: list[str]
    ) -> Report:
        began = time.monotonic()
        ranges = self._ranges(planned)
        ids, gone = self._ids(cluster, planned, list(ranges))
        batch = Batch(
            batch_id=planned.batch_id,
            planned_ms=planned.timestamp_ms,
            ends={topic: rows for topic, rows in ranges.items() if topic in ids},
            topic_ids={topic: uuid_text(topic_id) for topic, topic_id in ids.items()},
        )
        lost += gone

        def tasks_of(topics: Sequence[str]) -> list[Task]:
            pieces = [
                TaskRange(topic, index, start, end)
                for topic in sorted(topics)
                for index, (start, end) in sorted(batch.ends[topic].items())
            ]
            return tasks(cluster, self.options, Seen(ids=ids), pieces)

        audits = publisher.load(batch, tasks_of)
        self.checkpoint.commit_batch(planned.batch_id)
        publisher.clean(all_runs=True)
        self.checkpoint.retain()
        self._commit_to_group(cluster, planned.kafka())
        self.lost += lost
        return Report(planned.batch_id, audits, time.monotonic() - began, lost, False)

    def _ids(
        self, cluster: Cluster, planned: PlannedBatch, topics: list[str]
    ) -> tuple[dict[str, bytes], list[str]]:
        """Returns the ids of the topics that are the same as when the batch was planned, and
        messages about the others. Raises DataLoss."""
        before = planned.topic_ids()
        now = look(cluster, replace(self.options, topics=tuple(topics))).ids
        ids = {t: now[t] for t in topics if t in now and before.get(t, now[t]) == now[t]}
        gone = [
            f"topic {topic} was deleted before batch {planned.batch_id} could read it"
            for topic in topics
            if topic not in ids
        ]
        if gone and self.options.fail_on_data_loss:
            raise DataLoss(gone)
        return ids, gone

    def _ranges(self, planned: PlannedBatch) -> dict[str, Ends]:
        """Returns the ranges of the batch, for topics with records to read. Raises
        CheckpointError."""
        start = noted_start(self.checkpoint, planned)
        if start is None and planned.batch_id == 0:  # Spark planned the batch
            start = self.checkpoint.initial() or {}
        elif start is None:
            before = self.checkpoint.batch(planned.batch_id - 1)
            ids = before.topic_ids()
            others = {t for t, i in planned.topic_ids().items() if ids.get(t, i) != i}
            start = {t: rows for t, rows in before.kafka().items() if t not in others}
        found: dict[str, Ends] = {}
        for topic, rows in planned.kafka().items():
            for index, end in rows.items():
                first = start.get(topic, {}).get(index, 0)  # a new partition: from its start
                if first < end:
                    found.setdefault(topic, {})[index] = (first, end)
        return found

    def _complete_hours(
        self, publisher: Publisher, look: Snapshot, topics: list[str], read_to: Positions
    ) -> dict[str, list[int]]:
        """Writes the files of the hours that are complete, after `topics` were read to the ends in
        `look`. Returns the hours by topic."""
        found: dict[str, list[int]] = {}
        for topic in topics:
            audit = publisher.newest_audit(topic)
            hours = write_complete(
                self.files,
                topic,
                audit.open if audit else {},
                read_to_ms=look.at_ms,
                lateness_ms=self.settings.lateness_ms,
            )
            if hours:
                found[topic] = hours
        return found

    def _commit_to_group(self, cluster: Cluster, offsets: Offsets) -> None:
        if self.options.commit_group is not None:
            wanted = {t: rows for t, rows in offsets.items() if t in self.options.topics}
            commit_offsets(cluster, self.options.commit_group, wanted)


def nested(offsets: Positions) -> Offsets:
    """Returns the offsets by topic, and there by partition."""
    found: Offsets = {}
    for (topic, index), offset in offsets.items():
        found.setdefault(topic, {})[index] = offset
    return found


def noted_start(checkpoint: Checkpoint, planned: PlannedBatch) -> Offsets | None:
    """Returns the start offsets that a load wrote into offsets/N; None when no load planned the
    batch. Raises TruncatedFile."""
    conf = planned.metadata.get("conf")
    text = conf.get(START) if isinstance(conf, dict) else None
    if text is None:
        return None
    try:
        return parse_offsets(text)
    except (ValueError, TypeError):
        shown = checkpoint.files.shown(f"offsets/{planned.batch_id}")
        raise TruncatedFile(shown, f"its {START} has no offsets") from None
