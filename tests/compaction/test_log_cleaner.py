"""Compacted topics of a running broker: what clients read, when a pass runs, and what it keeps."""

import logging
import os
import time

import pytest
from compat.support import Wire
from confluent_kafka import Producer
from waiting import soon

from barnabas import Broker
from barnabas.storage import checkpoints
from barnabas.wire import request

SETTINGS = {
    "log.cleaner.backoff.ms": "50",
    "log.roll.jitter.ms": "0",
}
TOPIC = {
    "cleanup.policy": "compact",
    "segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.01",
}


@pytest.fixture
def broker(tmp_path):
    with Broker({"log.dirs": str(tmp_path), **SETTINGS}) as running:
        yield running


def send(broker, topic, rows):
    """In batches of 20, so that segments hold several."""
    failed = []
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 20, "linger.ms": 50}
    )
    for key, value in rows:
        producer.produce(
            topic, key=key, value=value, on_delivery=lambda e, m: failed.append(e) if e else None
        )
        producer.poll(0)
    assert producer.flush(20) == 0 and not failed, failed


def is_clean(broker, topic):
    """Returns whether the last pass reached the active segment, which it may not clean."""
    row = broker.node.loaded.logs.get(topic, 0)
    _, offset = broker.node.running.cleaner._clean_to.get((topic, 0), (b"", -1))
    return offset == row.handle.segments()[-1].base_offset


def keys(broker, topic):
    return [record.key for record in broker.records(topic)]


def fill(broker, topic, count=600, distinct=10):
    send(broker, topic, [(b"k%d" % (i % distinct), b"%d" % i + bytes(90)) for i in range(count)])


def test_the_latest_value_of_each_key_is_left_and_is_read_by_clients(broker):
    topic = broker.create_topic("news", configs=TOPIC)
    fill(broker, topic)
    send(broker, topic, [(b"k3", None), (b"last", b"x")])
    soon(lambda: is_clean(broker, topic))
    assert len(broker.records(topic)) < 300
    found = {}
    for record in broker.records(topic):
        found[record.key] = record.value
    assert set(found) == {b"k%d" % i for i in range(10)} | {b"last"}
    assert found[b"k3"] is None and found[b"k9"].startswith(b"599")
    soon(lambda: broker.node.running.cleaner.passes)  # counted at the end of the pass
    assert broker.node.running.cleaner.bytes_read > 0


def test_files_of_replaced_segments_go_after_file_delete_delay_ms(broker, tmp_path):
    """Else a compacted topic keeps every segment that it ever had on disk until the next start."""
    topic = broker.create_topic("news", configs={**TOPIC, "file.delete.delay.ms": "60000"})
    folder = tmp_path / f"{topic}-0"
    cleanup = broker.node.running.retention.cleanup
    for _ in range(2):  # the second pass merges what the first one has left
        fill(broker, topic)
        soon(lambda: is_clean(broker, topic))
    marked = sorted(folder.glob("*.deleted"))
    assert len({path.name.partition(".")[0] for path in marked}) > 1
    cleanup.run()
    broker.node.system.move_wall_clock(59_000)
    cleanup.unlink()
    assert sorted(folder.glob("*.deleted")) == marked
    broker.node.system.move_wall_clock(61_000)
    cleanup.unlink()
    assert not list(folder.glob("*.deleted"))
    segments = {path.stem for path in folder.glob("*.log")}
    assert {path.stem for path in folder.glob("*.snapshot")} <= segments


def test_offsets_by_time_on_a_compacted_topic(broker):
    """ListOffsets finds the first remaining record at or after a time, also where the cleaner made
    gaps, and the largest timestamp with the offset of its record."""
    topic = broker.create_topic("times", configs=TOPIC)
    start = int(time.time() * 1000) - 1_000_000
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 20, "linger.ms": 50}
    )
    for i in range(600):
        producer.produce(
            topic, key=b"k%d" % (i * 7919 % 97), value=bytes(90), timestamp=start + 10 * i
        )
    assert producer.flush(20) == 0
    soon(lambda: is_clean(broker, topic))
    left = {record.offset: record.timestamp for record in broker.records(topic)}
    assert len(left) < 400
    ask = request(2)

    def found(timestamp):
        row = ask.struct("topics.partitions")(partitionIndex=0, timestamp=timestamp)
        topics = [ask.struct("topics")(name=topic, partitions=[row])]
        told = wire.call(2, 7, ask.cls(replicaId=-1, topics=topics)).topics[0].partitions[0]
        assert told.errorCode == 0
        return told.offset, told.timestamp

    with Wire(broker.bootstrap_servers) as wire:
        for i in range(0, 600, 3):
            for timestamp in (start + 10 * i, start + 10 * i - 5):
                offset = min(at for at, stamp in left.items() if stamp >= timestamp)
                assert found(timestamp) == (offset, left[offset])
        assert found(start + 6000) == (-1, -1)
        assert found(-3) == (599, left[599])


def test_log_cleaner_enable(tmp_path):
    with Broker({"log.dirs": str(tmp_path), **SETTINGS, "log.cleaner.enable": "false"}) as broker:
        topic = broker.create_topic("t", configs=TOPIC)
        fill(broker, topic)
        broker.clock.advance(seconds=1)
        assert len(broker.records(topic)) == 600


def test_where_the_next_pass_begins_survives_a_restart(tmp_path):
    with Broker({"log.dirs": str(tmp_path), **SETTINGS}) as broker:
        topic = broker.create_topic("t", configs=TOPIC)
        fill(broker, topic)
        soon(lambda: is_clean(broker, topic))
    offsets = checkpoints.read_offsets(tmp_path / checkpoints.CLEANER)
    assert 300 < offsets["t", 0] <= 600
    with Broker({"log.dirs": str(tmp_path), **SETTINGS}) as broker:
        broker.clock.advance(seconds=1)
        assert broker.node.running.cleaner.passes == 0  # nothing is dirty
        fill(broker, "t", 300)
        soon(lambda: broker.node.running.cleaner.passes >= 1)
        assert checkpoints.read_offsets(tmp_path / checkpoints.CLEANER)["t", 0] > offsets["t", 0]


def test_min_compaction_lag_ms_keeps_young_records(broker):
    topic = broker.create_topic("t", configs={**TOPIC, "min.compaction.lag.ms": "60000"})
    fill(broker, topic)
    broker.clock.advance(seconds=1)  # a pass that is due has run then
    assert len(broker.records(topic)) == 600
    broker.clock.advance(seconds=120)
    soon(lambda: len(broker.records(topic)) < 400)


def test_max_compaction_lag_ms_cleans_what_is_below_the_ratio(broker):
    lag = {"max.compaction.lag.ms": "60000", "min.cleanable.dirty.ratio": "1.0"}
    topic = broker.create_topic("t", configs={**TOPIC, **lag})
    fill(broker, topic)
    soon(lambda: broker.node.running.cleaner.passes == 1)  # all of it is dirty at first
    fill(broker, topic, 300)
    before = len(broker.records(topic))
    broker.clock.advance(seconds=1)  # a pass that is due has run then
    assert len(broker.records(topic)) == before
    broker.clock.advance(seconds=120)
    send(broker, topic, [(b"k1", b"rolls the active segment, too old for the lag")])
    soon(lambda: len(broker.records(topic)) < before)


def test_min_cleanable_dirty_ratio(broker):
    topic = broker.create_topic("t", configs=TOPIC)
    fill(broker, topic)
    soon(lambda: broker.node.running.cleaner.passes >= 1)
    other = broker.create_topic("u", configs={**TOPIC, "min.cleanable.dirty.ratio": "1.0"})
    send(broker, other, [(b"%d" % i, bytes(100)) for i in range(600)])
    soon(lambda: broker.node.running.cleaner._clean_to.get((other, 0)) is not None)
    cleaned = broker.node.running.cleaner._clean_to[other, 0]
    send(broker, other, [(b"%d" % i, bytes(100)) for i in range(300)])
    broker.clock.advance(seconds=1)  # a pass that is due has run then
    # A third is dirty, and the ratio is 1.
    assert broker.node.running.cleaner._clean_to[other, 0] == cleaned


def test_delete_retention_ms_lets_deleted_keys_go(broker):
    topic = broker.create_topic("t", configs={**TOPIC, "delete.retention.ms": "60000"})
    send(broker, topic, [(b"gone", b"v"), (b"gone", None)])
    fill(broker, topic)
    soon(lambda: keys(broker, topic).count(b"gone") == 1)
    broker.clock.advance(seconds=120)
    fill(broker, topic)
    soon(lambda: b"gone" not in keys(broker, topic))


def test_compact_and_delete_together(broker):
    topic = broker.create_topic(
        "t", configs={**TOPIC, "cleanup.policy": "compact,delete", "retention.ms": "600000"}
    )
    fill(broker, topic)
    soon(lambda: len(broker.records(topic)) < 400)
    broker.clock.advance(seconds=1200)
    assert len(broker.records(topic)) == 0


def test_log_cleanup_policy_is_that_of_topics_without_their_own(tmp_path):
    """F23: log.cleanup.policy was called "not built yet" and works."""
    given = {"log.dirs": str(tmp_path), **SETTINGS, "log.cleanup.policy": "compact"}
    with Broker(given) as broker:
        configs = {name: value for name, value in TOPIC.items() if name != "cleanup.policy"}
        topic = broker.create_topic("t", configs=configs)
        fill(broker, topic)
        soon(lambda: len(broker.records(topic)) < 400)


def test_a_damaged_log_is_left_as_it_is_and_said(tmp_path, caplog):
    with Broker({"log.dirs": str(tmp_path), **SETTINGS, "log.cleaner.enable": "false"}) as broker:
        topic = broker.create_topic("t", configs=TOPIC)
        fill(broker, topic)
    path = tmp_path / "t-0" / f"{0:020d}.log"
    with open(path, "r+b") as file:
        os.pwrite(file.fileno(), b"\xff\xff", 3000)
    before = path.read_bytes()
    with (
        caplog.at_level(logging.ERROR, "barnabas.cleaner"),
        Broker({"log.dirs": str(tmp_path), **SETTINGS}) as broker,
    ):
        soon(lambda: broker.node.running.cleaner.uncleanable_count == 1)
        broker.clock.advance(ms=100)  # the cleaner looks at it again
    assert path.read_bytes() == before
    lines = [row.message for row in caplog.records]
    assert len(lines) == 1 and "cannot compact t-0" in lines[0] and str(path) in lines[0]
