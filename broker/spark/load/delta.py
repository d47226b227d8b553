"""Loads batches into Delta tables, a table for each topic and a commit for each topic of a batch.

    TO/TOPIC/_delta_log/...                        Delta's
    TO/TOPIC/date=2026-11-22/hour=4/part-...       Delta's
    TO/TOPIC/_loads/batch=N/_SUCCESS               the audit of batch N
    TO/TOPIC/_complete/...                         as beside parquet files

A Spark task for each range reads it and passes the rows to Delta's writer. Delta commits all of
their files together with the mark of the load (delta_table.py). Files without a commit are
invisible, and VACUUM deletes them.

After a crash the batch runs again with the same ranges. When the table has the batch's mark, the
batch was committed. The loader then writes no rows; when the audit is missing, it counts the rows
of that commit in the table. A paused writer that continues later fails, because Delta already has
its txn version.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.spark.batch import Task, read_task
from barnabas.spark.failures import CheckpointError, ConcurrentWriter
from barnabas.spark.load.batches import Batch, Publisher, counts_of, retried
from barnabas.spark.load.delta_table import MARK, VERSION, DeltaTable, Mark, State
from barnabas.spark.load.hour_files import COMPRESSION, body_bytes, by_hour
from barnabas.spark.load.layout import (
    DELTA_LOG,
    LOADS,
    Audit,
    Count,
    Loaded,
    batch_directory,
    batches_of,
    read_audit,
)
from barnabas.spark.load.session import LoadFailed, WatchedJob, add, attempt_number, reason_of
from barnabas.spark.load.task import COLUMNS, source_schema
from barnabas.spark.scalars import scalar
from barnabas.spark.store import SUCCESS

if TYPE_CHECKING:
    import pyarrow

ROWS = """
    key binary, value binary, headers array<struct<key: string, value: binary>>, topic string,
    partition int, offset bigint, timestamp timestamp, timestampType int, date date, hour int
"""
PARTITIONED_BY = ("date", "hour")
TOPICS_AT_ONCE = 8
TAKE_AWAY = "Use one checkpoint for one place; after a rewind {how}remove {audits} and later"


@dataclass(frozen=True, slots=True)
class Commit:
    """The part of a batch that one commit adds to a table."""

    url: str
    is_new: bool
    app_id: str
    batch_id: int
    mark: str
    records_max: int  # of a file


@dataclass(frozen=True, slots=True)
class TableTask:
    """Reads one range, for one commit."""

    source: Task
    commit: Commit


# --------------------------------------------------------------------------------- workers


def table_rows(
    tasks: Sequence[Task], sums: Sequence[Any], loaded: Any, ids: Iterator["pyarrow.RecordBatch"]
) -> Iterator["pyarrow.RecordBatch"]:
    """Yields, in a Spark task, the rows of the ranges with the numbers in `ids`, in the order of
    ROWS."""
    for batch in ids:
        for at in batch.column(0).to_pylist():
            piece = tasks[at].piece
            hours: dict[int | None, Count] = {}
            yield from _rows_by_hour(tasks[at], hours)
            found = Loaded(
                topic=piece.topic,
                partition=piece.partition,
                start=piece.start,
                end=piece.end,
                attempt=attempt_number(),
                directory="",
                files=(),
                hours=hours,
            )
            add(sums, found)
            loaded.add({(piece.topic, piece.partition, piece.start): found})


def _rows_by_hour(task: Task, hours: dict[int | None, Count]) -> Iterator["pyarrow.RecordBatch"]:
    import pyarrow as pa

    for batch in read_task(task, source_schema()):
        for hour, rows in by_hour(batch):
            hours.setdefault(hour, Count()).add(rows.num_rows, body_bytes(rows))
            days, of_day = (None, None) if hour is None else divmod(hour, 24)
            columns = [rows[name] for name in COLUMNS]
            for value, kind in ((days, pa.date32()), (of_day, pa.int32())):
                columns.append(pa.repeat(scalar(value, kind), len(rows)))
            yield pa.RecordBatch.from_arrays(columns, names=[*COLUMNS, *PARTITIONED_BY])


def records_of(file_bytes: int, tasks: Sequence[Task]) -> int:
    """Returns the number of records in a file of `file_bytes` bytes, estimated from the first rows
    of the largest range; 0, which means no limit, when there are no rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    largest = max(tasks, key=lambda task: task.piece.end - task.piece.start)
    for rows in read_task(largest, source_schema()):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_batches([rows]), sink, compression=COMPRESSION)
        return max(file_bytes * len(rows) // sink.tell(), 1)
    return 0  # no limit, because there are no rows


# --------------------------------------------------------------------------------- the job


class DeltaTasks:
    """Runs the tasks of commits, each commit as a Spark job; several at once."""

    def __init__(self, session: Any, report: Callable[[int, int, int], None] | None = None) -> None:
        self._session, self._report = session, report

    def __call__(self, tasks: Sequence[TableTask]) -> list[Loaded]:
        """Runs the commits; returns the counts of their rows. Raises LoadFailed."""
        from pyspark.accumulators import AccumulatorParam

        class ByRange(AccumulatorParam):
            """Adds the counts of a range; a range that Spark reads again counts once."""

            def zero(self, value: Any) -> Any:
                return {}

            def addInPlace(self, value1: Any, value2: Any) -> Any:
                return value1 | value2

        context = self._session.sparkContext
        watched, loaded = WatchedJob(context, self._report), context.accumulator({}, ByRange())
        wanted: dict[Commit, list[Task]] = {}
        for task in tasks:
            wanted.setdefault(task.commit, []).append(task.source)

        def write(commit: Commit) -> None:
            self._write(commit, wanted[commit], watched.sums, loaded)

        def write_all() -> None:
            with ThreadPoolExecutor(TOPICS_AT_ONCE, "delta-commit") as pool:
                list(pool.map(write, wanted))

        watched.run(write_all)
        return list(loaded.value.values())

    def _write(self, commit: Commit, tasks: list[Task], sums: Sequence[Any], loaded: Any) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        def rows(ids: Iterator["pyarrow.RecordBatch"]) -> Iterator["pyarrow.RecordBatch"]:
            return table_rows(tasks, sums, loaded, ids)

        frame = self._session.range(0, len(tasks), 1, len(tasks)).mapInArrow(rows, ROWS)
        writer = frame.write.format("delta").mode("append")
        if commit.is_new:  # an existing table has partitions of its own
            writer = writer.partitionBy(*PARTITIONED_BY)
        options = {
            "txnAppId": commit.app_id,
            "txnVersion": commit.batch_id,
            "userMetadata": commit.mark,
            "maxRecordsPerFile": commit.records_max,
        }
        try:
            writer.options(**options).save(commit.url)
        except (PySparkException, Py4JError) as error:
            raise LoadFailed(reason_of(str(error), f"{commit.url}: ")) from error


# --------------------------------------------------------------------------------- batches


@dataclass(slots=True, kw_only=True)
class DeltaPublisher(Publisher):
    """Loads batches of one query into tables in one place."""

    session: Any

    def audits_at(self, topic: str) -> str:
        return f"{topic}/{LOADS}"

    def _table(self, topic: str) -> DeltaTable:
        return DeltaTable(self.session, self.files, self.to, topic)

    def _published(self, batch: Batch, topic: str) -> Audit | None:
        if batches_of(self.files, topic):
            raise ConcurrentWriter(
                self.files.shown(topic),
                "it holds the parquet files of another load, not a Delta table",
            )
        table = self._table(topic)
        return self._committed(batch, topic, table, table.state())

    def _committed(
        self,
        batch: Batch,
        topic: str,
        table: DeltaTable,
        state: State,
        rows: Sequence[Loaded] = (),
    ) -> Audit | None:
        """Returns the audit of a batch that the table has, and writes a missing one; None when the
        table does not have the batch. `rows`: the counts of this process. Raises
        ConcurrentWriter."""
        mark, place = state.newest, self.audits_at(topic)
        audit = read_audit(self.files, place, batch.batch_id)
        if mark is None or (mark.query_id == self.query_id and mark.batch_id < batch.batch_id):
            if audit is not None:  # a RESTORE does not remove audits
                raise self._taken(batch, topic, table, audit.query_id)
            newest = self.newest_audit(topic)
            if newest is not None and newest.query_id != self.query_id:
                raise self._taken(batch, topic, table, newest.query_id)
            return None
        found = (mark.query_id, mark.batch_id, mark.ends)
        if found != (self.query_id, batch.batch_id, batch.ends[topic]):
            raise self._taken(batch, topic, table, mark.query_id)
        if audit is None:
            audit = self._counted(batch, topic, table, mark, rows)
            path = f"{batch_directory(place, batch.batch_id)}/{SUCCESS}"
            try:
                self.files.put_if_absent(path, audit.encoded())
            except FileExistsError:
                pass  # another loader wrote it; the checkpoint accepts only one of the two
        return audit

    def _taken(self, batch: Batch, topic: str, table: DeltaTable, query_id: str) -> CheckpointError:
        version = table.version_before(self.query_id, batch.batch_id) if table.is_there else None
        audits = self.files.shown(batch_directory(self.audits_at(topic), batch.batch_id))
        how = "" if version is None else f"RESTORE the table to version {version}, and "
        return ConcurrentWriter(
            self.files.shown(topic),
            f"batch {batch.batch_id} or a later one already exists, from query {query_id} with"
            f" other offsets. {TAKE_AWAY.format(how=how, audits=audits)}",
        )

    def _counted(
        self, batch: Batch, topic: str, table: DeltaTable, mark: Mark, rows: Sequence[Loaded]
    ) -> Audit:
        """Returns the audit with the counts of this run's tasks when they agree with the commit,
        else with counts from the table."""
        files = table.added(mark.version)
        records = sum(row.records for row in rows)
        if mark.run_id == self.run_id and records == sum(file.records for file in files):
            counts = counts_of(rows)
        else:
            counts, rows = table.recount(mark.version, files), ()
        audit = self._audit(batch, topic, counts, [file.name for file in files])
        audit.retried = retried(rows)
        return audit

    def _write(
        self, batch: Batch, topics: Sequence[str], tasks: Sequence[Task]
    ) -> Mapping[str, Audit]:
        tables = {topic: self._table(topic) for topic in topics}
        work = []
        for topic, table in tables.items():
            own = [task for task in tasks if task.piece.topic == topic]
            commit = self._commit(batch, topic, table, own)
            work += [TableTask(task, commit) for task in own]
        done: Sequence[Loaded] = ()
        try:
            done = self.run_tasks(work)
        except LoadFailed:
            # Delta also refuses this commit when another loader has committed all of the batch.
            if any(self._published(batch, topic) is None for topic in topics):
                raise
        found = {}
        for topic, table in tables.items():
            rows = [row for row in done if row.topic == topic]
            audit = self._committed(batch, topic, table, table.state(), rows)
            if audit is None:
                raise CheckpointError(
                    self.files.shown(f"{topic}/{DELTA_LOG}"),
                    f"the table has the transaction mark of batch {batch.batch_id}, but its log"
                    " does not show what was committed: compare the table with the topic",
                )
            found[topic] = audit
        return found

    def _commit(self, batch: Batch, topic: str, table: DeltaTable, tasks: Sequence[Task]) -> Commit:
        app_id = table.state().app_id(self.query_id)
        mark = {
            "version": VERSION,
            "query": self.query_id,
            "batch": batch.batch_id,
            "run": self.run_id,
            "app": app_id,
            "topic": topic,
            "topicId": batch.topic_ids.get(topic, ""),
            "plannedMs": batch.planned_ms,
            "partitions": {
                str(index): {"start": start, "end": end}
                for index, (start, end) in sorted(batch.ends[topic].items())
            },
        }
        return Commit(
            url=table.url,
            is_new=not table.is_there,
            app_id=app_id,
            batch_id=batch.batch_id,
            mark=json.dumps({MARK: mark}),
            records_max=records_of(self.file_bytes, tasks),
        )
