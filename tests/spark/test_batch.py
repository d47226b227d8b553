"""Batches that are planned and read without Spark: the same rows from files and over Fetch."""

from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from scan.scan_rows import KEPT, consumed, produce
from spark.some_rows import rows

from barnabas import Broker
from barnabas.client import Cluster, delete_records
from barnabas.client.groups import commit_offsets
from barnabas.spark.batch import plan_batch, read_task
from barnabas.spark.options import BadOption, parse_options
from barnabas.spark.planner import DataLoss

PLAIN = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
    ]
)
ELEMENT = pa.struct([("key", pa.string()), ("value", pa.binary())])
WITH_HEADERS = PLAIN.append(pa.field("headers", pa.list_(pa.field("element", ELEMENT))))


def planned(broker, **options):
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    given |= {name.replace("_", "."): str(value) for name, value in options.items()}
    return plan_batch(parse_options(given))


def ranges(tasks):
    return [(t.piece.partition, t.piece.start, t.piece.end) for t in tasks]


def read(tasks, schema=WITH_HEADERS):
    batches = [batch for task in tasks for batch in read_task(task, schema)]
    return sorted(
        pa.Table.from_batches(batches, schema=schema).to_pylist(),
        key=lambda row: (row["partition"], row["offset"]),
    )


@pytest.mark.topic(partitions=2, configs={"segment.bytes": 20_000})
def test_rows_of_files_and_wire_are_those_of_a_consumer(session_broker, topic):
    for partition, codec in ((0, "zstd"), (1, "none")):
        produce(session_broker, topic, rows(600), codec=codec, partition=partition)
    found = {
        source: read(
            planned(session_broker, subscribe=topic, source=source, maxRecordsPerPartition=170)
        )
        for source in ("files", "wire")
    }
    assert found["files"] == found["wire"]
    wanted = [
        (
            row["partition"],
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            row["timestampType"] == 1,
            row["key"],
            row["value"],
            tuple((h["key"].encode(), h["value"]) for h in row["headers"] or ()),
        )
        for row in found["files"]
    ]
    assert wanted == consumed(session_broker, topic)
    assert all(row["headers"] != [] for row in found["files"])  # null if a record has none
    assert {row["topic"] for row in found["files"]} == {topic}


def test_a_worker_does_not_read_files_of_another_broker(session_broker, topic):
    """Workers on other hosts may have other brokers, whose directories have the same names."""
    produce(session_broker, topic, rows(50))
    (task,) = planned(session_broker, subscribe=topic, source="files")
    wanted = read([task])
    other = session_broker.create_topic(f"{topic}-other")
    produce(session_broker, other, rows(70))
    with Broker() as elsewhere:
        elsewhere.create_topic(topic)
        produce(elsewhere, topic, rows(80))
        (theirs,) = planned(elsewhere, subscribe=topic, source="files")
        for directory in (
            theirs.directory,
            task.directory.replace(topic, other),
            "/nowhere/news-0",
        ):
            assert directory != task.directory
            assert read([replace(task, directory=directory)]) == wanted


@pytest.mark.topic(partitions=2, configs=KEPT)
def test_ranges_by_offsets_times_group_and_size(session_broker, topic):
    producer = Producer({"bootstrap.servers": session_broker.bootstrap_servers})
    for i in range(100):
        producer.produce(topic, b"x", partition=0, timestamp=1_700_000_000_000 + i)
    assert producer.flush(10) == 0

    def of(**options):
        return ranges(planned(session_broker, subscribe=topic, **options))

    assert of() == [(0, 0, 100)]
    assert of(minPartitions=4) == [(0, 0, 25), (0, 25, 50), (0, 50, 75), (0, 75, 100)]
    assert of(maxRecordsPerPartition=60) == [(0, 0, 50), (0, 50, 100)]
    inner = {
        "startingOffsets": f'{{"{topic}":{{"0":7,"1":-2}}}}',
        "endingOffsets": f'{{"{topic}":{{"0":9,"1":-1}}}}',
    }
    assert of(**inner) == [(0, 7, 9)]
    times = f'{{"{topic}":{{"0":1700000000040,"1":0}}}}'
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert of(startingOffsetsByTimestamp=times, **latest) == [(0, 40, 100)]
    assert of(startingTimestamp=1_700_000_000_090, **latest) == [(0, 90, 100)]
    assert of(endingTimestamp=1_700_000_000_010) == [(0, 0, 10)]
    with pytest.raises(BadOption, match="no record at or after the starting time"):
        of(startingTimestamp=1_700_000_000_090)
    assert of(startingTimestamp=1_800_000_000_000, **latest) == []
    with Cluster(session_broker.bootstrap_servers) as cluster:
        commit_offsets(cluster, "g", {topic: {0: 33}})
    assert of(startingOffsets="group", kafka_group_id="g") == [(0, 33, 100)]
    pattern = topic.replace(topic[:3], "...", 1)
    assert ranges(planned(session_broker, subscribePattern=pattern)) == [(0, 0, 100)]
    assert ranges(planned(session_broker, assign=f'{{"{topic}":[0]}}')) == [(0, 0, 100)]


def test_what_is_lost_is_named_unless_it_may_be(broker):
    topic = broker.create_topic("t")
    produce(broker, topic, rows(50))
    with Cluster(broker.bootstrap_servers) as cluster:
        delete_records(cluster, topic, {0: 20})
    start = {"startingOffsets": '{"t":{"0":5}}'}
    words = "partition 0 of topic t: offset 5 is wanted, but the log has offsets 20 to 50"
    with pytest.raises(DataLoss, match=words):
        planned(broker, subscribe="t", **start)
    assert ranges(planned(broker, subscribe="t", failOnDataLoss="false", **start)) == [(0, 20, 50)]


def test_what_is_deleted_after_the_plan_is_named_unless_it_may_be(broker):
    topic = broker.create_topic("t")
    produce(broker, topic, rows(50))
    strict = planned(broker, subscribe="t", source="wire")
    lenient = planned(broker, subscribe="t", source="wire", failOnDataLoss="false")
    with Cluster(broker.bootstrap_servers) as cluster:
        delete_records(cluster, topic, {0: 20})
    words = "partition 0 of topic t has offsets 20 to 50: 0 was asked for"
    with pytest.raises(DataLoss, match=words):
        read(strict)
    assert [row["offset"] for row in read(lenient)] == list(range(20, 50))


def test_options_are_checked():
    base = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
    assert parse_options({k.upper(): v for k, v in base.items()}).topics == ("t",)
    for wrong, words in [
        ({"kafka.bootstrap.servers": ""}, "bootstrap.servers is needed"),
        ({"assign": '{"t":[0]}'}, "exactly one"),
        ({"startingOffsets": "latest"}, "startingOffsets of a batch"),
        ({"startingOffsets": '{"t":5}'}, "startingOffsets must be JSON"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss must be one of"),
        ({"minPartitions": "0"}, "minPartitions must be a number above 0"),
        ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol is one of"),
        ({"kafka.security.protocol": "SASL_SSL"}, "kafka.sasl.jaas.config is not set"),
        (
            {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/x/trust.jks"},
            "ssl.truststore.location=/x/trust.jks: cannot be read",
        ),
        (
            {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "NTLM"},
            "kafka.sasl.mechanism is one of .* here, not NTLM",
        ),
        ({"isolation": "none"}, "isolation must be one of"),
        ({"startingTimestamp": "x"}, "startingTimestamp must be ms"),
    ]:
        with pytest.raises(BadOption, match=words):
            parse_options(base | wrong)
