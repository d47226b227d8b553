"""Throttled replicas (KIP-73): what a leader keeps back, and what a follower does not ask for.
Kafka 3.9: ReplicaManager.shouldLeaderThrottle, ReplicaFetcherThread.shouldFollowerThrottle."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fetch_broker import FetchBroker
from native.led import LONG_MS, RECORDS, Led, part_of
from oracle.follower import MS, Follower, forgotten, wanted
from oracle.log_builder import batch

from barnabas.cext.network.quota_sensors import Sensor

LIMIT = 1000  # bytes a second
IN_SYNC, COMING = 2, 4
WINDOWS_MS = 11_000


def throttle() -> Sensor:
    made = Sensor(samples=11, window_ms=1000, is_simple=True)
    made.limit = LIMIT
    return made


# -- the leader


@pytest.fixture
def led(make_broker: Callable[..., Any]) -> Iterator[Led]:
    made = Led(make_broker("os"))
    made.throttle = throttle()
    made.fetches.throttle_followers(made.throttle)
    made.lead(replicas=(1, IN_SYNC, 3, COMING), isr=(1, IN_SYNC, 3))
    made.append(30)
    assert len(made.fetch(COMING, 0).records) > LIMIT
    assert rate_of(made) == 0  # the partition is not throttled yet
    made.table.set_throttled("orders", 0, leader=True, follower=False)
    yield made
    made.fetches.stop()


def rate_of(led: Led) -> float:
    return led.throttle.rate(led.broker.system.monotonic_ns() // MS)


def test_a_replica_outside_the_isr_gets_nothing_above_the_rate(led):
    whole = len(led.fetch(COMING, 0).records)
    assert rate_of(led) == pytest.approx(whole, rel=0.01)
    held_back = led.fetch(COMING, 0)
    assert (held_back.errorCode, len(held_back.records)) == (0, 0)
    assert held_back.highWatermark == 0  # the offsets are as ever
    led.broker.system.move_monotonic(WINDOWS_MS)
    assert len(led.fetch(COMING, 0).records) == whole


def test_the_isr_and_consumers_are_not_throttled(led):
    """But what the ISR gets counts."""
    whole = len(led.fetch(IN_SYNC, 0).records)
    assert rate_of(led) == pytest.approx(whole, rel=0.01)
    assert len(led.fetch(IN_SYNC, 0).records) == whole
    assert not led.fetch(COMING, 0).records
    for replica in (IN_SYNC, 3):
        led.fetch(replica, 30 * RECORDS)
    rate = rate_of(led)
    assert len(led.consume(0).records) == whole
    assert rate_of(led) == pytest.approx(rate, rel=0.01)


def test_a_throttled_fetch_waits_and_gets_its_records_after_the_wait(led):
    led.fetch(COMING, 0)
    waiting = led.fetch(COMING, 0, max_wait_ms=LONG_MS)
    led.append()
    assert waiting.resume() is None
    led.broker.system.move_monotonic(WINDOWS_MS)
    assert part_of(waiting.resume()).records


def test_a_replica_that_is_throttled_no_more_gets_its_records(led):
    led.fetch(COMING, 0)
    assert not led.fetch(COMING, 0).records
    led.throttle.limit = None
    assert led.fetch(COMING, 0).records
    led.throttle.limit = LIMIT
    assert not led.fetch(COMING, 0).records
    led.table.set_throttled("orders", 0, leader=False, follower=True)
    assert led.fetch(COMING, 0).records


# -- the follower


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[FetchBroker]:
    (tmp_path / "leader").mkdir()
    broker = FetchBroker(tmp_path / "leader", {"t": 2})
    yield broker
    broker.close()


@pytest.fixture
def follower(tmp_path: Path, leader: FetchBroker) -> Iterator[Follower]:
    sensor = throttle()
    topics = {"t": (leader.topic_ids["t"], 2)}
    made = Follower(tmp_path / "f", topics, fetches_as=-1, max_bytes=3000, throttle=sensor)
    made.sensor = sensor
    made.table.set_throttled("t", 0, leader=False, follower=True)
    made.now_ns = 1000 * MS
    for index in range(2):
        for _ in range(20):
            leader.append("t", index, batch(b"v" * 1000))
    yield made
    made.close()


def test_a_replica_that_is_behind_is_left_out_of_requests_above_the_rate(follower, leader):
    follower.round(leader)
    first = follower.logs["t", 0].end_offset
    assert 0 < first < 20
    assert follower.sensor.rate(follower.now_ns // MS) > LIMIT
    asked = follower.asked()
    assert [index for _, index in wanted(asked)] == [1]
    assert [index for _, index in forgotten(asked)] == [0]
    follower.fetches.disconnected()
    while follower.logs["t", 1].end_offset < 20:
        follower.round(leader)
    assert follower.logs["t", 0].end_offset == first
    follower.now_ns += WINDOWS_MS * MS
    follower.round(leader)
    assert follower.logs["t", 0].end_offset > first


def test_a_replica_that_has_caught_up_is_not_throttled(follower, leader):
    follower.sensor.limit = None
    while follower.logs["t", 0].end_offset < 20:
        follower.round(leader)
    follower.sensor.limit = LIMIT
    assert follower.sensor.is_exceeded(follower.now_ns // MS)
    leader.append("t", 0, batch(b"v" * 5000))
    follower.round(leader)
    assert follower.logs["t", 0].end_offset == 21


def test_nothing_to_fetch_but_a_throttled_replica_is_no_request(follower, leader):
    follower.fetches.remove("t", 1)
    follower.round(leader)
    assert follower.asked() is None
    assert follower.fetches.delay_ns(follower.now_ns) is None
