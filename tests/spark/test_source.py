"""PySpark reads topics through the format `barnabas`."""

import pytest
from scan.scan_rows import consumed, produce
from spark.some_rows import rows


def frame(spark, broker, **options):
    reader = spark.read.format("barnabas")
    reader = reader.option("kafka.bootstrap.servers", broker.bootstrap_servers)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


@pytest.mark.java
@pytest.mark.topic(partitions=2)
def test_a_batch_has_the_rows_of_a_consumer(spark, session_broker, topic):
    for partition, codec in ((0, "lz4"), (1, "gzip")):
        produce(session_broker, topic, rows(400), codec=codec, partition=partition)
    wanted = consumed(session_broker, topic)
    for source in ("files", "wire"):
        options = {"subscribe": topic, "source": source, "includeHeaders": "true"}
        found = frame(spark, session_broker, **options, minPartitions="5")
        assert found.rdd.getNumPartitions() >= 5
        got = [
            (
                row.partition,
                row.offset,
                row.ms,
                row.timestampType == 1,
                None if row.key is None else bytes(row.key),
                None if row.value is None else bytes(row.value),
                tuple((h.key.encode(), h.value and bytes(h.value)) for h in row.headers or ()),
            )
            for row in found.selectExpr("*", "unix_millis(timestamp) as ms")
            .orderBy("partition", "offset")
            .collect()
        ]
        assert got == wanted


@pytest.mark.java
def test_the_schema_is_spark_sql_kafkas(spark, session_broker, topic):
    found = frame(spark, session_broker, subscribe=topic)
    assert found.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    assert found.count() == 0
