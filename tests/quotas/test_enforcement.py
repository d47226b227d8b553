"""What a client over its quota gets: a throttle time, and no further answer until it is over."""

import select
import socket
import threading
import time

import pytest
from compat.support import Wire, create_topic
from quotas.asking import set_quota

from barnabas import Broker
from barnabas.api.table import api_table
from barnabas.cext.record.records import Record
from barnabas.wire import request, response
from barnabas.wire.batches import encode_batch
from barnabas.wire.headers import encode_request
from barnabas.wire.schema import within

CLIENT = {"client-id": "compat"}  # whom compat.support.Wire says it is
QUIET_S = 0.2


@pytest.fixture(scope="module")
def broker():
    with Broker({"num.network.threads": "1"}) as made:
        create_topic(made.bootstrap_servers, "t", 2)
        yield made


@pytest.fixture(autouse=True)
def without_quotas_afterwards(broker):
    yield
    with Wire(broker.bootstrap_servers) as wire:
        broker.clock.advance(seconds=20)
        for names in (CLIENT, {"user": None}, {"user": "ANONYMOUS"}, {"client-id": None}):
            keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
            set_quota(wire, names, **dict.fromkeys(keys))
    broker.clock.advance(seconds=20)


@pytest.fixture
def wire(broker):
    with Wire(broker.bootstrap_servers) as made:
        yield made


def produce_request(size_bytes, *, acks=1, topic="t"):
    data = encode_batch([Record(None, b"x" * size_bytes)])
    ask = request(0)
    part = ask.struct("topicData.partitionData")(index=0, records=data)
    row = ask.struct("topicData")(name=topic, partitionData=[part])
    return ask.cls(acks=acks, timeoutMs=30_000, topicData=[row])


def produce(wire, size_bytes, version=9):
    """The throttle time; the record is stored in any case."""
    answer = wire.call(0, version, produce_request(size_bytes))
    assert answer.responses[0].partitionResponses[0].errorCode == 0
    return answer.throttleTimeMs


def fetch(wire, offset=0, *, session=(0, -1), max_bytes=1 << 20, version=11):
    ask = request(1)
    part = ask.struct("topics.partitions")(
        partition=0, fetchOffset=offset, partitionMaxBytes=max_bytes
    )
    topics = [ask.struct("topics")(topic="t", partitions=[part])] if session[1] <= 0 else []
    return wire.call(
        1,
        version,
        ask.cls(
            replicaId=-1,
            maxWaitMs=0,
            minBytes=0,
            maxBytes=max_bytes,
            sessionId=session[0],
            sessionEpoch=session[1],
            topics=topics,
        ),
    )


def is_answered(wire, within_s=QUIET_S):
    return bool(select.select([wire._socket], [], [], within_s)[0])


def now_ms(broker):
    return broker.node.clock.monotonic_ns() // 1_000_000


def test_a_producer_waits_for_what_it_sent_too_much(broker, wire):
    set_quota(wire, CLIENT, producer_byte_rate=1000)
    assert produce(wire, 5000) == 0
    waits = produce(wire, 10_000)
    # 15,000 bytes and what surrounds them: 5,000 more than 10 s hold, so 5 s more.
    assert 5000 <= waits <= 6500


def test_a_muted_connection_is_not_read_and_others_are(broker, wire):
    with Wire(broker.bootstrap_servers) as other:
        set_quota(other, CLIENT, producer_byte_rate=1000)
        assert 9000 <= produce(wire, 19_000) <= 11_000
        began = time.monotonic()
        wire._socket.sendall(b"\0\0\0\x10" + b"\0\x12\0\0\0\0\0\x07\0\x06compat")
        assert not is_answered(wire)
        assert other.call(3, 9, request(3).cls(topics=[])).throttleTimeMs == 0
        broker.clock.advance(seconds=5)
        assert not is_answered(wire)
        broker.clock.advance(seconds=7)
        assert is_answered(wire, 10)
        assert time.monotonic() - began < 5


def test_a_muted_client_that_leaves_is_not_kept(broker):
    before = broker.node.reactor.counters()["connection_count"]
    with Wire(broker.bootstrap_servers) as wire:
        set_quota(wire, CLIENT, producer_byte_rate=1)
        assert produce(wire, 1000) > 500_000
    deadline = time.monotonic() + 10
    while broker.node.reactor.counters()["connection_count"] > before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("rate", [1000, 50_000])
def test_a_producer_stays_within_its_quota(broker, wire, rate):
    """By the broker's clock, over a minute and more than the first windows."""
    set_quota(wire, CLIENT, producer_byte_rate=rate)
    size = len(encode_request(0, 9, 1, "compat", produce_request(rate))) - 4
    sent, began = 0, None
    while began is None or now_ms(broker) - began < 60_000:
        waits = produce(wire, rate)
        if began is None and waits:
            began, sent = now_ms(broker), -(waits * rate // 1000)
        sent += size
        broker.clock.advance(ms=waits or 200)
    assert sent == pytest.approx(rate * (now_ms(broker) - began) / 1000, rel=0.1)


def test_a_fetch_over_the_quota_is_empty_and_keeps_its_place(broker, wire):
    for _ in range(4):
        produce(wire, 10_000)
    first = fetch(wire, session=(0, 0))
    session = first.sessionId
    assert session and first.throttleTimeMs == 0
    set_quota(wire, CLIENT, consumer_byte_rate=2000)
    full = fetch(wire, 1, max_bytes=1 << 20)
    assert full.throttleTimeMs == 0  # no more than what fits into the windows was read
    size = sum(len(p.records or b"") for row in full.responses for p in row.partitions)
    assert 10_000 < size <= 20_000
    throttled = fetch(wire, 1)
    assert throttled.throttleTimeMs > 0
    assert (throttled.errorCode, throttled.sessionId, throttled.responses) == (0, 0, [])
    broker.clock.advance(ms=throttled.throttleTimeMs)
    throttled = fetch(wire, session=(session, 1))
    if throttled.throttleTimeMs:
        assert (throttled.errorCode, throttled.sessionId) == (0, session)
        broker.clock.advance(ms=throttled.throttleTimeMs)
    broker.clock.advance(seconds=12)
    again = fetch(wire, session=(session, 2))
    assert again.errorCode == 0 and again.throttleTimeMs == 0
    assert sum(len(p.records) for row in again.responses for p in row.partitions) > 0


def test_a_consumer_stays_within_its_quota(broker, wire):
    """Kafka's formula gives a little less than the quota to fetches: the twin has 0.94 of it."""
    for _ in range(4):
        produce(wire, 10_000)
    set_quota(wire, CLIENT, consumer_byte_rate=20_000)
    got, began = 0, None
    while began is None or now_ms(broker) - began < 60_000:
        answer = fetch(wire, 0, max_bytes=1)  # a batch of 10,000 bytes
        if began is None and answer.throttleTimeMs:
            began, got = now_ms(broker), 0
        got += sum(len(p.records or b"") for row in answer.responses for p in row.partitions)
        broker.clock.advance(ms=answer.throttleTimeMs or 200)
    assert got == pytest.approx(20_000 * (now_ms(broker) - began) / 1000, rel=0.1)


def test_acks_0_is_muted_without_an_answer(broker, wire):
    set_quota(wire, CLIENT, producer_byte_rate=1000)
    with Wire(broker.bootstrap_servers) as other:
        frame = produce_request(19_000, acks=0)
        other._socket.sendall(encode_request(0, 9, 1, "compat", frame))
        other._socket.sendall(encode_request(18, 0, 2, "compat", request(18).cls()))
        assert not is_answered(other)
        broker.clock.advance(seconds=12)
        assert is_answered(other, 10)


def served():
    return [
        (row.key, version)
        for row in api_table().values()
        if row.key not in (17, 36)
        for version in range(row.version_min, row.version_max + 1)
    ]


@pytest.mark.parametrize("key", sorted({key for key, _ in served()}))
def test_each_answer_with_a_throttle_time_has_it(broker, key):
    """Of native handlers, of Python, and of the response cache (the second time)."""
    fields = response(key).schema.fields
    spans = next((f.versions for f in fields if f.name == "throttleTimeMs"), ())
    with Wire(broker.bootstrap_servers) as admin:
        set_quota(admin, CLIENT, request_percentage=1e-6)
    for version in (version for k, version in served() if k == key):
        for _ in range(2):
            with Wire(broker.bootstrap_servers) as wire:
                try:
                    body = request(key).cls(acks=1) if key == 0 else request(key).cls()
                    answer = wire.call(key, version, body)
                except ConnectionError:
                    continue  # the request makes no sense without its fields
                if within(spans, version) and key != 27:
                    assert answer.throttleTimeMs == 1000, (key, version)


def test_the_quota_of_a_user_is_one_for_all_its_connections(broker):
    with Wire(broker.bootstrap_servers) as one, Wire(broker.bootstrap_servers) as other:
        set_quota(one, {"user": "ANONYMOUS"}, producer_byte_rate=1000)
        assert produce(one, 9000) == 0
        assert produce(other, 9000) > 7000


def test_a_changed_quota_counts_for_open_connections(broker, wire):
    set_quota(wire, {"client-id": None}, producer_byte_rate=1000)
    assert 9000 < produce(wire, 19_000) < 11_000
    broker.clock.advance(seconds=11)
    with Wire(broker.bootstrap_servers) as other:
        set_quota(other, CLIENT, producer_byte_rate=10**9)
    assert produce(wire, 19_000) == 0
    with Wire(broker.bootstrap_servers) as other:
        set_quota(other, CLIENT, producer_byte_rate=None)
        set_quota(other, {"client-id": None}, producer_byte_rate=None)
    assert produce(wire, 19_000) == 0


def test_a_broker_stops_while_a_connection_is_muted(tmp_path):
    with Broker({"log.dirs": str(tmp_path)}) as broker:
        create_topic(broker.bootstrap_servers, "t")
        wire = Wire(broker.bootstrap_servers)
        set_quota(wire, CLIENT, producer_byte_rate=1)
        assert produce(wire, 1000) > 500_000
        began = time.monotonic()
    assert time.monotonic() - began < 60
    wire.close()


@pytest.mark.parametrize("count", [1, 2])
def test_a_first_request_without_answer_is_carried_out_though_its_client_has_gone(
    broker, wire, monkeypatch, count
):
    """Python looks for the quotas of its client meanwhile."""
    set_quota(wire, CLIENT, consumer_byte_rate=1 << 20)
    assert fetch(wire)  # its quotas are known now
    enforcement = broker.node.serving.quotas._made
    asked, go_on, meter = threading.Event(), threading.Event(), enforcement.meter

    def held(pending):
        asked.set()
        assert go_on.wait(30)
        meter(pending)

    monkeypatch.setattr(enforcement, "meter", held)
    before = len(list(broker.records("t")))
    with Wire(broker.bootstrap_servers) as gone:
        body = produce_request(100, acks=0)
        gone._socket.sendall(encode_request(0, 9, 1, "gone", body) * count)
        assert asked.wait(30)
        gone._socket.shutdown(socket.SHUT_WR)
        assert fetch(wire)  # the one network thread has seen the end of the other connection
        go_on.set()
        assert gone._socket.recv(1) == b""  # closed when they are carried out
    assert len(list(broker.records("t"))) == before + count
