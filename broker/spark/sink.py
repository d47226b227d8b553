"""The sink `barnabas` for PySpark 4.2 and later: df.write and df.writeStream into topics.

    df.selectExpr("key", "value").write.format("barnabas").mode("append")
        .option("kafka.bootstrap.servers", "127.0.0.1:9092").option("topic", "news").save()

Spark creates a writer on the driver for each batch, sends it to the tasks, and (for streams)
creates another one to commit. A task learns the ids of the query and its run, and the batch number,
from Spark's local properties. A batch write is one batch with a key of its own.

Read on: sink_tasks.py, sink_commit.py, sink_ledger.py.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from barnabas.client import Cluster, describe_configs
from barnabas.client.admin import BROKER, Resource
from barnabas.errors import ClusterAuthorizationFailed
from barnabas.spark.failures import BadRows, SinkError
from barnabas.spark.options import BadOption
from barnabas.spark.sink_commit import (
    Written,
    abort_batch,
    commit_batch,
    finish_abandoned,
    now_ms,
)
from barnabas.spark.sink_encoding import Encoding
from barnabas.spark.sink_ledger import JOB, STREAM, open_ledger
from barnabas.spark.sink_options import SinkOptions
from barnabas.spark.sink_tasks import TaskPlace, write_task

if TYPE_CHECKING:
    import pyarrow

QUERY_ID, BATCH_ID, RUN_ID = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"
TEXT = (StringType, BinaryType)
TIMEOUT_MAX = "transaction.max.timeout.ms"
CHECK_MS = 10_000  # how long brokers may be unreachable when Spark plans a batch


@dataclass
class SinkMessage(WriterCommitMessage):
    """The message of a task to the driver."""

    written: Written


class BatchWriter(DataSourceArrowWriter):
    """df.write: one batch, with a unique key. Raises BadRows, BadOption, SinkError, and errors of
    client and brokers."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check(schema, options)
        self.options, self.planned_ms = options, now_ms()
        self.run = uuid.uuid4().hex
        finish_abandoned(options)

    def write(self, iterator: Iterator["pyarrow.RecordBatch"]) -> SinkMessage:
        place = TaskPlace(f"{JOB}{self.run}", self.run, 0, self.planned_ms, is_stream=False)
        return SinkMessage(write_task(self.options, place, iterator))

    def commit(self, messages: Sequence[Any]) -> None:
        commit_batch(self.options, [one.written for one in messages])

    def abort(self, messages: Sequence[Any]) -> None:
        abort_batch(self.options, _written(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """df.writeStream: writes each micro-batch once, also when several runs of the query write it.
    Raises BadRows, BadOption, SinkError, and errors of client and brokers."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check(schema, options)
        self.options, self.planned_ms = options, now_ms()

    def write(self, iterator: Iterator["pyarrow.RecordBatch"]) -> SinkMessage:
        return SinkMessage(write_task(self.options, self._place(), iterator))

    def _place(self) -> TaskPlace:
        context = TaskContext.get()
        assert context is not None
        names = (QUERY_ID, BATCH_ID, RUN_ID)
        query, batch, run = (context.getLocalProperty(name) for name in names)
        if not (query and batch and run):
            raise SinkError(f"Spark does not give its tasks the properties {', '.join(names)}")
        return TaskPlace(f"{STREAM}{query}", run, int(batch), self.planned_ms, is_stream=True)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        written = [one.written for one in messages]
        assert all(one.batch == batchId for one in written), (batchId, written)
        commit_batch(self.options, written)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        abort_batch(self.options, _written(messages))


def _written(messages: Sequence[Any]) -> list[Written | None]:
    return [None if one is None else one.written for one in messages]


# ------------------------------------------------------------------------------ checks


def check(schema: StructType, options: SinkOptions) -> None:
    """Checks schema and brokers before any task runs. Raises BadRows, BadOption, SinkError, and
    errors of client and brokers."""
    encoding = Encoding(options)
    encoding.close()
    check_schema(schema, options, encoding.takes_any)
    check_brokers(options)


def check_schema(
    schema: StructType,
    options: SinkOptions,
    takes_any: Callable[[str], bool] = lambda column: False,
) -> None:
    """Checks for the columns of spark-sql-kafka's sink. `takes_any`: whether a column may have any
    type. Raises BadRows."""
    columns = {field.name.lower(): field.dataType for field in schema.fields}
    if "value" not in columns:
        raise BadRows("there is no column value, which becomes the value of a record")
    if options.topic is None and "topic" not in columns:
        raise BadRows("there is no column topic: add it, or set the option topic")
    for name in ("value", "key"):
        if not takes_any(name):
            _check(columns, name, TEXT, "string or binary")
    _check(columns, "topic", (StringType,), "string")
    _check(columns, "partition", (IntegerType,), "int")
    if "headers" in columns and not _are_headers(columns["headers"]):
        raise BadRows(
            "column headers is array<struct<key: string, value: binary>>, not"
            f" {columns['headers'].simpleString()}"
        )


def _check(
    columns: dict[str, DataType], name: str, kinds: tuple[type[DataType], ...], words: str
) -> None:
    if name in columns and not isinstance(columns[name], kinds):
        raise BadRows(f"column {name} is {words}, not {columns[name].simpleString()}")


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = [(field.name, type(field.dataType)) for field in kind.elementType.fields]
    return fields == [("key", StringType), ("value", BinaryType)]


def check_brokers(options: SinkOptions) -> None:
    """Checks, before any task runs, for everything that would fail in all tasks. Creates a missing
    ledger topic.

    Raises errors of client and brokers, SinkError, BadOption."""
    with options.cluster(CHECK_MS) as cluster:
        cluster.retrying(lambda: cluster.refresh([]))
        if options.topic is not None:
            cluster.topic(options.topic, create=True)
        open_ledger(cluster, options.ledger)
        limit_ms = _timeout_max_ms(cluster)
    if limit_ms is not None and options.transaction_timeout_ms > limit_ms:
        raise BadOption(
            f"kafka.transaction.timeout.ms={options.transaction_timeout_ms} is more than the"
            f" brokers' {TIMEOUT_MAX}={limit_ms}"
        )


def _timeout_max_ms(cluster: Cluster) -> int | None:
    """Returns the brokers' limit of transaction timeouts in ms. None when this user may not read
    the setting; InitProducerId then checks it."""
    node_id = min(cluster.brokers, default=None)
    if node_id is None:
        return None
    try:
        rows = describe_configs(cluster, Resource(BROKER, str(node_id)))
    except ClusterAuthorizationFailed:
        return None
    return next((int(row.value) for row in rows if row.name == TIMEOUT_MAX and row.value), None)
