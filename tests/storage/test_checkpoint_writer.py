"""Checkpoints are written only when their contents change."""

import pytest
from confluent_kafka import Producer

from barnabas import Broker
from barnabas.storage import checkpoint_writer
from barnabas.storage import checkpoints as files


@pytest.fixture
def broker(tmp_path):
    hour = {
        "replica.high.watermark.checkpoint.interval.ms": "3600000",
        "log.flush.offset.checkpoint.interval.ms": "3600000",
        "log.flush.start.offset.checkpoint.interval.ms": "3600000",
    }
    with Broker({"log.dirs": str(tmp_path), **hour}) as running:
        yield running


def produce(broker, topic):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, b"x")
    assert producer.flush(20) == 0


def test_a_checkpoint_that_says_the_same_is_not_written_again(broker, tmp_path):
    topic = broker.create_topic("t", partitions=3)
    writer, path = broker.node.loaded.checkpoints, tmp_path / files.HIGH_WATERMARK
    produce(broker, topic)
    assert writer.write_high_watermarks()
    first = path.stat().st_ino
    assert writer.write_high_watermarks() and path.stat().st_ino == first
    produce(broker, topic)
    assert writer.write_high_watermarks() and path.stat().st_ino != first
    assert sum(files.read_offsets(path).values()) == 2


def test_a_checkpoint_that_could_not_be_written_is_written_the_next_time(broker, tmp_path):
    topic = broker.create_topic("t")
    writer, path = broker.node.loaded.checkpoints, tmp_path / files.HIGH_WATERMARK
    assert writer.write_high_watermarks()
    produce(broker, topic)
    hidden = tmp_path / "hidden"
    path.rename(hidden)
    path.mkdir()  # no file can be renamed over a directory
    assert not writer.write_high_watermarks()
    path.rmdir()
    assert writer.write_high_watermarks()
    assert files.read_offsets(path) == {("t", 0): 1}


def test_a_log_start_leaves_the_checkpoint_when_the_deleted_segments_are_gone_from_the_disk(
    broker, tmp_path, monkeypatch
):
    """Otherwise a power cut brings back a segment, and its records that DeleteRecords deleted."""
    broker.create_topic("t")
    node = broker.node.loaded
    writer, path, log = node.checkpoints, tmp_path / files.LOG_START, node.logs.get("t", 0)
    produce(broker, "t")
    log.handle.roll()
    produce(broker, "t")
    log.handle.advance_log_start(1)
    assert writer.write_log_starts() and files.read_offsets(path) == {("t", 0): 1}
    flushed = []
    monkeypatch.setattr(
        checkpoint_writer,
        "sync_directory",
        lambda directory: flushed.append((directory, files.read_offsets(path))),
        raising=False,
    )
    log.handle.delete_segments_before(1)
    assert writer.write_log_starts() and files.read_offsets(path) == {}
    assert flushed == [(tmp_path / "t-0", {("t", 0): 1})]
