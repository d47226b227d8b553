"""Consumers that read from the replica in their rack (KIP-392). Kafka 3.9: ReplicaManager and
RackAwareReplicaSelector."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from native.fetch_broker import decoded
from native.led import EPOCH, LONG_MS, RECORDS, Led, part_of

NOT_LEADER, FENCED, UNKNOWN_EPOCH = 6, 74, 75
HERE = -1


@pytest.fixture
def led(make_broker: Callable[..., Any]) -> Iterator[Led]:
    made = Led(make_broker("os"), selects_by_rack=True)
    yield made
    made.fetches.stop()


@pytest.fixture
def leader(led: Led) -> Led:
    """Leads with 2 and 3, which have all three batches and are in rack b."""
    led.lead()
    led.table.set_live_brokers({1: 1, 2: 1, 3: 1}, {1: "a", 2: "b", 3: "b"})
    led.append(3)
    for replica in (2, 3, 2):
        led.fetch(replica, 3 * RECORDS)
    assert led.high_watermark == 3 * RECORDS
    return led


@pytest.mark.parametrize("version", [11, 12, 13, 17])
def test_the_leader_names_the_replica_in_the_rack_and_sends_no_records(leader: Led, version: int):
    part = leader.consume(0, version=version, rack="b")
    assert (part.errorCode, part.preferredReadReplica, part.records) == (0, 2, b"")
    assert (part.highWatermark, part.logStartOffset) == (3 * RECORDS, 0)


@pytest.mark.parametrize("rack", ["a", "", "c", "bb"])
def test_the_leader_sends_records_to_its_own_rack_and_where_there_is_no_replica(
    leader: Led, rack: str
):
    part = leader.consume(0, rack=rack)
    assert part.preferredReadReplica == HERE and len(part.records) > 0


def test_the_answer_does_not_wait(leader: Led):
    part = leader.consume(3 * RECORDS, rack="b", max_wait_ms=LONG_MS, min_bytes=1 << 20)
    assert part.preferredReadReplica == 2


def test_without_the_selector_nobody_is_preferred(make_broker: Callable[..., Any]):
    led = Led(make_broker("os"))
    led.lead()
    led.table.set_live_brokers({1: 1, 2: 1, 3: 1}, {1: "a", 2: "b", 3: "b"})
    led.append()
    led.fetch(2, RECORDS)
    led.fetch(3, RECORDS)
    part = led.consume(0, rack="b")
    assert part.preferredReadReplica == HERE and len(part.records) > 0
    led.fetches.stop()


def test_the_replica_with_the_most_records_is_preferred(leader: Led):
    leader.append()
    leader.fetch(3, 4 * RECORDS)
    assert leader.consume(0, rack="b").preferredReadReplica == 3
    leader.fetch(2, 4 * RECORDS)
    leader.fetch(2, 4 * RECORDS)
    assert leader.consume(0, rack="b").preferredReadReplica == 2  # it was caught up last


def test_a_replica_must_have_the_offset(leader: Led):
    leader.append()
    part = leader.consume(3 * RECORDS + 1, rack="b")
    assert part.preferredReadReplica == HERE
    leader.fetch(2, 4 * RECORDS, log_start=RECORDS)
    leader.fetch(3, 4 * RECORDS)
    assert leader.consume(4 * RECORDS, rack="b").preferredReadReplica == 3
    leader.fetch(2, 4 * RECORDS, log_start=RECORDS)
    assert leader.consume(4 * RECORDS, rack="b").preferredReadReplica == 2
    assert leader.consume(0, rack="b").preferredReadReplica == 3  # 2 has deleted it


def test_a_replica_must_be_in_sync_and_live(leader: Led):
    leader.table.set_isr("orders", 0, (1, 3), False)
    assert leader.consume(0, rack="b").preferredReadReplica == 3
    leader.table.set_live_brokers({1: 1, 2: 1}, {1: "a", 2: "b"})
    assert leader.consume(0, rack="b").preferredReadReplica == HERE


def test_a_replica_fetch_is_never_sent_elsewhere(leader: Led):
    part = leader.fetch(2, 0, rack="b")
    assert part.preferredReadReplica == HERE and len(part.records) > 0


def test_a_session_tells_the_preferred_replica_each_time(leader: Led):
    leader.table.set_live_brokers({1: 1, 2: 1, 3: 1}, {1: "a"})
    first = decoded(leader.fetches.handle_frame(leader.frame(-1, 9, rack="b", session=(0, 0))), 17)
    assert first.responses[0].partitions[0].preferredReadReplica == HERE
    leader.table.set_live_brokers({1: 1, 2: 1, 3: 1}, {1: "a", 2: "b"})
    for epoch in (1, 2):
        frame = leader.frame(-1, 9, rack="b", session=(first.sessionId, epoch))
        again = decoded(leader.fetches.handle_frame(frame), 17)
        assert again.responses[0].partitions[0].preferredReadReplica == 2


# -- a follower


@pytest.fixture
def follower(led: Led) -> Led:
    """Follows broker 2, with two batches below the high watermark and one above."""
    led.lead()
    led.append(3)
    for replica in (2, 3):
        led.fetch(replica, 2 * RECORDS)
    led.table.set_leader(
        "orders", 0, leader_id=2, leader_epoch=EPOCH, replicas=(1, 2, 3), isr=(1, 2, 3)
    )
    return led


@pytest.mark.parametrize("version", [11, 12, 17])
def test_a_follower_serves_a_consumer_up_to_its_high_watermark(follower: Led, version: int):
    part = follower.consume(0, version=version)
    assert (part.errorCode, part.preferredReadReplica) == (0, HERE)
    assert part.highWatermark == 2 * RECORDS and len(part.records) > 0
    for offset in (2 * RECORDS, 3 * RECORDS):
        part = follower.consume(offset, version=version)
        assert (part.errorCode, part.records) == (0, b"")
    part = follower.consume(3 * RECORDS + 1, version=version)
    assert part.errorCode == 1  # OFFSET_OUT_OF_RANGE


def test_a_follower_serves_no_older_consumer_and_no_other_replica(follower: Led):
    assert follower.consume(0, version=10).errorCode == NOT_LEADER
    assert follower.fetch(3, 0, epoch=-1).errorCode == NOT_LEADER


def test_a_follower_checks_the_leader_epoch(follower: Led):
    assert follower.fetch(-1, 0, epoch=EPOCH - 1).errorCode == FENCED
    assert follower.fetch(-1, 0, epoch=EPOCH + 1).errorCode == UNKNOWN_EPOCH
    assert follower.fetch(-1, 0, epoch=EPOCH).errorCode == 0


def test_a_replica_must_have_the_listener_of_the_consumer(leader: Led):
    """The requests of these tests come by the first listener; Kafka:
    getPartitionReplicaEndpoints."""
    epochs, racks = {1: 1, 2: 1, 3: 1}, {1: "a", 2: "b", 3: "b"}
    assert leader.consume(0, rack="b").preferredReadReplica == 2
    leader.table.set_live_brokers(epochs, racks, {1: 0b11, 2: 0b10, 3: 0b11})
    assert leader.consume(0, rack="b").preferredReadReplica == 3
    leader.table.set_live_brokers(epochs, racks, {1: 0b11, 2: 0b10, 3: 0b10})
    part = leader.consume(0, rack="b")
    assert part.preferredReadReplica == HERE and len(part.records) > 0
    leader.table.set_live_brokers(epochs, racks)
    assert leader.consume(0, rack="b").preferredReadReplica == 2


# -- the high watermark of the followers


def test_a_follower_gets_a_higher_high_watermark_at_once(leader: Led):
    leader.append()
    end = 4 * RECORDS
    waiting = leader.fetch(2, end, max_wait_ms=LONG_MS)
    assert waiting.resume() is None
    news = leader.fetch(3, end, max_wait_ms=LONG_MS)  # which moves it
    assert (news.highWatermark, news.records) == (end, b"")
    part = part_of(waiting.resume())
    assert (part.highWatermark, part.records) == (end, b"")
    for replica in (2, 3):
        waiting = leader.fetch(replica, end, max_wait_ms=LONG_MS)
        assert waiting.resume() is None  # both know it


def test_without_the_selector_a_follower_waits_for_records(make_broker: Callable[..., Any]):
    led = Led(make_broker("os"))
    led.lead()
    led.append()
    waiting = led.fetch(2, RECORDS, max_wait_ms=LONG_MS)
    assert led.fetch(3, RECORDS, max_wait_ms=LONG_MS).resume() is None
    assert led.high_watermark == RECORDS
    assert waiting.resume() is None
    led.fetches.stop()
