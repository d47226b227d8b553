"""The settings of streams groups, of the broker and of a group: each value makes a difference."""

import time
from contextlib import contextmanager

import pytest
from compat.support import create_topic
from share.share_member import configure
from streams.streams_wire import HEARTBEAT, StreamsMember

from barnabas import Broker
from barnabas.wire import request

PATIENCE_S = 30
INVALID_CONFIG, GROUP_MAX_SIZE_REACHED = 40, 81
ASSIGNMENT_DELAYED, MISSING_CLIENT_TAGS = 5, 6
AT_ONCE = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
}


@contextmanager
def broker_on(path, settings=()):
    base = {"log.dirs": str(path), "listeners": "PLAINTEXT://127.0.0.1:0"}
    with Broker({**base, **AT_ONCE, **dict(settings)}) as broker:
        for name in ("t", "log"):
            create_topic(broker.bootstrap_servers, name, 4)
        yield broker


def members_of(broker, *names, group="g", **more):
    fields = {"changelogs": ["log"], **more}
    address = broker.bootstrap_servers
    return [StreamsMember(address, group, "t", member=name, **fields) for name in names]


def settle(*members):
    for _ in range(5):
        for member in members:
            assert member.beat().errorCode == 0


def is_gone(members):
    deadline = time.monotonic() + PATIENCE_S
    while members and time.monotonic() < deadline:
        time.sleep(0.01)
    return not members


def test_timeouts(tmp_path):
    settings = {
        "group.streams.session.timeout.ms": "46000",
        "group.streams.heartbeat.interval.ms": "6000",
    }
    with broker_on(tmp_path, settings) as broker:
        of_group = {"streams.session.timeout.ms": "59000", "streams.heartbeat.interval.ms": "7000"}
        assert configure(broker.bootstrap_servers, "own", **of_group) == 0
        groups = broker.node.serving.coordinators.groups.groups
        for group, heartbeat_ms in (("g", 6000), ("own", 7000)):
            (member,) = members_of(broker, "a", group=group)
            assert member.beat().heartbeatIntervalMs == heartbeat_ms
        broker.node.clock.move(45_900)
        assert groups["g"].members
        broker.node.clock.move(200)
        assert is_gone(groups["g"].members) and groups["own"].members
        broker.node.clock.move(13_000)
        assert is_gone(groups["own"].members)


def test_how_long_the_first_assignment_waits(tmp_path):
    with broker_on(tmp_path, {"group.streams.initial.rebalance.delay.ms": "30000"}) as broker:
        own = {"streams.initial.rebalance.delay.ms": "0"}
        assert configure(broker.bootstrap_servers, "own", **own) == 0
        (waits,), (other,) = (members_of(broker, "a", group=name) for name in ("g", "own"))
        waits.beat()
        other.beat()
        assert ASSIGNMENT_DELAYED in waits.statuses and not waits.active
        assert other.active == [0, 1, 2, 3]
        broker.node.clock.move(30_000)
        assert waits.join().active == [0, 1, 2, 3]


def test_how_far_apart_assignments_are(tmp_path):
    with broker_on(tmp_path, {"group.streams.assignment.interval.ms": "15000"}) as broker:
        own = {"streams.assignment.interval.ms": "0"}
        assert configure(broker.bootstrap_servers, "own", **own) == 0
        for group in ("g", "own"):
            one, two = members_of(broker, "a", "b", group=group)
            settle(one)
            two.beat()
            assert (ASSIGNMENT_DELAYED in two.statuses) == (group == "g")
            if group == "g":
                broker.node.clock.move(15_000)
            settle(one, two)
            assert (one.active, two.active) == ([0, 1], [2, 3])


def test_how_many_standbys_there_are(tmp_path):
    with broker_on(tmp_path, {"group.streams.num.standby.replicas": "1"}) as broker:
        own = {"streams.num.standby.replicas": "0"}
        assert configure(broker.bootstrap_servers, "own", **own) == 0
        for group, standby in (("g", [2, 3]), ("own", [])):
            one, two = members_of(broker, "a", "b", group=group)
            settle(one, two)
            assert (one.active, one.standby) == ([0, 1], standby)


def in_zone(name):
    return [request(HEARTBEAT).struct("clientTags")(key="zone", value=name)]


@pytest.mark.parametrize("of", ["broker", "group"])
def test_where_standbys_are(tmp_path, of):
    settings = {"group.streams.num.standby.replicas": "1"}
    if of == "broker":
        settings["group.streams.rack.aware.assignment.tags"] = "zone"
    with broker_on(tmp_path, settings) as broker:
        own = {"streams.rack.aware.assignment.tags": "zone"}
        if of == "group":
            assert configure(broker.bootstrap_servers, "g", **own) == 0
        zones = {"a": "1", "b": "1", "c": "2"}
        made = {n: members_of(broker, n, clientTags=in_zone(z))[0] for n, z in zones.items()}
        settle(*made.values())
        held = {}
        for name, member in made.items():
            for partition in (*member.active, *member.standby):
                held.setdefault(partition, set()).add(zones[name])
        assert all(found == {"1", "2"} for found in held.values()) and len(held) == 4
        (without,) = members_of(broker, "d")
        without.beat()
        assert MISSING_CLIENT_TAGS in without.statuses


def test_what_members_report_about_their_tasks(tmp_path):
    with broker_on(tmp_path) as broker:
        own = {
            "streams.task.offset.interval.ms": "16000",
            "streams.acceptable.recovery.lag": "7",
        }
        assert configure(broker.bootstrap_servers, "g", **own) == 0
        (member,) = members_of(broker, "a")
        told = member.beat()
        assert (told.taskOffsetIntervalMs, told.acceptableRecoveryLag) == (16_000, 7)


def test_how_many_members_a_group_has(tmp_path):
    with broker_on(tmp_path, {"group.streams.max.size": "1"}) as broker:
        one, two = members_of(broker, "a", "b")
        assert one.beat().errorCode == 0
        assert two.beat().errorCode == GROUP_MAX_SIZE_REACHED
        one.leave()
        assert two.beat().errorCode == 0


def test_bounds_of_what_a_group_may_ask_for(tmp_path):
    bounds = {
        "group.streams.min.session.timeout.ms": "45500",
        "group.streams.max.session.timeout.ms": "59000",
        "group.streams.min.heartbeat.interval.ms": "5500",
        "group.streams.max.heartbeat.interval.ms": "14000",
        "group.streams.min.assignment.interval.ms": "900",
        "group.streams.max.assignment.interval.ms": "14000",
        "group.streams.max.standby.replicas": "3",
    }
    within = {
        "group.streams.session.timeout.ms": "46000",
        "group.streams.heartbeat.interval.ms": "6000",
        "group.streams.assignment.interval.ms": "1000",
    }
    with broker_on(tmp_path, {**bounds, **within}) as broker:
        for bound, limit in bounds.items():
            name = "streams." + bound.split(".", 3)[3].replace("standby", "num.standby")
            beyond = int(limit) + (1 if ".max." in bound else -1)
            address = broker.bootstrap_servers
            assert configure(address, "g", **{name: str(beyond)}) == INVALID_CONFIG, bound
            assert configure(address, "g", **{name: limit}) == 0, bound
