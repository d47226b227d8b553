"""Pauses or kills ZooKeeper, or ends the session of a broker: writes continue with the known
leaders, no leader is elected from outside the ISR, and every broker joins the cluster again."""

import time

import pytest
from cluster.faults import IDS, SESSION_S, rig
from cluster.network import missing as no_network
from long_form import pick
from waiting import soon
from zookeeper_server import missing as no_zookeeper

pytestmark = [pytest.mark.slow, pytest.mark.takes(seconds=60)]

PAUSE_S = pick(short=2 * SESSION_S, long=20.0)


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    reason = no_network() or no_zookeeper()
    if reason:
        pytest.skip(reason)
    with rig(tmp_path_factory.mktemp("zookeeper")) as made:
        yield made


def sessions(zookeeper):
    """Returns the session of each registered broker, and the id of the controller."""
    found = {}
    for session_id, paths in zookeeper.sessions().items():
        for path in paths:
            if "/brokers/ids/" in path:
                found[int(path.rpartition("/")[2])] = session_id
    return found


def all_registered(three):
    return sorted(sessions(three.zookeeper)) == list(IDS)


def test_writes_go_on_while_zookeeper_is_paused(three):
    """After the pause all sessions may have expired at once, or continue."""
    topic, leader = "paused", 2
    three.create(topic, leader)
    sender = three.sender(topic)
    sender.wait_for_more()
    began = time.monotonic()
    with three.zookeeper.paused():
        with pytest.raises(TimeoutError):
            three.zookeeper.four_letters("ruok", timeout_s=0.5)
        while time.monotonic() - began < PAUSE_S:
            sender.wait_for_more(100)
            assert three.state(topic, leader) == (leader, list(IDS))
    soon(lambda: all_registered(three), "a broker is not registered again")
    sender.wait_for_more()
    three.finish(topic, sender)


@pytest.mark.parametrize("of", [pytest.param("leader", marks=pytest.mark.only_long), "follower"])
def test_a_broker_whose_session_expires_comes_back_into_the_isr(three, of):
    """The follower sends the epoch of its new registration to its leader, which refuses an earlier
    one."""
    topic, leader = f"expired-{of}", 1
    three.create(topic, leader)
    sender = three.sender(topic)
    sender.wait_for_more()
    broker_id = leader if of == "leader" else 3
    old = sessions(three.zookeeper)[broker_id]
    three.zookeeper.expire(old)
    soon(
        lambda: sessions(three.zookeeper).get(broker_id, old) != old,
        "the broker is not registered again",
    )
    lines = three.brokers[broker_id].lines
    soon(lambda: any("has expired" in line for line in list(lines)), "the expiry is not logged")
    sender.wait_for_more()
    three.finish(topic, sender)


@pytest.mark.only_long
def test_writes_go_on_while_zookeeper_is_down(three):
    """ZooKeeper is killed (SIGKILL), and started with the same data before any session ends."""
    topic, leader = "killed", 3
    three.create(topic, leader)
    sender = three.sender(topic)
    sender.wait_for_more()
    three.zookeeper.kill()
    with pytest.raises(ConnectionRefusedError):
        three.zookeeper.four_letters("ruok")
    sender.wait_for_more(1000)
    assert three.state(topic, leader) == (leader, list(IDS))
    three.zookeeper.start()
    soon(lambda: all_registered(three), "a broker is not registered")
    sender.wait_for_more()
    three.finish(topic, sender)
