"""Each of the log.cleaner settings has its effect on a log; and the cleaner's metrics."""

import http.client
import os
import time
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from oracle.exposition import read_page, value_of
from waiting import soon

from barnabas import Broker

KEYS = 600
QUICK = {"log.cleaner.backoff.ms": "50", "log.roll.jitter.ms": "0", "metrics.port": "0"}
TOPIC = {"cleanup.policy": "compact", "segment.bytes": "20000"}
ANY_DIRT = {"log.cleaner.min.cleanable.ratio": "0.01"}


@contextmanager
def running(path, **settings):
    named = {name.replace("_", "."): str(value) for name, value in settings.items()}
    with Broker({"log.dirs": str(path), **QUICK, **ANY_DIRT, **named}) as broker:
        yield broker


def send(broker, topic, rows):
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


def fill(broker, topic="t", count=KEYS, distinct=10):
    send(broker, topic, [(b"k%d" % (i % distinct), b"%d" % i + bytes(90)) for i in range(count)])


def filled(path, distinct, topics=("t",)):
    """A directory with compacted topics that have not been cleaned yet."""
    with running(path, log_cleaner_enable="false") as broker:
        for topic in topics:
            broker.create_topic(topic, configs=TOPIC)
            fill(broker, topic, distinct=distinct)


def is_clean(broker, topic="t"):
    row = broker.node.loaded.logs.get(topic, 0)
    with broker.node.running.cleaner._lock:  # a pass is complete when it is counted
        _, offset = broker.node.running.cleaner._clean_to.get((topic, 0), (b"", -1))
    return offset == row.handle.segments()[-1].base_offset


def keys(broker):
    return [record.key for record in broker.records("t")]


def test_log_cleaner_backoff_ms(tmp_path):
    hour_ms = 3_600_000
    with running(tmp_path, **{"log.cleaner.backoff.ms": hour_ms}) as broker:
        broker.create_topic("t", configs=TOPIC)
        fill(broker)
        broker.clock.advance(minutes=50)
        assert broker.node.running.cleaner.passes == 0
        broker.clock.advance(minutes=10)
        soon(lambda: is_clean(broker))


def test_log_cleaner_delete_retention_ms(tmp_path):
    with running(tmp_path, **{"log.cleaner.delete.retention.ms": 60_000}) as broker:
        broker.create_topic("t", configs=TOPIC)
        send(broker, "t", [(b"gone", b"v"), (b"gone", None)])
        fill(broker)
        soon(lambda: keys(broker).count(b"gone") == 1)
        broker.clock.advance(seconds=120)
        fill(broker)
        soon(lambda: b"gone" not in keys(broker))


def test_log_cleaner_min_compaction_lag_ms(tmp_path):
    with running(tmp_path, **{"log.cleaner.min.compaction.lag.ms": 60_000}) as broker:
        broker.create_topic("t", configs=TOPIC)
        fill(broker)
        broker.clock.advance(seconds=1)  # a pass that is due has run then
        assert len(keys(broker)) == KEYS
        broker.clock.advance(seconds=120)
        soon(lambda: len(keys(broker)) < 400)


def test_log_cleaner_max_compaction_lag_ms(tmp_path):
    lag = {"log.cleaner.max.compaction.lag.ms": 60_000, "log.cleaner.min.cleanable.ratio": 1.0}
    with running(tmp_path, **lag) as broker:
        broker.create_topic("t", configs=TOPIC)
        fill(broker)
        soon(lambda: broker.node.running.cleaner.passes == 1)
        fill(broker, count=300)
        before = len(keys(broker))
        broker.clock.advance(seconds=1)  # a pass that is due has run then
        assert len(keys(broker)) == before
        broker.clock.advance(seconds=120)
        send(broker, "t", [(b"k1", b"rolls the active segment, too old for the lag")])
        soon(lambda: len(keys(broker)) < before)


def test_log_cleaner_min_cleanable_ratio(tmp_path):
    with running(tmp_path, **{"log.cleaner.min.cleanable.ratio": 1.0}) as broker:
        broker.create_topic("t", configs=TOPIC)
        fill(broker, distinct=KEYS)
        soon(lambda: broker.node.running.cleaner.passes == 1)
        fill(broker, count=300, distinct=300)
        broker.clock.advance(seconds=1)  # a pass that is due has run then
        assert broker.node.running.cleaner.passes == 1  # a third is dirty, and the ratio is 1


@pytest.mark.parametrize(
    ("settings", "passes"),
    [  # a place for a key takes 24 bytes: 437 keys, 873, 1310
        ({"log.cleaner.dedupe.buffer.size": 1 << 20, "log.cleaner.io.buffer.load.factor": 0.01}, 2),
        ({"log.cleaner.dedupe.buffer.size": 2 << 20, "log.cleaner.io.buffer.load.factor": 0.01}, 1),
        ({"log.cleaner.dedupe.buffer.size": 1 << 20, "log.cleaner.io.buffer.load.factor": 0.03}, 1),
    ],
)
def test_how_many_keys_a_pass_holds(tmp_path, settings, passes):
    filled(tmp_path, distinct=KEYS)
    with running(tmp_path, **settings) as broker:
        soon(lambda: is_clean(broker))
        assert broker.node.running.cleaner.passes == passes
        assert len(keys(broker)) == KEYS


@pytest.mark.parametrize("threads", [1, 2])
def test_log_cleaner_threads(tmp_path, threads):
    filled(tmp_path, distinct=10, topics=("t", "u"))
    slow = {"log.cleaner.io.max.bytes.per.second": 40_000, "log.cleaner.threads": threads}
    with running(tmp_path, **slow) as broker:
        busy = broker.node.running.cleaner._busy
        soon(lambda: len(busy) == threads)
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            assert len(busy) <= threads
            time.sleep(0.01)


def test_log_cleaner_io_max_bytes_per_second(tmp_path):
    filled(tmp_path, distinct=10)
    rate = 60_000
    began = time.monotonic()
    with running(tmp_path, **{"log.cleaner.io.max.bytes.per.second": rate}) as broker:
        soon(lambda: is_clean(broker))
        took_s = time.monotonic() - began
        assert broker.node.running.cleaner.bytes_read > rate
        assert took_s > broker.node.running.cleaner.bytes_read / rate * 0.8


def test_log_cleaner_io_buffer_size(tmp_path):
    """A smaller buffer causes more writes."""
    writes = []
    for at, size_bytes in enumerate((4096, 1 << 20)):
        path = tmp_path / str(at)
        filled(path, distinct=KEYS)
        settings = {"log.cleaner.io.buffer.size": size_bytes, "log.cleaner.backoff.ms": 600_000}
        with running(path, **settings) as broker:
            system = broker.node.system
            rule = system.fault(
                "pwritev", "delay", delay_ms=1, count=1 << 30, path_contains=".log.cleaned"
            )
            broker.node.running.cleaner.run()
            writes.append(system.fired(rule))
    assert writes[1] >= 1 and writes[0] > 5 * writes[1]


def test_metrics_of_the_cleaner(tmp_path):
    filled(tmp_path, distinct=10, topics=("t", "bad"))
    path = tmp_path / "bad-0" / f"{0:020d}.log"
    with open(path, "r+b") as file:
        os.pwrite(file.fileno(), b"\xff\xff", 3000)
    with running(tmp_path) as broker:
        cleaner = broker.node.running.cleaner
        soon(lambda: is_clean(broker) and cleaner.uncleanable_count == 1)
        page = page_of(broker)
        here = {"logDirectory": str(tmp_path)}
        manager = "kafka_log_logcleanermanager_"
        assert value_of(page, f"{manager}uncleanable_partitions_count", **here) == 1
        size = sum(f.stat().st_size for f in (tmp_path / "bad-0").glob("*.log"))
        assert 30_000 < value_of(page, f"{manager}uncleanable_bytes", **here) < size
        assert 0 <= value_of(page, f"{manager}time_since_last_run_ms") < 60_000
        assert value_of(page, f"{manager}max_dirty_percent") in range(101)
        assert 0 < value_of(page, "kafka_log_logcleaner_cleaner_recopy_percent") < 50
        assert value_of(page, "kafka_log_logcleaner_deadthreadcount") == 0
        assert value_of(page, "barnabas_cleaner_passes_total") == cleaner.passes >= 1
        assert value_of(page, "barnabas_cleaner_bytes_total") == cleaner.bytes_read > 30_000


def page_of(broker):
    host, port = broker.node.metrics.address.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=20)
    connection.request("GET", "/metrics")
    try:
        return read_page(connection.getresponse().read().decode())
    finally:
        connection.close()
