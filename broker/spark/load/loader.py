"""What is loaded when: looks at the topics, plans batches, writes the checkpoint around them."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.client import Cluster
from barnabas.client.groups import commit_offsets, committed_offsets
from barnabas.scan.plan import ask_bounds
from barnabas.spark.batch import Task, plan_batch
from barnabas.spark.checkpoint import Checkpoint, PlannedBatch
from barnabas.spark.failures import IncompleteCheckpoint, TruncatedFile
from barnabas.spark.files import files_at
from barnabas.spark.load.batches import Batch, Ends, Publisher, RunTasks, last_audit
from barnabas.spark.load.hours import write_complete
from barnabas.spark.load.layout import Audit
from barnabas.spark.offsets import Offsets, offsets_json, parse_offsets
from barnabas.spark.options import parse_options
from barnabas.spark.planner import TopicPartition, latest_within, starting, waiting
from barnabas.wire.uuids import uuid_text

# In the metadata of offsets/N, among Spark's own settings: what else a batch has to know when it is
# run again. Spark passes over names that it does not know.
START, TOPIC_IDS = "barnabas.start", "barnabas.topic.ids"
FIRST_OFFSETS = ("earliest", "latest", "group")


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """What the command was told."""

    topics: tuple[str, ...]
    bootstrap_servers: str
    to: str
    checkpoint: str
    first: str = "earliest"  # where a topic that the checkpoint does not know begins
    group_id: str | None = None
    committed: bool = True
    batch_records: int | None = None
    file_bytes: int = 128 * 1024 * 1024
    lateness_ms: int = 600_000
    allow_data_loss: bool = False
    options: Mapping[str, str] = field(default_factory=dict)  # of the data source


@dataclass(frozen=True, slots=True)
class Look:
    """The topics at one moment."""

    at_ms: int
    topic_ids: Mapping[str, bytes]
    earliest: Mapping[TopicPartition, int]
    latest: Mapping[TopicPartition, int]


@dataclass(slots=True)
class Report:
    """Of a batch that is committed."""

    batch_id: int
    audits: list[Audit]
    seconds: float
    lost: list[str]
    is_repeated: bool  # an earlier run had begun it
    complete: dict[str, list[int]] = field(default_factory=dict)  # hours, by topic


class Loader:
    """Loads until it has come to the ends that it found; as often as it is asked to. Making one
    raises BadOption and CheckpointError."""

    def __init__(
        self,
        settings: LoadSettings,
        run_tasks: RunTasks,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        parse_options(
            {
                **settings.options,
                "kafka.bootstrap.servers": settings.bootstrap_servers,
                "subscribe": ",".join(settings.topics),
            }
        )
        self.settings, self._now_ms = settings, now_ms
        self.checkpoint = Checkpoint(files_at(settings.checkpoint))
        self.files = files_at(settings.to)
        self._run_tasks = run_tasks
        self._publisher: Publisher | None = None
        self.lost: list[str] = []  # of all batches

    def batches(self) -> Iterator[Report]:
        """Each batch that was needed to load what is there when this begins, and what hours are
        complete by it. Raises CheckpointError, DataLoss, OSError, and errors of client, brokers
        and tasks; the next call goes on where this one was."""
        with Cluster(self.settings.bootstrap_servers) as cluster:
            publisher = self._open(cluster)
            try:
                yield from self._until_caught_up(cluster, publisher)
            finally:
                publisher.clean()

    def _until_caught_up(self, cluster: Cluster, publisher: Publisher) -> Iterator[Report]:
        begun = self.checkpoint.unfinished()
        if begun is not None:
            yield self._again(cluster, publisher, self.checkpoint.batch(begun))
        goal: Mapping[TopicPartition, int] | None = None
        while True:
            look = self._look(cluster)
            start, lost = self._starts(cluster, look)
            goal = look.latest if goal is None else goal
            is_there = all(start.get(tp, end) >= end for tp, end in goal.items())
            if is_there or not waiting(start, look.latest):  # what is lost is never reached
                self.lost += lost
                self.complete_hours(look, list(self.settings.topics), start)
                return
            limit = self.settings.batch_records
            ends = dict(look.latest) if limit is None else latest_within(start, look.latest, limit)
            yield self._next(cluster, publisher, look, start, ends, lost)

    # ------------------------------------------------------------------------------- looking

    def _look(self, cluster: Cluster) -> Look:
        at_ms = self._now_ms()
        earliest: dict[TopicPartition, int] = {}
        latest: dict[TopicPartition, int] = {}
        ids: dict[str, bytes] = {}
        for name in self.settings.topics:
            cluster.forget(name)
            topic = cluster.topic(name)
            ids[name] = topic.topic_id
            for index, bounds in ask_bounds(cluster, name, sorted(topic.partitions)).items():
                earliest[name, index] = bounds.earliest
                latest[name, index] = bounds.latest(self.settings.committed)
        return Look(at_ms, ids, earliest, latest)

    def _open(self, cluster: Cluster) -> Publisher:
        """The checkpoint, made when there is none."""
        if self._publisher is None:
            try:
                query_id = self.checkpoint.query_id()
            except IncompleteCheckpoint:
                if self.checkpoint.batch_ids() or self.checkpoint.batch_ids("commits"):
                    raise
                query_id = self.checkpoint.create()
            self._publisher = Publisher(
                self.files,
                self.settings.to,
                query_id,
                self.settings.file_bytes,
                self._run_tasks,
            )
            if self.checkpoint.unfinished() is None:
                self._publisher.clean(all_runs=True)  # of one that died behind its commit
        if not self.checkpoint.batch_ids() and self.checkpoint.initial() is None:
            look = self._look(cluster)
            self.checkpoint.start_at(nested(self._first(cluster, look, list(look.latest))))
        elif self.settings.group_id is not None and (done := self.checkpoint.last_committed()):
            self._commit_to_group(cluster, done.kafka())
        return self._publisher

    def _first(
        self, cluster: Cluster, look: Look, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Where partitions of topics begin that the checkpoint does not know."""
        if self.settings.first == "latest":
            return {tp: look.latest[tp] for tp in partitions}
        stands: Offsets = {}
        if self.settings.first == "group":
            assert self.settings.group_id is not None, "the command asks for its name"
            stands = committed_offsets(cluster, self.settings.group_id)
        return {tp: stands.get(tp[0], {}).get(tp[1], look.earliest[tp]) for tp in partitions}

    def _starts(self, cluster: Cluster, look: Look) -> tuple[dict[TopicPartition, int], list[str]]:
        """Where the next batch begins, and what was lost. Raises DataLoss."""
        before = self.checkpoint.last_committed()
        known = before.kafka() if before else self.checkpoint.initial() or {}
        asked = {
            (topic, index): offset
            for topic, rows in known.items()
            if topic in look.topic_ids
            for index, offset in rows.items()
        }
        asked |= self._first(cluster, look, [tp for tp in look.latest if tp[0] not in known])
        found = starting(
            asked,
            look.earliest,
            look.latest,
            fail_on_data_loss=not self.settings.allow_data_loss,
            ids_before={
                topic: bytes.fromhex(text)
                for topic, text in (noted(self.checkpoint, before, TOPIC_IDS) or {}).items()
            },
            ids_now=look.topic_ids,
        )
        return found.offsets, found.lost

    # ------------------------------------------------------------------------------- batches

    def _next(
        self,
        cluster: Cluster,
        publisher: Publisher,
        look: Look,
        start: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        lost: list[str],
    ) -> Report:
        before = self.checkpoint.last_planned()
        known = before.kafka() if before else {}  # topics that are not asked for now keep theirs
        ids = dict(noted(self.checkpoint, before, TOPIC_IDS) or {})
        ids |= {topic: topic_id.hex() for topic, topic_id in look.topic_ids.items()}
        batch_id = before.batch_id + 1 if before else 0
        self.checkpoint.plan(
            batch_id,
            [offsets_json(known | nested(ends))],
            now_ms=look.at_ms,
            conf={START: offsets_json(nested(start)), TOPIC_IDS: json.dumps(ids)},
        )
        report = self._run(cluster, publisher, self.checkpoint.batch(batch_id), lost)
        caught_up = {
            topic
            for topic in self.settings.topics
            if all(end == look.latest[tp] for tp, end in ends.items() if tp[0] == topic)
        }
        report.complete = self.complete_hours(look, sorted(caught_up), ends)
        return report

    def _again(self, cluster: Cluster, publisher: Publisher, planned: PlannedBatch) -> Report:
        report = self._run(cluster, publisher, planned, [])
        report.is_repeated = True
        return report

    def _run(
        self, cluster: Cluster, publisher: Publisher, planned: PlannedBatch, lost: list[str]
    ) -> Report:
        began = time.monotonic()
        ids = noted(self.checkpoint, planned, TOPIC_IDS) or {}
        batch = Batch(
            batch_id=planned.batch_id,
            planned_ms=planned.timestamp_ms,
            ends=self._ranges(planned),
            topic_ids={topic: uuid_text(bytes.fromhex(text)) for topic, text in ids.items()},
        )
        audits = publisher.load(
            batch, lambda topics: self._tasks({topic: batch.ends[topic] for topic in topics})
        )
        self.checkpoint.commit_batch(planned.batch_id)
        publisher.clean(all_runs=True)
        self.checkpoint.retain()
        if self.settings.group_id is not None:
            self._commit_to_group(cluster, planned.kafka())
        self.lost += lost
        return Report(planned.batch_id, audits, time.monotonic() - began, lost, False)

    def _ranges(self, planned: PlannedBatch) -> dict[str, Ends]:
        """Of the topics that have something to be read."""
        start = noted(self.checkpoint, planned, START)
        if start is None:  # Spark planned it
            before = planned.batch_id - 1
            known = before in self.checkpoint.batch_ids()
            start = self.checkpoint.batch(before).kafka() if known else self.checkpoint.initial()
        else:
            start = parse_offsets(json.dumps(start))
        found: dict[str, Ends] = {}
        for topic, rows in planned.kafka().items():
            for index, end in rows.items():
                first = (start or {}).get(topic, {}).get(index, 0 if start is not None else end)
                if first < end:
                    found.setdefault(topic, {})[index] = (first, end)
        return found

    def _tasks(self, ends: Mapping[str, Ends]) -> list[Task]:
        if not ends:
            return []
        settings = self.settings
        given = {
            **settings.options,
            "kafka.bootstrap.servers": settings.bootstrap_servers,
            "assign": json.dumps({topic: sorted(rows) for topic, rows in ends.items()}),
            "startingOffsets": offsets_json(_side(ends, 0)),
            "endingOffsets": offsets_json(_side(ends, 1)),
            "includeHeaders": "true",
            "isolation": "read_committed" if settings.committed else "read_uncommitted",
            "failOnDataLoss": "false" if settings.allow_data_loss else "true",
        }
        return plan_batch(parse_options(given))

    def complete_hours(
        self, look: Look, topics: list[str], read_to: Mapping[TopicPartition, int]
    ) -> dict[str, list[int]]:
        """Writes what hours are complete by having read `topics` to their ends at that look."""
        found: dict[str, list[int]] = {}
        for topic in topics:
            audit = last_audit(self.files, topic)
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
        assert self.settings.group_id is not None
        wanted = {t: rows for t, rows in offsets.items() if t in self.settings.topics}
        commit_offsets(cluster, self.settings.group_id, wanted)


def _side(ends: Mapping[str, Ends], side: int) -> Offsets:
    """The starts (0) or the ends (1) alone."""
    return {topic: {i: row[side] for i, row in rows.items()} for topic, rows in ends.items()}


def nested(offsets: Mapping[TopicPartition, int]) -> Offsets:
    found: Offsets = {}
    for (topic, index), offset in offsets.items():
        found.setdefault(topic, {})[index] = offset
    return found


def noted(checkpoint: Checkpoint, planned: PlannedBatch | None, name: str) -> dict[str, Any] | None:
    """What a load has left in offsets/N. Raises TruncatedFile."""
    conf = planned.metadata.get("conf") if planned else None
    text = conf.get(name) if isinstance(conf, dict) else None
    if planned is None or text is None:
        return None
    try:
        found = json.loads(text)
        if isinstance(found, dict):
            return found
    except (ValueError, TypeError):
        pass
    shown = checkpoint.files.shown(f"offsets/{planned.batch_id}")
    raise TruncatedFile(shown, f"its {name} is no JSON object")
