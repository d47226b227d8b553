"""Cuts off a follower, or slows it down: it leaves the ISR after replica.lag.time.max.ms, the
leader acknowledges records without it, and the follower joins the ISR again after the fault."""

import statistics
import time

import pytest
from cluster.faults import IDS, LAG_S, Direct, rig
from cluster.network import missing as no_network
from zookeeper_server import missing as no_zookeeper

pytestmark = [pytest.mark.slow, pytest.mark.only_long, pytest.mark.takes(seconds=60)]

LEADER, FOLLOWER = 1, 3
OK = 0
SLOW_KBIT = 200
PADDING_BYTES = 2000


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    reason = no_network() or no_zookeeper()
    if reason:
        pytest.skip(reason)
    # Sessions that outlive a slow link: the ISR alone is to shrink.
    made = rig(tmp_path_factory.mktemp("follower"), zookeeper_session_timeout_ms="30000")
    with made as started:
        yield started


def median_s(direct):
    """Returns the median time in seconds until a record is acknowledged."""
    took = []
    for _ in range(20):
        began = time.monotonic()
        value = b"timed-%d" % time.monotonic_ns()
        assert direct.produce(value, timeout_ms=20_000)[0] == OK
        took.append(time.monotonic() - began)
    return statistics.median(took)


def without(broker_id):
    return [other for other in IDS if other != broker_id]


def report(left_s, back_s, before_s, during_s):
    print(
        f"left after {left_s:.2f} s, back after {back_s:.2f} s;"
        f" {before_s * 1000:.1f} ms for a record before, {during_s * 1000:.1f} ms without it"
    )


def test_a_follower_that_is_cut_off_leaves_the_isr_and_comes_back(three):
    topic = "cut"
    three.create(topic, LEADER)
    sender, direct = three.sender(topic), Direct(three.brokers[LEADER], topic)
    sender.wait_for_more()
    before_s = median_s(direct)
    three.network.cut(str(FOLLOWER), str(LEADER))
    assert not three.network.is_heard(str(FOLLOWER), str(LEADER))
    began = time.monotonic()
    three.wait_for(topic, lambda found: found[1] == without(FOLLOWER), "in the ISR", (LEADER,))
    left_s = time.monotonic() - began
    sender.wait_for_more()
    during_s = median_s(direct)
    three.network.heal()
    back_s = three.wait_for(topic, lambda found: found[1] == list(IDS), "not back", (LEADER,))
    report(left_s, back_s, before_s, during_s)
    assert LAG_S - 1 < left_s < 2 * LAG_S
    assert during_s < max(2 * before_s, 0.05)
    three.finish(topic, sender)


def test_a_slow_follower_leaves_the_isr_and_comes_back(three):
    """The link has 200 kbit/s, less than the records need."""
    topic = "slow"
    three.create(topic, LEADER)
    sender = three.sender(topic, padding_bytes=PADDING_BYTES)
    direct = Direct(three.brokers[LEADER], topic)
    sender.wait_for_more()
    before_s = median_s(direct)
    three.network.slow_down(str(FOLLOWER), SLOW_KBIT)
    began = time.monotonic()
    three.wait_for(topic, lambda found: found[1] == without(FOLLOWER), "in the ISR", (LEADER,))
    left_s = time.monotonic() - began
    sender.wait_for_more()
    during_s = median_s(direct)
    three.network.heal()
    back_s = three.wait_for(topic, lambda found: found[1] == list(IDS), "not back", (LEADER,))
    report(left_s, back_s, before_s, during_s)
    assert left_s > LAG_S - 1
    assert during_s < max(2 * before_s, 0.05)
    three.finish(topic, sender)
