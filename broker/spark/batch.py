"""Plans one batch as tasks that the driver sends to workers, and reads a task.

Rows are those of spark-sql-kafka: key, value, topic, partition, offset, timestamp in microseconds
(-1 ms where a record has none), timestampType, and headers, null where a record has none.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.cext.record.columns import Columns
from barnabas.client import Cluster
from barnabas.scan.failures import OutOfRange
from barnabas.scan.log_directory import LogDirectory
from barnabas.scan.plan import Owner, is_of_topic, owner_of
from barnabas.scan.readers import Limits, Range, read_files, read_wire
from barnabas.scan.topic_scan import BODY_BYTES_MAX
from barnabas.spark.filters import EVERYTHING, Narrowed
from barnabas.spark.options import LATEST_MARK, BadOption, Servers, SourceOptions
from barnabas.spark.planner import DataLoss, TaskRange, split, starting, task_ranges
from barnabas.spark.positions import first_offsets, last_offsets, offsets_at
from barnabas.spark.scalars import scalar
from barnabas.spark.subscription import Seen, look, places

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True, slots=True)
class Task:
    """All that a worker needs to read a range, in plain values, because Spark pickles it."""

    piece: TaskRange
    topic_id: bytes
    directory: str | None  # with the partition's files; None: read by Fetch
    owner: Owner | None  # the cluster and node of that directory
    servers: Servers
    committed: bool
    fail_on_data_loss: bool
    batch_bytes: int


def plan_batch(options: SourceOptions, narrowed: Narrowed = EVERYTHING) -> list[Task]:
    """Returns the tasks of one batch. `narrowed`: the part that the filters leave. Raises
    BadOption, DataLoss, and the errors of client and brokers."""
    if not isinstance(options.start, str):
        if LATEST_MARK in (at for rows in options.start.values() for at in rows.values()):
            raise BadOption("a batch cannot start at the latest offsets (-1)")
    with options.servers.cluster() as cluster:
        seen = look(cluster, options)
        asked = first_offsets(cluster, options, seen)
        start = starting(
            asked, seen.earliest(), seen.high(), fail_on_data_loss=options.fail_on_data_loss
        ).offsets
        ends = last_offsets(cluster, options, seen)
        times = None
        if narrowed.time_min_ms is not None:
            times = offsets_at(cluster, seen, narrowed.time_min_ms)
        pieces = narrowed.apply(task_ranges(start, ends), times)
        return tasks(cluster, options, seen, pieces)


def tasks(
    cluster: Cluster, options: SourceOptions, seen: Seen, ranges: list[TaskRange]
) -> list[Task]:
    """Returns one task for each range, or several where the options divide a range. Raises
    BadOption."""
    pieces = split(ranges, tasks_min=options.tasks_min, records_max=options.records_max)
    wanted: dict[str, list[int]] = {}
    for topic, index in sorted({(piece.topic, piece.partition) for piece in pieces}):
        wanted.setdefault(topic, []).append(index)
    here = places(cluster, options, wanted)
    found = []
    for piece in pieces:
        place = here.get((piece.topic, piece.partition))
        found.append(
            Task(
                piece=piece,
                topic_id=seen.ids[piece.topic],
                directory=None if place is None else str(place.path),
                owner=None if place is None else owner_of(place.path.parent),
                servers=options.servers,
                committed=options.committed,
                fail_on_data_loss=options.fail_on_data_loss,
                batch_bytes=options.batch_bytes,
            )
        )
    return found


# ------------------------------------------------------------------------------ a task


def read_task(task: Task, schema: "pyarrow.Schema") -> Iterator["pyarrow.RecordBatch"]:
    """Yields the rows of a task as Arrow batches with the columns of `schema`, which are some of
    spark-sql-kafka's. Raises DataLoss, ScanError, OSError, and errors of client and brokers."""
    for columns in _columns(task):
        if len(columns):
            yield spark_rows(columns, task.piece.topic, schema)


def _columns(task: Task) -> Iterator[Columns]:
    piece = task.piece
    wanted = Range(piece.topic, piece.partition, piece.start, piece.end)
    try:
        yield from _read(task, wanted)
    except OutOfRange as error:
        # The broker deleted these records after the driver had planned the batch.
        if task.fail_on_data_loss or not wanted.start < error.earliest:
            raise DataLoss([str(error)]) from error
        left = Range(piece.topic, piece.partition, error.earliest, piece.end)
        if left.start < left.end:
            yield from _read(task, left)


def _read(task: Task, wanted: Range) -> Iterator[Columns]:
    limits = Limits(batch_bytes=task.batch_bytes, body_bytes_max=BODY_BYTES_MAX)
    place = _place(task)
    if place is not None:
        yield from read_files(
            place, wanted, committed=task.committed, limits=limits, topic_id=task.topic_id
        )
        return
    with task.servers.cluster(was_there=True) as cluster:
        yield from read_wire(
            cluster, wanted, committed=task.committed, limits=limits, topic_id=task.topic_id
        )


def _place(task: Task) -> LogDirectory | None:
    """Returns the directory with the task's files; None when this machine does not have the files
    that the driver saw, or has another broker's files at that path. The records then come from the
    broker."""
    if task.directory is None:
        return None
    piece = task.piece
    found = LogDirectory(Path(task.directory), piece.topic, piece.partition)
    same = owner_of(found.path.parent) == task.owner and is_of_topic(found, task.topic_id)
    return found if same else None


def spark_rows(columns: Columns, topic: str, schema: "pyarrow.Schema") -> "pyarrow.RecordBatch":
    """Converts records to an Arrow batch with the columns of `schema`."""
    import pyarrow as pa

    found = pa.record_batch(columns)
    return pa.RecordBatch.from_arrays(
        [_column(found, topic, field) for field in schema], schema=schema
    )


def _column(found: "pyarrow.RecordBatch", topic: str, field: "pyarrow.Field") -> "pyarrow.Array":
    import pyarrow as pa

    if field.name == "topic":
        return pa.repeat(scalar(topic, pa.string()), len(found))
    if field.name == "timestamp":
        column = found["timestamp"]
        if column.null_count:
            column = column.fill_null(scalar(-1, column.type))
        return column.cast(pa.timestamp("us", "UTC"))
    if field.name == "timestampType":
        return found["timestamp_type"].cast(pa.int32())
    if field.name == "headers":
        return _headers(found["headers"], field.type)
    return found[field.name]


def _headers(found: "pyarrow.ListArray", kind: "pyarrow.ListType") -> "pyarrow.ListArray":
    import pyarrow as pa
    import pyarrow.compute as pc

    inner = found.values
    names = inner.field("key")
    try:
        names = names.cast(pa.string())
    except pa.ArrowInvalid:  # a header key need not be UTF-8; Java puts U+FFFD there too
        names = pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()])
    values = pa.StructArray.from_arrays([names, inner.field("value")], fields=list(kind.value_type))
    empty = pc.equal(pc.list_value_length(found), scalar(0, pa.int32()))
    return pa.ListArray.from_arrays(found.offsets, values, type=kind, mask=empty)
