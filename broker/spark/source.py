"""The data source `barnabas` for PySpark 4.2 and later: spark.read.format("barnabas").

    from barnabas.spark import register

    register(spark)
    rows = spark.read.format("barnabas").option("kafka.bootstrap.servers", "127.0.0.1:9092")
    rows.option("subscribe", "news").load()

Batch reads. The driver plans (batch.py), workers read files or Fetch and hand Arrow batches over.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from barnabas.spark.batch import Task, plan_batch, read_task
from barnabas.spark.options import SourceOptions, parse_options

if TYPE_CHECKING:
    import pyarrow

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
    " timestampType int"
)
HEADERS = ", headers array<struct<key: string, value: binary>>"


class BarnabasSource(DataSource):
    """Options: barnabas.spark.options."""

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def schema(self) -> str:
        return SCHEMA + (HEADERS if self._options().headers else "")

    def reader(self, schema: StructType) -> "BatchReader":
        return BatchReader(self._options(), schema)

    def _options(self) -> SourceOptions:
        return parse_options({str(k): str(v) for k, v in self.options.items()})


class TaskPartition(InputPartition):
    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.task = task


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options, self.schema = options, schema

    def partitions(self) -> Sequence[InputPartition]:
        # Without any Spark would run one task all the same, and ask it for partition None.
        return [TaskPartition(task) for task in plan_batch(self.options)] or [InputPartition(None)]

    def read(self, partition: Any) -> Iterator["pyarrow.RecordBatch"]:
        from pyspark.sql.pandas.types import to_arrow_schema

        if isinstance(partition, TaskPartition):
            schema = to_arrow_schema(self.schema, timezone="UTC")
            yield from read_task(partition.task, schema)
