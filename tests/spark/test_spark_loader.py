"""The plugin spark-loader in a running broker keeps segments that are not loaded yet, within
limits."""

import time

import pytest

from barnabas import Broker
from barnabas.cext.record.records import Record
from barnabas.client import Cluster
from barnabas.client.groups import committed_offsets, describe_group
from barnabas.hooks import LogView, SegmentView
from barnabas.node import CannotStart
from barnabas.plugins.spark_loader import SparkLoader
from barnabas.spark.checkpoint import Checkpoint
from barnabas.spark.files import LocalFiles
from barnabas.spark.offsets import offsets_json
from barnabas.spark.options import parse_options
from barnabas.spark.stream import Stream
from barnabas.testing.plugins import Sender

CONFIGS = {"retention.policy": "spark-loader", "segment.bytes": "400", "retention.ms": "1"}
RECORDS = 6  # each in a segment of its own


def filled(broker):
    topic = broker.create_topic("news", configs=CONFIGS)
    an_hour_ago = int(time.time() * 1000) - 3_600_000
    with Sender(broker.bootstrap_servers) as sender:
        for _ in range(RECORDS):
            sender.send(topic, [Record(b"x" * 250, timestamp=an_hour_ago)])
    return topic, broker.node.loaded.logs.get(topic, 0).handle


def metric(broker, name):
    label = f'plugin="spark-loader",metric="{name}",topic="news"'
    return {
        value
        for key, value in broker.node.metrics.values().items()
        if key.startswith("barnabas_plugin_metric") and label in key
    }


def test_segments_wait_for_the_group_of_the_load():
    settings = {"plugins": "spark-loader", "plugin.spark-loader.group": "nightly"}
    with Broker(settings) as broker:
        topic, log = filled(broker)
        broker.node.running.retention.run()
        assert log.start_offset == 0
        assert metric(broker, "lag_records") == {RECORDS}
        (overdue,) = metric(broker, "overdue_bytes")
        assert overdue > 250 * RECORDS
        given = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "4",
            "commitOffsetsToGroup": "nightly",
        }
        stream = Stream(parse_options(given, stream=True))
        end = stream.latest(stream.initial())
        broker.node.running.retention.run()
        assert log.start_offset == 0  # the load has read it, and is not finished
        stream.latest(end)
        stream.close()
        assert metric(broker, "lag_records") == {RECORDS - 4}
        broker.node.running.retention.run()
        assert log.start_offset == 4


def test_segments_wait_for_the_batches_of_a_checkpoint(tmp_path):
    place = tmp_path / "checkpoint"
    settings = {"plugins": "spark-loader", "plugin.spark-loader.checkpoint": str(place)}
    with Broker(settings) as broker:
        topic, log = filled(broker)
        broker.node.running.retention.run()
        assert log.start_offset == 0  # there is no checkpoint
    checkpoint = Checkpoint(LocalFiles(place))
    checkpoint.create()
    checkpoint.plan(0, [offsets_json({"news": {0: 2}})], now_ms=1)
    checkpoint.commit_batch(0)
    checkpoint.plan(1, [offsets_json({"news": {0: 5}})], now_ms=2)
    with Broker(settings) as broker:
        topic, log = filled(broker)
        broker.node.running.retention.run()
        assert log.start_offset == 2
        assert metric(broker, "lag_records") == {RECORDS - 2}


def view_of(*, committed, retention_ms=10, retention_bytes=-1):
    """Four segments of 100 bytes and 10 records; the newest has just been written."""
    segments = tuple(
        SegmentView(10 * i, 10 * i + 10, 100, 1000 * (i + 1), i == 3) for i in range(4)
    )
    return LogView("t", 0, segments, 40, retention_ms, retention_bytes, {"load": committed})


@pytest.mark.parametrize(
    ("options", "committed", "count"),
    [
        ({}, 0, 0),
        ({}, 9, 0),
        ({}, 10, 1),
        ({}, 40, 3),  # the last one is too new
        ({"keep.ms": 2500}, 0, 1),
        ({"keep.ms": 1500}, 10, 2),
        ({"keep.bytes": 399}, 0, 1),
        ({"keep.bytes": 200}, 0, 2),
        ({"keep.bytes": 400}, 0, 0),
        ({"keep.ms": -1, "keep.bytes": -1}, 0, 0),
    ],
)
def test_what_was_not_loaded_is_kept_within_limits(options, committed, count):
    given = {"group": "load", "checkpoint": "", "keep.ms": 10**9, "keep.bytes": 10**9}
    plugin = SparkLoader(given | options)
    assert plugin.deletable_segments(view_of(committed=committed), 4000) == count


def test_the_topic_decides_how_long_loaded_segments_stay():
    plugin = SparkLoader({"group": "load", "checkpoint": "", "keep.ms": -1, "keep.bytes": -1})
    assert plugin.deletable_segments(view_of(committed=40, retention_ms=-1), 4000) == 0
    by_size = view_of(committed=40, retention_ms=-1, retention_bytes=250)
    assert plugin.deletable_segments(by_size, 4000) == 1


def test_a_plugin_without_group_or_checkpoint_stops_the_start():
    with pytest.raises(CannotStart, match="set one of the options group and checkpoint"):
        Broker({"plugins": "spark-loader"}).start()


def test_the_group_is_known_to_lag_tools():
    """What `kafka-consumer-groups` reads: the group exists and has no members."""
    settings = {"plugins": "spark-loader", "plugin.spark-loader.group": "nightly"}
    with Broker(settings) as broker:
        topic, _ = filled(broker)
        given = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "commitOffsetsToGroup": "nightly",
        }
        stream = Stream(parse_options(given, stream=True))
        stream.latest(stream.latest(stream.initial()))
        stream.close()
        with Cluster(broker.bootstrap_servers) as cluster:
            assert describe_group(cluster, "nightly").state == "Empty"
            assert committed_offsets(cluster, "nightly") == {topic: {0: RECORDS}}
