"""Pauses or cuts off the leader of a partition: another broker becomes the leader, the former one
acknowledges no record that could be lost, and its tail is truncated by leader epoch.

Each test proves its fault, waits for acknowledged records while the fault lasts, and then finds
every acknowledged record in the files of each replica."""

import threading
import time

import pytest
from cluster.faults import IDS, SESSION_S, ZOOKEEPER, Direct, rig
from cluster.network import missing as no_network
from waiting import soon
from zookeeper_server import missing as no_zookeeper

pytestmark = [pytest.mark.slow, pytest.mark.takes(seconds=60)]

ELECTED_S = SESSION_S + 12  # on a machine that runs other tests
OK, NOT_ENOUGH_REPLICAS = 0, 19


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    reason = no_network() or no_zookeeper()
    if reason:
        pytest.skip(reason)
    with rig(tmp_path_factory.mktemp("leader")) as made:
        yield made


def others(leader):
    return tuple(broker_id for broker_id in IDS if broker_id != leader)


def test_a_leader_paused_past_its_session_is_fenced_and_its_tail_truncated(three):
    """SIGSTOP and SIGCONT; KIP-101, KIP-279."""
    topic, leader = "paused", 1
    three.create(topic, leader)
    sender = three.sender(topic)
    sender.wait_for_more()
    stopped = three.brokers[leader]
    direct, waiting = Direct(stopped, topic), Direct(stopped, topic)
    followers = [three.brokers[broker_id] for broker_id in others(leader)]
    for follower in followers:
        follower.pause()
    # The first answers the fetches that wait at the leader; the followers cannot ask for the rest.
    tail = [b"tail-%d" % number for number in range(3)]
    assert [direct.produce(value, acks=1)[0] for value in tail] == [OK] * 3
    stopped.pause()
    began = time.monotonic()
    for follower in followers:
        follower.resume()
    told: list[int] = []
    asks = threading.Thread(target=lambda: told.append(waiting.produce(b"to a zombie")[0]))
    asks.start()  # waits in the socket of the paused process, which reads it as a leader
    three.wait_for(topic, lambda found: found[0] not in (leader, -1), "no leader", others(leader))
    elected_s = time.monotonic() - began
    sender.wait_for_more()
    assert told == []
    stopped.resume()
    asks.join()
    assert told and told[0] != OK, "a zombie acknowledged a record"
    batches = three.finish(topic, sender)
    print(f"elected after {elected_s:.2f} s, {len(sender.acknowledged)} records, {batches} batches")
    assert elected_s < ELECTED_S
    said = f"{topic}-0: truncated from offset"
    soon(lambda: any(said in line for line in list(stopped.lines)), "it says nothing")
    last = tail[-1]
    for broker in three.brokers.values():
        assert all(last not in batch for _offset, _epoch, batch in broker.batches(topic, 0))


def test_an_isolated_leader_is_replaced_and_comes_back(three):
    topic, leader = "isolated", 2
    three.create(topic, leader)
    sender = three.sender(topic)
    sender.wait_for_more()
    before = len(three.brokers[leader].lines)
    three.network.isolate(str(leader))
    began = time.monotonic()
    assert not three.network.is_heard(str(leader), "1")
    assert not three.network.is_heard("1", str(leader))
    three.wait_for(topic, lambda found: found[0] not in (leader, -1), "no leader", others(leader))
    elected_s = time.monotonic() - began
    sender.wait_for_more()
    three.network.heal()
    batches = three.finish(topic, sender)
    print(f"elected after {elected_s:.2f} s, {len(sender.acknowledged)} records, {batches} batches")
    assert elected_s < ELECTED_S
    lines = three.brokers[leader].lines
    soon(lambda: any("session in ZooKeeper" in row for row in lines[before:]), "it says nothing")


@pytest.mark.only_long
@pytest.mark.parametrize("direction", ["to the followers", "from the followers"])
def test_a_leader_cut_off_one_way_acknowledges_nothing_below_min_isr(three, direction):
    """The session continues, so the leader stays, alone in the ISR, and the records wait."""
    topic, leader = f"cut-{direction.replace(' ', '-')}", 3
    three.create(topic, leader)
    three.create(f"{topic}-other", 1, replicas=2)
    sender, other = three.sender(topic), three.sender(f"{topic}-other")
    sender.wait_for_more()
    for follower in others(leader):
        ends = (str(leader), str(follower))
        sent, heard = ends if direction == "to the followers" else ends[::-1]
        three.network.cut(sent, heard)
        assert not three.network.is_heard(sent, heard)
        assert three.network.is_heard(heard, sent)
    three.wait_for(topic, lambda found: found[1] == [leader], "the ISR does not shrink", (leader,))
    count = len(sender.acknowledged)
    direct = Direct(three.brokers[leader], topic)
    for _ in range(5):
        assert direct.produce(b"below min.insync.replicas")[0] == NOT_ENOUGH_REPLICAS
    other.wait_for_more()
    assert len(sender.acknowledged) == count
    three.network.heal()
    sender.wait_for_more()
    three.finish(topic, sender)
    other.stop()


@pytest.mark.only_long
@pytest.mark.parametrize("both_ways", [False, True])
def test_a_leader_without_zookeeper_does_not_acknowledge_beside_its_successor(three, both_ways):
    """The leader reaches clients and brokers, but not ZooKeeper."""
    topic, leader = f"alone-{both_ways}", 2
    three.create(topic, leader)
    sender = three.sender(topic)
    sender.wait_for_more()
    three.network.cut(str(leader), ZOOKEEPER)
    assert not three.network.is_heard(str(leader), ZOOKEEPER)
    if both_ways:
        three.network.cut(ZOOKEEPER, str(leader))
        assert not three.network.is_heard(ZOOKEEPER, str(leader))
    three.wait_for(topic, lambda found: found[0] not in (leader, -1), "no leader", others(leader))
    direct = Direct(three.brokers[leader], topic)
    for _ in range(5):
        assert direct.produce(b"to a former leader")[0] != OK
    sender.wait_for_more()
    three.network.heal()
    three.finish(topic, sender)
