"""The quota of controller mutations (KIP-599): what is refused, what is carried out late."""

import time

import pytest
from compat.support import Wire
from quotas.asking import set_quota

from barnabas import Broker
from barnabas.errors import ThrottlingQuotaExceeded
from barnabas.quotas.mutations import TokenBucket, charge
from barnabas.wire import request

CLIENT = {"client-id": "compat"}
EXCEEDED, UNKNOWN = 89, 3
BURST_S = 11  # controller.quota.window.num x controller.quota.window.size.seconds


@pytest.fixture
def broker(tmp_path):
    with Broker({"log.dirs": str(tmp_path)}) as made:
        yield made


@pytest.fixture
def wire(broker):
    with Wire(broker.bootstrap_servers) as made:
        yield made


def create(wire, version, *topics):
    """(error codes, throttle time)"""
    ask = request(19)
    row = ask.struct("topics")
    rows = [row(name=name, numPartitions=count, replicationFactor=1) for name, count in topics]
    answer = wire.call(19, version, ask.cls(topics=rows, timeoutMs=10_000))
    return [row.errorCode for row in answer.topics], answer.throttleTimeMs


def grow(wire, version, name, count):
    ask = request(37)
    row = ask.struct("topics")(name=name, count=count, assignments=None)
    answer = wire.call(37, version, ask.cls(topics=[row], timeoutMs=10_000))
    return [row.errorCode for row in answer.results], answer.throttleTimeMs


def delete(wire, version, *names):
    ask = request(20)
    if version >= 6:
        topics = [ask.struct("topics")(name=name) for name in names]
        answer = wire.call(20, version, ask.cls(topics=topics, timeoutMs=10_000))
    else:
        answer = wire.call(20, version, ask.cls(topicNames=list(names), timeoutMs=10_000))
    return [row.errorCode for row in answer.responses], answer.throttleTimeMs


def test_new_versions_are_refused_until_the_debt_is_paid(broker, wire):
    set_quota(wire, CLIENT, controller_mutation_rate=1)
    assert create(wire, 7, ("a", BURST_S + 3)) == ([0], 0)  # 3 more than there are
    codes, throttle_ms = create(wire, 7, ("b", 1), ("c", 1))
    assert codes == [EXCEEDED, EXCEEDED] and 2000 < throttle_ms <= 3000
    broker.clock.advance(ms=throttle_ms)
    for call in (lambda: grow(wire, 3, "a", 20), lambda: delete(wire, 6, "a")):
        assert call() == ([0], 0)
        codes, throttle_ms = create(wire, 7, ("d", 1))
        assert codes == [EXCEEDED] and 0 < throttle_ms <= 20_000
        broker.clock.advance(ms=throttle_ms)
    assert create(wire, 7, ("a", 1)) == ([0], 0)


@pytest.mark.parametrize(
    ("call", "strict_from", "last"),
    [
        (lambda wire, version: create(wire, version, ("t", 1)), 6, 7),
        (lambda wire, version: grow(wire, version, "a", 14), 3, 3),
        (lambda wire, version: delete(wire, version, "a"), 5, 6),
    ],
)
def test_old_versions_are_carried_out_and_throttled(broker, wire, call, strict_from, last):
    set_quota(wire, CLIENT, controller_mutation_rate=1)
    assert create(wire, 7, ("a", BURST_S + 2)) == ([0], 0)
    for version in range(strict_from, last + 1):
        codes, throttle_ms = call(wire, version)
        assert codes == [EXCEEDED] and 1000 < throttle_ms <= 2000
        broker.clock.advance(ms=throttle_ms - 900)
        with Wire(broker.bootstrap_servers) as wire:
            codes, throttle_ms = call(wire, strict_from - 1)
        assert codes == [0] and throttle_ms > 900
        break


def test_a_topic_that_is_refused_for_another_reason_costs_nothing(broker, wire):
    set_quota(wire, CLIENT, controller_mutation_rate=1)
    assert create(wire, 7, ("bad name!", 1000), ("x", -5)) == ([17, 37], 0)
    assert create(wire, 7, ("a", 1), ("b", BURST_S)) == ([0, 0], 0)
    assert create(wire, 7, ("c", 1))[0] == [EXCEEDED]


def test_topics_of_metadata_count_and_are_not_created_in_debt(tmp_path):
    """Apache Kafka 4.3.1 was asked: an answer of 3 without a throttle time, and no topic until the
    debt is paid."""

    def ask(name):
        """Returns the answer, when what it asked for was tried."""
        row = request(3).struct("topics")
        body = request(3).cls(topics=[row(name=name)], allowAutoTopicCreation=True)
        answer = wire.call(3, 9, body)
        deadline = time.monotonic() + 30
        while broker.node.serving.administration.auto_creation._waiting:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        return answer.topics[0].errorCode, answer.throttleTimeMs

    settings = {"log.dirs": str(tmp_path), "num.partitions": str(BURST_S + 50)}
    with Broker(settings) as broker, Wire(broker.bootstrap_servers) as wire:
        set_quota(wire, CLIENT, controller_mutation_rate=1)
        assert [ask("first"), ask("first")] == [(UNKNOWN, 0), (0, 0)]
        assert [ask("late"), ask("late")] == [(UNKNOWN, 0), (UNKNOWN, 0)]
        codes, throttle_ms = create(wire, 7, ("b", 1))
        assert codes == [EXCEEDED] and 20_000 < throttle_ms <= 50_000
        broker.clock.advance(ms=throttle_ms)
        assert [ask("late"), ask("late")] == [(UNKNOWN, 0), (0, 0)]


def test_a_bucket_holds_what_all_windows_give():
    bucket = TokenBucket(11, 2.0, 0)
    assert bucket.tokens(0) == bucket.tokens(10**6) == 22
    bucket.take(30, 10**6)
    assert bucket.wait_ms(10**6) == 4000
    assert bucket.wait_ms(10**6 + 4000) == 0
    waits = []
    with pytest.raises(ThrottlingQuotaExceeded):
        charge(bucket, 1, 10**6, True, waits.append)
    charge(bucket, 2, 10**6, False, waits.append)
    assert waits == [4000, 5000]
