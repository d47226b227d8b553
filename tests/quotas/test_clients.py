"""Clients see how long they are throttled: librdkafka, and Kafka's producer in Java."""

import subprocess
import time

import pytest
from compat.support import KAFKA, Wire, create_topic, rival
from confluent_kafka import Consumer, Producer, TopicPartition
from quotas.asking import set_quota
from quotas.test_enforcement import produce

from barnabas import Broker
from barnabas.wire import request

RATE = 100_000
QUICK = ("-Xmx256M", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xlog:disable")


@pytest.fixture(scope="module")
def broker():
    with Broker({"num.network.threads": "1"}) as made:
        create_topic(made.bootstrap_servers, "t")
        yield made


def test_librdkafka_reports_the_throttle_time(broker):
    """1.1 MB at once, where ten seconds hold 1 MB."""
    with Wire(broker.bootstrap_servers) as wire:
        set_quota(wire, {"client-id": "etl"}, producer_byte_rate=RATE, consumer_byte_rate=RATE)
    told = []
    common = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "etl"}
    producer = Producer({**common, "throttle_cb": told.append, "linger.ms": 0})
    for _ in range(22):
        producer.produce("t", b"x" * 50_000, partition=0)
        producer.flush(20)
    producer.poll(0.1)
    assert 0.3 < max(event.throttle_time for event in told) < 5
    told.clear()
    settings = {"group.id": "g", "throttle_cb": told.append, "fetch.wait.max.ms": 100}
    consumer = Consumer({**common, **settings})
    consumer.assign([TopicPartition("t", 0, 0)])
    deadline = time.monotonic() + 30
    count = 0
    while count < 22 and time.monotonic() < deadline:
        count += consumer.poll(0.2) is not None
    consumer.close()
    assert count == 22  # throttled fetches lose nothing
    assert any(event.throttle_time > 0 for event in told)


@pytest.mark.java
def test_the_java_producer_reports_the_throttle_time(broker, tmp_path):
    if reason := rival.missing(KAFKA):
        pytest.skip(reason)
    with Wire(broker.bootstrap_servers) as wire:
        set_quota(wire, {"client-id": "perf-producer-client"}, producer_byte_rate=RATE)
    command = rival.tool(KAFKA, "producer-perf-test", tmp_path / "tool.log", heap=QUICK)
    command += ["--topic", "t", "--num-records", "24", "--record-size", "50000"]
    command += ["--throughput", "-1", "--print-metrics", "--producer-props"]
    command += [f"bootstrap.servers={broker.bootstrap_servers}", "batch.size=1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    lines = [row for row in done.stdout.splitlines() if "produce-throttle-time-max" in row]
    assert lines, done.stdout + done.stderr
    assert float(lines[0].rpartition(":")[2]) > 300


@pytest.mark.alone(reason="compares times of milliseconds, which a busy neighbour exceeds")
def test_a_neighbour_of_throttled_clients_is_served_as_fast(broker):
    """On the only network thread, beside 20 connections that are muted again and again."""

    def p99_ms(wire):
        times = []
        for _ in range(300):
            began = time.perf_counter()
            wire.call(3, 9, request(3).cls(topics=[]))
            times.append(time.perf_counter() - began)
        return 1000 * sorted(times)[-4]

    with Wire(broker.bootstrap_servers) as wire:
        alone = min(p99_ms(wire) for _ in range(3))
        set_quota(wire, {"client-id": "compat"}, producer_byte_rate=1000)
        muted = [Wire(broker.bootstrap_servers) for _ in range(20)]
        assert max(produce(each, 19_000) for each in muted) > 5000
        for each in muted:
            each._socket.sendall(b"\0\0\0\x10" + b"\0\x12\0\0\0\0\0\x07\0\x06compat")
        beside = min(p99_ms(wire) for _ in range(3))
        set_quota(wire, {"client-id": "compat"}, producer_byte_rate=None)
    for each in muted:
        each.close()
    assert beside < 2 * alone + 1
