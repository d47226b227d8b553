"""The data source `barnabas` for PySpark 4.2 and later: spark.read.format("barnabas").

    from barnabas.spark import register

    register(spark)
    rows = spark.read.format("barnabas").option("kafka.bootstrap.servers", "127.0.0.1:9092")
    rows.option("subscribe", "news").load()

The driver plans (batch.py, stream.py); workers read files or Fetch and return Arrow batches
(readers.py). sink.py writes. When a query begins, Spark starts one Python process for the schema
and another one for the plan, so each module imports only what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from barnabas.spark.options import BadOption, parse_options, wants_headers

if TYPE_CHECKING:
    from barnabas.spark.readers import BatchReader, StreamReader
    from barnabas.spark.sink import BatchWriter, StreamWriter

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
    " timestampType int"
)
HEADERS = ", headers array<struct<key: string, value: binary>>"


class BarnabasSource(DataSource):
    """The data source `barnabas`. barnabas.spark.options lists its options."""

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def schema(self) -> str:
        return SCHEMA + (HEADERS if wants_headers(self._given()) else "")

    def reader(self, schema: StructType) -> BatchReader:
        from barnabas.spark.readers import BatchReader

        return BatchReader(parse_options(self._given()), schema)

    def streamReader(self, schema: StructType) -> StreamReader:
        from barnabas.spark.readers import StreamReader

        return StreamReader(parse_options(self._given(), stream=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from barnabas.spark.sink import BatchWriter
        from barnabas.spark.sink_options import parse_sink_options

        if overwrite:
            raise BadOption("mode overwrite: a topic is appended to, use mode append")
        return BatchWriter(parse_sink_options(self._given()), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        from barnabas.spark.sink import StreamWriter
        from barnabas.spark.sink_options import parse_sink_options

        # Output mode complete sends all rows each time; they are updates of their keys.
        return StreamWriter(parse_sink_options(self._given()), schema)

    def _given(self) -> dict[str, str]:
        return {str(k): str(v) for k, v in self.options.items()}
