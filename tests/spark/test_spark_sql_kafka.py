"""Unmodified spark-sql-kafka reads topics of this broker, as it reads Apache Kafka's."""

import pytest
from confluent_kafka import Producer
from scan.scan_rows import KEPT, consumed, produce
from spark.queries import landed, run_once, stream
from spark.some_rows import rows, transactions

pytestmark = pytest.mark.java


def batch(spark, broker, kafka_format, **options):
    reader = spark.read.format(kafka_format)
    reader = reader.option("kafka.bootstrap.servers", broker.bootstrap_servers)
    for name, value in options.items():
        reader = reader.option(name.replace("_", "."), str(value))
    return reader.load()


def read(frame):
    found = frame.selectExpr("*", "unix_millis(timestamp) as ms").orderBy("partition", "offset")
    return [
        (
            row.partition,
            row.offset,
            row.ms,
            row.timestampType == 1,
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            tuple((h.key.encode(), h.value and bytes(h.value)) for h in row.headers or ()),
        )
        for row in found.collect()
    ]


@pytest.mark.topic(partitions=2)
def test_a_batch_with_headers_and_transactions(spark, session_broker, topic, kafka_format):
    for partition, codec in ((0, "lz4"), (1, "zstd")):
        produce(session_broker, topic, rows(300), codec=codec, partition=partition)
    transactions(session_broker, topic)
    for isolation in ("read_committed", "read_uncommitted"):
        frame = batch(
            spark,
            session_broker,
            kafka_format,
            subscribe=topic,
            includeHeaders="true",
            minPartitions=5,
            kafka_isolation_level=isolation,
        )
        assert read(frame) == consumed(session_broker, topic, isolation=isolation)


@pytest.mark.topic(partitions=2, configs=KEPT)
def test_by_timestamp_and_by_offsets(spark, session_broker, topic, kafka_format):
    producer = Producer({"bootstrap.servers": session_broker.bootstrap_servers})
    for i in range(200):
        producer.produce(topic, b"x", partition=i % 2, timestamp=1_700_000_000_000 + i // 2)
    assert producer.flush(20) == 0

    def offsets(**options):
        frame = batch(spark, session_broker, kafka_format, subscribe=topic, **options)
        return sorted((row.partition, row.offset) for row in frame.collect())

    times = {"startingTimestamp": 1_700_000_000_040, "endingTimestamp": 1_700_000_000_060}
    assert offsets(**times) == [(p, i) for p in (0, 1) for i in range(40, 60)]
    inner = {
        "startingOffsets": f'{{"{topic}":{{"0":90,"1":-2}}}}',
        "endingOffsets": f'{{"{topic}":{{"0":-1,"1":3}}}}',
    }
    assert offsets(**inner) == [(0, i) for i in range(90, 100)] + [(1, i) for i in range(3)]


@pytest.mark.topic(partitions=2)
def test_available_now_by_pattern(spark, session_broker, topic, kafka_format, tmp_path):
    other = session_broker.create_topic(f"{topic}-more")
    for name in (topic, other):
        produce(session_broker, name, rows(100))
    frame = stream(
        spark,
        session_broker,
        kafka_format,
        subscribePattern=f"{topic}.*",
        startingOffsets="earliest",
        maxOffsetsPerTrigger=60,
    )
    assert len(run_once(frame, tmp_path)) >= 4
    assert landed(spark, tmp_path) == sorted([(0, i) for i in range(100)] * 2)
