"""The load of `barnabas bench`: its counts equal those of the broker, and its latencies are
right."""

import json
import random
import statistics
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas import Broker
from barnabas.client import Cluster, NewTopic, Reader, create_topics, list_offsets
from barnabas.client.histogram import Histogram
from barnabas.client.load import Shape, Until, consume, payloads, produce, through
from barnabas.client.offsets import LATEST
from barnabas.errors import KafkaError


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    settings = {
        "log.dirs": str(tmp_path_factory.mktemp("load")),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.durability": "os",
    }
    with Broker(settings) as broker, Cluster(broker.bootstrap_servers) as found:
        yield found


def nothing(_totals):
    pass


def stored(cluster, topic):
    ends = list_offsets(cluster, topic, dict.fromkeys(cluster.topic(topic).partitions, LATEST))
    return [row.offset for row in ends.values()]


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_produced_and_consumed_counts_are_the_brokers(cluster, codec, acks):
    topic = f"counts-{codec}-{acks}"
    create_topics(cluster, [NewTopic(topic, partition_count=3)])
    shape = Shape(batch_records=40, codec=codec, acks=acks, in_flight=3, connections=2)
    totals = produce(cluster, topic, shape, Until(records=1010), nothing)
    assert totals.records == 1010
    assert totals.requests == totals.latency.count == 26  # the last producer sends the remainder
    assert totals.size_bytes == 101_000
    deadline = time.monotonic() + 10
    while acks == "0" and sum(stored(cluster, topic)) < 1010 and time.monotonic() < deadline:
        time.sleep(0.02)
    ends = stored(cluster, topic)
    assert sum(ends) == 1010
    assert min(ends) >= 8 * 40  # partitions take turns
    read = consume(cluster, topic, dict.fromkeys(range(3), 0), Until(), nothing)
    assert read.records == 1010


def test_values_are_what_was_asked_for(cluster):
    shape = Shape(record_bytes=64, batch_records=10)
    produce(cluster, "values", shape, Until(records=30), nothing)
    values = [record.value for _, record in Reader(cluster, "values", {0: 0}, to_end=True)]
    assert values == payloads(64)[:30]


def test_consume_begins_at_the_given_offset(cluster):
    produce(cluster, "middle", Shape(batch_records=10), Until(records=100), nothing)
    assert consume(cluster, "middle", {0: 50}, Until(), nothing).records == 50
    assert consume(cluster, "middle", {0: 100}, Until(), nothing).records == 0
    assert consume(cluster, "middle", {0: 0}, Until(records=1), nothing).records >= 1


def test_a_rate_is_kept_and_ends_in_time(cluster):
    """The best of three tries has the records: a machine that is busy for a moment sends fewer."""
    shape, records = Shape(batch_records=5, rate=500), []
    while not records or records[-1] < 400 and len(records) < 3:
        began = time.monotonic()
        records.append(produce(cluster, "rate", shape, Until(seconds=1), nothing).records)
        assert 0.9 < time.monotonic() - began < 60
    assert 400 <= records[-1] <= 505, records


def test_latency_counts_from_the_time_a_request_was_due(cluster):
    """The latency of a sender that falls behind includes its own delay: stalls of 20 ms are
    seen."""

    def stall(_totals):
        time.sleep(0.02)

    shape = Shape(batch_records=1, rate=2000, in_flight=1)
    totals = produce(cluster, "stall", shape, Until(records=40), stall)
    assert totals.latency.percentile(0.5) > 100e6
    assert totals.late_ns > 100e6


def test_every_record_that_goes_through_is_timed_once(cluster):
    create_topics(cluster, [NewTopic("through", partition_count=2)])
    shape = Shape(record_bytes=50, batch_records=3, rate=900)
    produce(cluster, "through", Shape(), Until(records=50), nothing)  # of another load
    totals = through(cluster, "through", shape, Until(records=300), nothing)
    assert totals.records == totals.latency.count == 300
    assert 0 < totals.latency.smallest <= totals.latency.largest < 10e9


def test_an_error_of_the_broker_ends_the_load(cluster):
    create_topics(cluster, [NewTopic("small", configs={"max.message.bytes": "200"})])
    with pytest.raises(KafkaError):
        produce(cluster, "small", Shape(), Until(records=1000), nothing)


def test_payloads_compress_like_text():
    import zlib

    data = b"".join(payloads(100))
    assert 2 < len(data) / len(zlib.compress(data)) < 8


@given(st.lists(st.integers(0, 2**50), min_size=1, max_size=300), st.floats(0.01, 1))
def test_percentiles_are_within_a_bucket(values, part):
    found = Histogram()
    for value in values:
        found.add(value)
    true = sorted(values)[max(int(-(-part * len(values) // 1)) - 1, 0)]
    assert true <= found.percentile(part) <= true * 1.04 + 1
    assert (found.smallest, found.largest) == (min(values), max(values))
    assert sum(count for _, _, count in found.doublings()) == len(values)
    assert json.dumps(list(found.doublings()))


def test_histogram_of_many_values_stays_small():
    found, pick = Histogram(), random.Random(1)
    values = [round(pick.lognormvariate(12, 2)) for _ in range(50_000)]
    for value in values:
        found.add(value)
    assert len(found._buckets) < 1000
    assert abs(found.percentile(0.5) / statistics.median(values) - 1) < 0.04
