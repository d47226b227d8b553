"""Structured Streaming reads topics through the format `barnabas`, into parquet."""

import pytest
from confluent_kafka import Producer
from scan.scan_rows import KEPT, consumed, produce
from spark.queries import group_stands, landed, run_once, stream, to_parquet
from spark.some_rows import rows, transactions
from waiting import soon

from barnabas.spark.progress import GroupCommits, lag

pytestmark = pytest.mark.java


@pytest.mark.topic(partitions=2)
def test_files_and_wire_stream_the_rows_of_a_consumer(spark, session_broker, topic, tmp_path):
    for partition, codec in ((0, "zstd"), (1, "none")):
        produce(session_broker, topic, rows(300), codec=codec, partition=partition)
    transactions(session_broker, topic)
    wanted = consumed(session_broker, topic)
    found = {}
    for source in ("files", "wire"):
        options = {"subscribe": topic, "startingOffsets": "earliest", "includeHeaders": "true"}
        frame = stream(
            spark,
            session_broker,
            source=source,
            maxOffsetsPerTrigger=300,
            minPartitions=3,
            **options,
        )
        events = run_once(frame, tmp_path / source)
        assert len([event for event in events if event.numInputRows]) >= 2
        sink = spark.read.parquet(str(tmp_path / source / "sink"))
        sink = sink.selectExpr("*", "unix_millis(timestamp) as ms").orderBy("partition", "offset")
        found[source] = [
            (
                row.partition,
                row.offset,
                row.ms,
                row.timestampType == 1,
                None if row.key is None else bytes(row.key),
                None if row.value is None else bytes(row.value),
                tuple((h.key.encode(), h.value and bytes(h.value)) for h in row.headers or ()),
            )
            for row in sink.collect()
        ]
    assert found["files"] == found["wire"] == wanted


@pytest.mark.topic(partitions=2)
def test_the_group_and_the_lag_are_right_after_an_available_now_run(
    spark, session_broker, topic, tmp_path
):
    produce(session_broker, topic, rows(100))
    options = {"startingOffsets": "group", "commitOffsetsToGroup": "nightly", "subscribe": topic}
    events = run_once(stream(spark, session_broker, maxOffsetsPerTrigger=60, **options), tmp_path)
    assert group_stands(session_broker, "nightly", topic) == {0: 100, 1: 0}
    assert landed(spark, tmp_path) == [(0, i) for i in range(100)]
    lags = [lag(event) for event in events]
    assert lags[-1] == {(topic, 0): 0, (topic, 1): 0}
    assert {(topic, 0): 40, (topic, 1): 0} in lags
    # It continues from its checkpoint, not from the group.
    produce(session_broker, topic, rows(5), partition=1)
    run_once(stream(spark, session_broker, **options), tmp_path)
    assert group_stands(session_broker, "nightly", topic) == {0: 100, 1: 5}
    assert landed(spark, tmp_path)[100:] == [(1, i) for i in range(5)]


def test_a_topic_made_anew_is_seen_after_a_restart(spark, session_broker, topic, tmp_path):
    """The checkpoint has its id. The old offset also exists in the new topic."""
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    produce(session_broker, topic, rows(40))
    run_once(stream(spark, session_broker, **options), tmp_path)
    session_broker.delete_topic(topic)
    session_broker.create_topic(topic)
    produce(session_broker, topic, rows(60))
    with pytest.raises(Exception, match=f"topic {topic} was deleted and created again") as raised:
        run_once(stream(spark, session_broker, **options), tmp_path)
    assert "offset 40 is wanted, but the log has offsets 0 to 60" in str(raised.value)
    assert len(landed(spark, tmp_path)) == 40
    run_once(stream(spark, session_broker, failOnDataLoss="false", **options), tmp_path)
    wanted = [(0, i) for count in (40, 60) for i in range(count)]
    assert landed(spark, tmp_path) == sorted(wanted)


def test_a_running_query_sees_new_topics_and_commits_to_the_group(
    spark, session_broker, topic, tmp_path
):
    produce(session_broker, topic, rows(10))
    listener = GroupCommits(session_broker.bootstrap_servers, "follower", query=topic)
    spark.streams.addListener(listener)
    frame = stream(
        spark,
        session_broker,
        subscribePattern=f"{topic}.*",
        startingOffsets="earliest",
    )
    # The next trigger is so late that only the listener can commit for the group.
    writer = to_parquet(frame, tmp_path).queryName(topic)
    query = writer.trigger(processingTime="10 minutes").start()
    try:
        soon(
            lambda: group_stands(session_broker, "follower", topic) == {0: 10},
            "the group is not told",
        )
    finally:
        query.stop()
        spark.streams.removeListener(listener)
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        other = session_broker.create_topic(f"{topic}-2")
        produce(session_broker, other, rows(7))
        soon(lambda: len(landed(spark, tmp_path)) == 17, "the new topic is not read")
    finally:
        query.stop()


@pytest.mark.topic(partitions=2, configs=KEPT)
def test_filters_narrow_what_is_read(spark, session_broker, topic):
    producer = Producer({"bootstrap.servers": session_broker.bootstrap_servers})
    for i in range(200):
        producer.produce(topic, b"x", partition=i % 2, timestamp=1_700_000_000_000 + i // 2)
    assert producer.flush(20) == 0
    reader = spark.read.format("barnabas").option("subscribe", topic)
    frame = reader.option("kafka.bootstrap.servers", session_broker.bootstrap_servers).load()

    def found(condition):
        kept = frame.where(condition)
        return kept.rdd.getNumPartitions(), kept.count()

    assert found("partition >= 0") == (2, 200)  # not handled here, so that Spark applies it
    assert found("partition = 1") == (1, 100)
    assert found("partition in (0, 7) and offset >= 10 and offset < 30") == (1, 20)
    assert found("offset = 5") == (2, 2)
    assert found("topic = 'other'") == (1, 0)
    assert found("timestamp > timestamp_millis(1700000000049)") == (2, 100)
    assert found("timestamp = timestamp_millis(1700000000099)") == (2, 2)
    assert found("timestamp >= timestamp_millis(1700000000100)") == (1, 0)
    assert found("timestamp < timestamp_millis(1700000000010)") == (2, 20)


def test_columns_that_a_job_names_are_handed_over_alone(spark, session_broker, topic):
    produce(session_broker, topic, rows(30))
    reader = spark.read.format("barnabas").schema("offset bigint, value binary")
    reader = reader.option("kafka.bootstrap.servers", session_broker.bootstrap_servers)
    found = reader.option("subscribe", topic).load()
    assert found.columns == ["offset", "value"]
    assert [row.offset for row in found.orderBy("offset").collect()] == list(range(30))
    wrong = spark.read.format("barnabas").schema("offset string").option("subscribe", topic)
    wrong = wrong.option("kafka.bootstrap.servers", session_broker.bootstrap_servers)
    with pytest.raises(Exception, match="there is no column offset string"):
        wrong.load().count()
