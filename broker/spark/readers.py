"""The readers that PySpark calls in the driver and in its workers.

Spark sends a reader to the workers with the requested schema. When a job names its columns
(`.schema("value binary, offset bigint")`), the reader produces only these.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from barnabas.spark.batch import Task, plan_batch, read_task
from barnabas.spark.filters import narrow
from barnabas.spark.options import BadOption, SourceOptions
from barnabas.spark.stream import Limit, Point, Stream, document, point

if TYPE_CHECKING:
    import pyarrow

COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}


class TaskPartition(InputPartition):
    """A task, as the partition that PySpark sends to a worker."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.task = task


def checked(schema: StructType) -> StructType:
    """Returns the schema. Raises BadOption for a column that records do not have."""
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if COLUMNS.get(field.name) != kind:
            known = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
            raise BadOption(f"there is no column {field.name} {kind}; the columns are {known}")
    return schema


def _rows(partition: Any, schema: StructType) -> Iterator["pyarrow.RecordBatch"]:
    from pyspark.sql.pandas.types import to_arrow_schema

    if isinstance(partition, TaskPartition):
        yield from read_task(partition.task, to_arrow_schema(schema, timezone="UTC"))


class BatchReader(DataSourceReader):
    """Reads one batch. The constructor raises BadOption."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options, self.schema = options, checked(schema)
        self.narrowed, _ = narrow([])

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self.narrowed, left = narrow(filters)
        return left

    def partitions(self) -> Sequence[InputPartition]:
        found = plan_batch(self.options, self.narrowed)
        # Without a partition Spark would still run one task, and pass None as its partition.
        return [TaskPartition(task) for task in found] or [InputPartition(None)]

    def read(self, partition: Any) -> Iterator["pyarrow.RecordBatch"]:
        return _rows(partition, self.schema)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream. One object lives in the driver while the query runs; its copies read in
    workers."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options, self.schema = options, checked(schema)
        self._stream: Stream | None = None  # only the driver's object has one

    @property
    def stream(self) -> Stream:
        if self._stream is None:
            self._stream = Stream(self.options)
        return self._stream

    def initialOffset(self) -> dict[str, dict[str, int]]:
        return document(self.stream.initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark accepts one limit of several. It only passes it back to latestOffset, which applies
        # all of them.
        if self.options.offsets_max is not None:
            return ReadMaxRows(self.options.offsets_max)
        if self.options.bytes_max is not None:
            return ReadMaxBytes(self.options.bytes_max)
        if self.options.offsets_min is not None:
            return ReadMinRows(self.options.offsets_min)
        return ReadAllAvailable()

    def latestOffset(
        self, start: dict[str, dict[str, int]], limit: ReadLimit
    ) -> dict[str, dict[str, int]]:
        begin = point(start)
        asked = Limit(
            everything=isinstance(limit, ReadAllAvailable),
            offsets_max=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
        )
        end = self.stream.latest(begin, asked)
        # Spark compares the text, and another source may have written the text before this one.
        return start if end == begin else document(end)

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:
        newest = self.stream.newest()
        return None if newest is None else document(Point(newest))

    def prepareForTriggerAvailableNow(self) -> None:
        self.stream.stop_at_latest()

    def partitions(
        self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]
    ) -> Sequence[InputPartition]:
        return [TaskPartition(task) for task in self.stream.tasks(point(start), point(end))]

    def read(self, partition: Any) -> Iterator["pyarrow.RecordBatch"]:
        return _rows(partition, self.schema)

    def commit(self, end: dict[str, dict[str, int]]) -> None:
        self.stream.done(point(end))

    def stop(self) -> None:
        if self._stream is not None:
            self._stream.close()
