"""Assertions about records, and their failure messages."""

import gzip
import threading
import time

import pytest
from confluent_kafka import Producer

from barnabas import Broker
from barnabas.testing.records import Record, difference


@pytest.fixture(scope="module")
def broker():
    with Broker() as running:
        yield running


def produce(broker, topic, *rows, **options):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **options})
    for row in rows:
        producer.produce(topic, **row)
    assert producer.flush(20) == 0


def test_every_field_is_there(broker):
    broker.create_topic("fields", 3)
    produce(
        broker,
        "fields",
        {"key": b"k", "value": b"v", "headers": [("h", b"1"), ("h", None)], "timestamp": 1000},
        {"key": None, "value": None, "partition": 2},
    )
    rows = broker.records("fields")
    keyed = next(row for row in rows if row.key == b"k")
    assert keyed[:4] == (b"k", b"v", (("h", b"1"), ("h", None)), 1000)
    assert broker.records("fields", keyed.partition)[0] == keyed
    bare = next(row for row in broker.records("fields", 2) if row.key is None)
    assert (bare.value, bare.headers, bare.partition) == (None, (), 2)
    broker.assert_records("fields", [keyed, bare], in_order=False)


def test_many_compressed_batches_are_all_read(broker):
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topic = broker.create_topic(f"codec-{codec}")
        values = [gzip.compress(b"%d" % i * 50) * 20 for i in range(3000)]
        produce(broker, topic, *({"value": v} for v in values), **{"compression.type": codec})
        assert [row.value for row in broker.records(topic)] == values
        assert [row.offset for row in broker.records(topic)] == list(range(3000))


def test_an_expectation_says_as_much_as_it_cares_for(broker):
    broker.create_topic("forms")
    produce(broker, "forms", {"key": b"a", "value": b"1"}, {"key": b"b", "value": b"2"})
    for expected in (
        ["1", b"2"],
        [("a", "1"), (b"b", b"2")],
        [{"key": "a"}, {"offset": 1}],
        [{"headers": []}, {"partition": 0, "value": "2"}],
        broker.records("forms"),
    ):
        broker.assert_records("forms", expected)
    broker.assert_records("forms", ["2", "1"], in_order=False)
    with pytest.raises(AssertionError):
        broker.assert_records("forms", ["2", "1"], timeout_s=0)
    with pytest.raises(TypeError, match="a Record has no field colour"):
        broker.assert_records("forms", [{"colour": 1}, {}])
    with pytest.raises(TypeError, match="must be a pair"):
        broker.assert_records("forms", [("a", "b", "c")])


def test_it_waits_for_what_comes(broker):
    broker.create_topic("late")

    def later():
        time.sleep(0.2)
        produce(broker, "late", {"value": b"v"})

    thread = threading.Thread(target=later)
    thread.start()
    broker.assert_records("late", ["v"])
    thread.join()
    began = time.monotonic()
    with pytest.raises(AssertionError):
        broker.assert_records("late", ["v", "w"], timeout_s=0.2)
    assert 0.2 <= time.monotonic() - began < 5


def test_a_topic_that_is_not_there_holds_nothing(broker):
    assert broker.records("nowhere") == []
    broker.assert_records("nowhere", [])
    with pytest.raises(AssertionError, match="'nowhere' holds 0 record"):
        broker.assert_records("nowhere", ["v"], timeout_s=0)


def test_a_failure_says_where_the_order_breaks():
    found = [Record(None, b"%d" % i, (), 0, 0, i) for i in range(4)]
    assert difference("t", found, ["0", "1", "2", "3"], True) == ""
    assert difference("t", found, ["0", "1", "x"], True).splitlines() == [
        "'t' holds 4 record(s); the test expected 3",
        "  the first 2 are as expected; from there on:",
        "  expected  value=b'x'",
        "  found     key=None value=b'2' (partition 0, offset 2)",
        "  found     key=None value=b'3' (partition 0, offset 3)",
    ]
    assert difference("t", found[:1], [("k", "0")], True).splitlines()[1:] == [
        "  expected  key=b'k' value=b'0'",
        "  found     key=None value=b'0' (partition 0, offset 0)",
    ]


def test_a_failure_in_any_order_says_what_is_missing_and_what_is_too_much():
    found = [Record(b"k", b"%d" % i, (("h", b"x"),), 0, i, 0) for i in range(3)]
    assert difference("t", found, ["2", "0", "1"], False) == ""
    assert difference("t", found, ["2", "7", ("k", "0")], False).splitlines() == [
        "'t' holds 3 record(s); the test expected 3",
        "  missing       value=b'7'",
        "  not expected  key=b'k' value=b'1' headers=(('h', b'x'),) (partition 1, offset 0)",
    ]
    assert difference("t", found, [{}, {"value": "1"}, {"value": "0"}], False) == ""


def test_a_failure_stays_short():
    found = [Record(None, b"%d" % i, (), 0, 0, i) for i in range(500)]
    text = difference("t", found, ["x"] * 300, True)
    assert len(text.splitlines()) == 43
    assert "... and 280 more" in text and "... and 480 more" in text
