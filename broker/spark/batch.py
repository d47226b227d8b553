"""One batch: what it reads, as tasks that can be sent to workers, and the reading of one.

Rows are those of spark-sql-kafka: key, value, topic, partition, offset, timestamp in microseconds
(-1 ms where a record has none), timestampType, and headers, null where a record has none.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.cext.columns import Columns
from barnabas.client import Cluster, list_offsets
from barnabas.client.groups import committed_offsets
from barnabas.scan.log_directory import LogDirectory
from barnabas.scan.plan import Bounds, ask_bounds, directories_here, directories_in
from barnabas.scan.readers import Limits, Range, read_files, read_wire
from barnabas.scan.topic_scan import BODY_BYTES_MAX
from barnabas.spark.offsets import Offsets
from barnabas.spark.options import EARLIEST, GROUP, LATEST, BadOption, SourceOptions
from barnabas.spark.planner import TaskRange, TopicPartition, split, starting, task_ranges

if TYPE_CHECKING:
    import pyarrow

ASKED_EARLIEST, ASKED_LATEST = -2, -1


@dataclass(frozen=True, slots=True)
class Task:
    """What a worker needs to read a range; plain values, so that it can be sent."""

    piece: TaskRange
    topic_id: bytes
    directory: str | None  # of the partition's files, where they are to be read
    bootstrap_servers: str
    committed: bool
    batch_bytes: int


def plan_batch(options: SourceOptions) -> list[Task]:
    """Raises BadOption, DataLoss, and the errors of client and brokers."""
    with Cluster(options.bootstrap_servers) as cluster:
        wanted = _partitions(cluster, options)
        ids = {topic: cluster.topic(topic).topic_id for topic in wanted}
        bounds: dict[TopicPartition, Bounds] = {}
        for topic, indexes in wanted.items():
            found = ask_bounds(cluster, topic, indexes)
            bounds |= {(topic, index): row for index, row in found.items()}
        start, end = _start(cluster, options, bounds), _end(cluster, options, bounds)
        pieces = split(
            task_ranges(start, end), tasks_min=options.tasks_min, records_max=options.records_max
        )
        places = _places(cluster, options, wanted)
    return [
        Task(
            piece=piece,
            topic_id=ids[piece.topic],
            directory=places.get((piece.topic, piece.partition)),
            bootstrap_servers=options.bootstrap_servers,
            committed=options.committed,
            batch_bytes=options.batch_bytes,
        )
        for piece in pieces
    ]


def _partitions(cluster: Cluster, options: SourceOptions) -> dict[str, list[int]]:
    if options.assigned is not None:
        return {topic: sorted(rows) for topic, rows in sorted(options.assigned.items())}
    names = list(options.topics)
    if options.pattern is not None:
        try:
            pattern = re.compile(options.pattern)
        except re.error as error:
            raise BadOption(f"subscribePattern {options.pattern!r}: {error}") from None
        names = [name for name in cluster.topics() if pattern.fullmatch(name)]
    return {name: sorted(cluster.topic(name).partitions) for name in sorted(set(names))}


def _asked(name: str, asked: Offsets, tp: TopicPartition) -> int:
    try:
        return asked[tp[0]][tp[1]]
    except KeyError:
        raise BadOption(f"{name} has no offset of topic {tp[0]}, partition {tp[1]}") from None


def _of_times(
    cluster: Cluster, name: str, times: int | Offsets, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """-1: no record is so late."""
    found: dict[TopicPartition, int] = {}
    for topic in sorted({topic for topic, _ in partitions}):
        asked = {
            index: times if isinstance(times, int) else _asked(name, times, (topic, index))
            for known, index in partitions
            if known == topic
        }
        rows = list_offsets(cluster, topic, asked)
        found |= {(topic, index): row.offset for index, row in rows.items()}
    return found


def _start(
    cluster: Cluster, options: SourceOptions, bounds: dict[TopicPartition, Bounds]
) -> dict[TopicPartition, int]:
    earliest = {tp: row.earliest for tp, row in bounds.items()}
    latest = {tp: row.latest(options.committed) for tp, row in bounds.items()}
    high = {tp: row.high_watermark for tp, row in bounds.items()}
    asked = dict(earliest)
    if options.start_times is not None:
        found = _of_times(cluster, "startingOffsetsByTimestamp", options.start_times, list(bounds))
        for tp, offset in found.items():
            if offset < 0 and not options.latest_when_too_late:
                raise BadOption(
                    f"partition {tp[1]} of topic {tp[0]} has no record at or after the starting"
                    " time (startingOffsetsByTimestampStrategy=latest begins at the end then)"
                )
            asked[tp] = latest[tp] if offset < 0 else offset
    elif options.start == GROUP:
        if options.group_id is None:
            raise BadOption("startingOffsets=group needs kafka.group.id")
        stands = committed_offsets(cluster, options.group_id)
        asked = {tp: stands.get(tp[0], {}).get(tp[1], earliest[tp]) for tp in bounds}
    elif not isinstance(options.start, str):
        for tp in bounds:
            offset = _asked("startingOffsets", options.start, tp)
            if offset == ASKED_LATEST:
                raise BadOption("a batch cannot start at the latest offsets (-1)")
            asked[tp] = earliest[tp] if offset == ASKED_EARLIEST else offset
    else:
        assert options.start == EARLIEST, options.start
    return starting(asked, earliest, high, fail_on_data_loss=options.fail_on_data_loss).offsets


def _end(
    cluster: Cluster, options: SourceOptions, bounds: dict[TopicPartition, Bounds]
) -> dict[TopicPartition, int]:
    latest = {tp: row.latest(options.committed) for tp, row in bounds.items()}
    if options.end_times is not None:
        found = _of_times(cluster, "endingOffsetsByTimestamp", options.end_times, list(bounds))
        return {tp: latest[tp] if at < 0 else min(at, latest[tp]) for tp, at in found.items()}
    if isinstance(options.end, str):
        assert options.end == LATEST, options.end
        return latest
    ends = {}
    for tp in bounds:
        offset = _asked("endingOffsets", options.end, tp)
        if offset == ASKED_EARLIEST:
            raise BadOption("a batch cannot end at the earliest offsets (-2)")
        ends[tp] = latest[tp] if offset == ASKED_LATEST else min(offset, latest[tp])
    return ends


def _places(
    cluster: Cluster, options: SourceOptions, wanted: dict[str, list[int]]
) -> dict[TopicPartition, str]:
    if options.source == "wire":
        return {}
    found: dict[TopicPartition, str] = {}
    for topic, indexes in wanted.items():
        if options.segment_dirs:
            topic_id = cluster.topic(topic).topic_id
            rows = directories_in(options.segment_dirs, topic, indexes, topic_id)
        else:
            rows = directories_here(cluster, topic, indexes)
        found |= {(topic, index): str(row.path) for index, row in rows.items()}
    missing = [(t, i) for t, rows in wanted.items() for i in rows if (t, i) not in found]
    if options.source == "files" and missing:
        raise BadOption(f"source=files, and the files of {missing} are not on this machine")
    return found


# ------------------------------------------------------------------------------ a task


def read_task(task: Task, schema: "pyarrow.Schema") -> Iterator["pyarrow.RecordBatch"]:
    """The rows of a task, in a schema that has spark-sql-kafka's columns."""
    for columns in _columns(task):
        if len(columns):
            yield spark_rows(columns, task.piece.topic, schema)


def _columns(task: Task) -> Iterator[Columns]:
    piece = task.piece
    wanted = Range(piece.topic, piece.partition, piece.start, piece.end)
    limits = Limits(batch_bytes=task.batch_bytes, body_bytes_max=BODY_BYTES_MAX)
    # An executor elsewhere does not see what the driver saw: the broker has it.
    if task.directory is not None and Path(task.directory).is_dir():
        place = LogDirectory(Path(task.directory), piece.topic, piece.partition)
        yield from read_files(
            place, wanted, committed=task.committed, limits=limits, topic_id=task.topic_id
        )
        return
    with Cluster(task.bootstrap_servers) as cluster:
        yield from read_wire(
            cluster, wanted, committed=task.committed, limits=limits, topic_id=task.topic_id
        )


def spark_rows(columns: Columns, topic: str, schema: "pyarrow.Schema") -> "pyarrow.RecordBatch":
    import pyarrow as pa

    found = pa.record_batch(columns)
    timeless = pa.scalar(-1, pa.int64()).cast(found["timestamp"].type)
    arrays = [
        found["key"],
        found["value"],
        pa.repeat(pa.scalar(topic, pa.string()), len(columns)),
        found["partition"],
        found["offset"],
        found["timestamp"].fill_null(timeless).cast(pa.timestamp("us", "UTC")),
        found["timestamp_type"].cast(pa.int32()),
    ]
    if "headers" in schema.names:
        arrays.append(_headers(found["headers"], schema.field("headers").type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _headers(found: "pyarrow.ListArray", kind: "pyarrow.ListType") -> "pyarrow.ListArray":
    import pyarrow as pa
    import pyarrow.compute as pc

    inner = found.values
    names = inner.field("key")
    try:
        names = names.cast(pa.string())
    except pa.ArrowInvalid:  # nothing makes a producer write UTF-8; Java puts U+FFFD there too
        names = pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()])
    values = pa.StructArray.from_arrays([names, inner.field("value")], fields=list(kind.value_type))
    empty = pc.equal(pc.list_value_length(found), 0)
    return pa.ListArray.from_arrays(found.offsets, values, type=kind, mask=empty)
