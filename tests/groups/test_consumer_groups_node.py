"""Consumer groups (KIP-848) in a whole broker: settings, kill -9, the output of tools."""

import json
import subprocess
import sys
import time
from contextlib import closing

import pytest
from compat.support import Wire, create_topic, produce_batch
from durability.broker_process import BrokerProcess, free_port
from groups import native_broker

from barnabas import Broker
from barnabas.controller.features import SAFE_DOWNGRADE, FeatureUpdate
from barnabas.errors import CoordinatorLoadInProgress
from barnabas.wire import request

PATIENCE_S = 30
HEARTBEAT, DESCRIBE = 68, 69
GROUP_RESOURCE = 32
AT_ONCE = {"group.consumer.assignment.interval.ms": "0"}


def broker_on(path, settings=()):
    base = {"log.dirs": str(path), "listeners": "PLAINTEXT://127.0.0.1:0"}
    return Broker({**base, **dict(settings)})


def ready(address, group="g"):
    with closing(Wire(address)) as wire:
        told = wire.call(10, 0, request(10).cls(key=group))
    assert told.errorCode == 0, told


def beat(address, member="m", epoch=0, group="g", topics=("t",), owned=(), **more):
    """One heartbeat; a first one unless an epoch is given."""
    ask = request(HEARTBEAT)
    fields = {"groupId": group, "memberId": member, "memberEpoch": epoch}
    if epoch == 0:
        fields |= {"rebalanceTimeoutMs": 60_000, "subscribedTopicNames": list(topics)}
        fields["topicPartitions"] = []
    elif owned is not None:
        row = ask.struct("topicPartitions")
        fields["topicPartitions"] = [row(topicId=t, partitions=list(p)) for t, p in owned]
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with closing(Wire(address)) as wire:
            told = wire.call(HEARTBEAT, 1, ask.cls(**fields | more))
        loading = told.errorCode == CoordinatorLoadInProgress.code
        if not loading or time.monotonic() > deadline:
            return told
        time.sleep(0.05)


def owned_by(told):
    return [] if told.assignment is None else [
        (bytes(row.topicId), list(row.partitions)) for row in told.assignment.topicPartitions
    ]  # fmt: skip


def partitions(told):
    return sorted(p for _, rows in owned_by(told) for p in rows)


def described(address, group="g"):
    with closing(Wire(address)) as wire:
        (row,) = wire.call(DESCRIBE, 1, request(DESCRIBE).cls(groupIds=[group])).groups
    return row


def members(broker, group="g"):
    return broker.node.serving.coordinators.groups.groups[group].members


def test_a_group_outlives_kill_9(tmp_path):
    port = free_port()
    with BrokerProcess(tmp_path, port, AT_ONCE) as broker:
        create_topic(broker.address, "t", 4)
        ready(broker.address)
        first = beat(broker.address, "a", instanceId="i")
        assert partitions(first) == [0, 1, 2, 3]
        second = beat(broker.address, "b")
        before = described(broker.address)
        assert (before.groupState, before.groupEpoch) == ("Reconciling", 3)
        broker.kill()
        with BrokerProcess(tmp_path, port, AT_ONCE):
            told = beat(
                broker.address, "a", first.memberEpoch, owned=owned_by(first), instanceId="i"
            )
            assert told.errorCode == 0 and len(partitions(told)) == 2
            after = described(broker.address)
            assert after.groupEpoch == 3 and {m.memberId for m in after.members} == {"a", "b"}
            kept = owned_by(told)
            told = beat(broker.address, "a", first.memberEpoch, owned=kept, instanceId="i")
            assert told.memberEpoch == 3
            told = beat(broker.address, "b", second.memberEpoch)
            assert len(partitions(told)) == 2
            assert described(broker.address).groupState == "Stable"


def test_group_consumer_session_timeout_ms(tmp_path):
    settings = {
        "group.consumer.session.timeout.ms": "2000",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.heartbeat.interval.ms": "500",
        "group.consumer.min.heartbeat.interval.ms": "100",
    }
    with broker_on(tmp_path, settings) as broker:
        create_topic(broker.bootstrap_servers, "t")
        ready(broker.bootstrap_servers)
        assert beat(broker.bootstrap_servers).heartbeatIntervalMs == 500
        broker.node.clock.move(1900)
        assert list(members(broker)) == ["m"]
        broker.node.clock.move(200)
        deadline = time.monotonic() + PATIENCE_S
        while members(broker) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not members(broker)


def alter_group(address, group, **settings):
    ask = request(44)
    configs = [
        ask.struct("resources.configs")(name=name.replace("_", "."), configOperation=0, value=value)
        for name, value in settings.items()
    ]
    resource = ask.struct("resources")(
        resourceType=GROUP_RESOURCE, resourceName=group, configs=configs
    )
    with closing(Wire(address)) as wire:
        return wire.call(44, 1, ask.cls(resources=[resource])).responses[0].errorCode


def test_timeouts_of_one_group(tmp_path):
    with broker_on(tmp_path) as broker:
        address = broker.bootstrap_servers
        create_topic(address, "t")
        ready(address)
        assert beat(address).heartbeatIntervalMs == 5000
        name, interval = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
        assert alter_group(address, "g", **{name: "50000", interval: "7000"}) == 0
        assert beat(address, epoch=2).heartbeatIntervalMs == 7000
        assert alter_group(address, "g", **{"consumer.assignment.interval.ms": "0"}) == 0
        assert beat(address, "second").memberEpoch == 3  # a second ago would have been too early
        assert beat(address, "second", epoch=-1, owned=None).errorCode == 0
        broker.node.clock.move(49_000)
        assert list(members(broker)) == ["m"]
        assert beat(address, "other", group="h").heartbeatIntervalMs == 5000
        broker.node.clock.move(2000)
        deadline = time.monotonic() + PATIENCE_S
        while members(broker) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not members(broker) and members(broker, "h")


@pytest.mark.parametrize(
    ("bound", "name", "value"),
    [
        ("group.consumer.min.session.timeout.ms=46000", "consumer.session.timeout.ms", "45500"),
        ("group.consumer.max.session.timeout.ms=46000", "consumer.session.timeout.ms", "46500"),
        ("group.consumer.min.heartbeat.interval.ms=6000", "consumer.heartbeat.interval.ms", "5500"),
        ("group.consumer.max.heartbeat.interval.ms=6000", "consumer.heartbeat.interval.ms", "6500"),
        ("group.consumer.min.assignment.interval.ms=900", "consumer.assignment.interval.ms", "800"),
        ("group.consumer.max.assignment.interval.ms=900", "consumer.assignment.interval.ms", "950"),
    ],
)
def test_bounds_of_what_a_group_may_ask_for(tmp_path, bound, name, value):
    setting, _, limit = bound.partition("=")
    of_broker = {f"group.{name}": limit, setting: limit}
    with broker_on(tmp_path, of_broker) as broker:
        ready(broker.bootstrap_servers)
        assert alter_group(broker.bootstrap_servers, "g", **{name: value}) == 40
        assert alter_group(broker.bootstrap_servers, "g", **{name: limit}) == 0


@pytest.mark.parametrize(("interval_ms", "epoch"), [("0", 3), ("15000", 2)])
def test_group_consumer_assignment_interval_ms(tmp_path, interval_ms, epoch):
    with broker_on(tmp_path, {"group.consumer.assignment.interval.ms": interval_ms}) as broker:
        address = broker.bootstrap_servers
        create_topic(address, "t", 2)
        ready(address)
        beat(address, "a")
        assert beat(address, "b").memberEpoch == epoch
        broker.node.clock.move(16_000)
        deadline = time.monotonic() + PATIENCE_S
        while described(address).assignmentEpoch < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert described(address).assignmentEpoch == 3


def test_group_consumer_max_size(tmp_path):
    with broker_on(tmp_path, {"group.consumer.max.size": "1"}) as broker:
        create_topic(broker.bootstrap_servers, "t")
        ready(broker.bootstrap_servers)
        assert beat(broker.bootstrap_servers, "a").errorCode == 0
        assert beat(broker.bootstrap_servers, "b").errorCode == 81


def test_group_consumer_assignors(tmp_path):
    with broker_on(tmp_path, {"group.consumer.assignors": "range"}) as broker:
        address = broker.bootstrap_servers
        create_topic(address, "t", 3)
        ready(address)
        assert beat(address, "a", serverAssignor="uniform").errorCode == 112
        assert beat(address, "a", serverAssignor="range").errorCode == 0
        assert described(address).assignorName == "range"


def test_group_consumer_migration_policy(tmp_path):
    with broker_on(tmp_path, {"group.consumer.migration.policy": "disabled"}) as broker:
        address = broker.bootstrap_servers
        create_topic(address, "t")
        ready(address)
        ask = request(11)
        subscription = b"\0\0\0\0\0\1\0\1t\0\0\0\0"
        protocol = ask.struct("protocols")(name="range", metadata=subscription)
        join = ask.cls(
            groupId="g",
            sessionTimeoutMs=10_000,
            rebalanceTimeoutMs=10_000,
            memberId="",
            protocolType="consumer",
            protocols=[protocol],
        )
        with closing(Wire(address)) as wire:
            assert wire.call(11, 3, join).errorCode == 0
        assert beat(address).errorCode == 69


def test_group_coordinator_rebalance_protocols(tmp_path):
    with broker_on(tmp_path, {"group.coordinator.rebalance.protocols": "classic"}) as broker:
        ready(broker.bootstrap_servers)
        assert beat(broker.bootstrap_servers).errorCode == 35
        assert described(broker.bootstrap_servers).errorCode == 35


def test_group_version_is_offered_and_may_be_switched_off(tmp_path):
    with broker_on(tmp_path) as broker:
        address = broker.bootstrap_servers
        create_topic(address, "t")
        ready(address)
        ask = request(18).cls(clientSoftwareName="t", clientSoftwareVersion="1")
        with closing(Wire(address)) as wire:
            told = wire.call(18, 4, ask)
        assert [
            (row.minVersion, row.maxVersion)
            for row in told.supportedFeatures
            if row.name == "group.version"
        ] == [(0, 1)]
        assert beat(address).errorCode == 0
        update = FeatureUpdate("group.version", 0, SAFE_DOWNGRADE)
        broker.node.serving.administration.features.update([update])
        assert beat(address, epoch=1).errorCode == 35


def test_topics_that_come_and_grow_and_a_regular_expression(tmp_path):
    with broker_on(tmp_path) as broker:
        address = broker.bootstrap_servers
        create_topic(address, "orders-a", 2)
        ready(address)
        regex = {"subscribedTopicNames": None, "subscribedTopicRegex": "orders-.*"}
        told = beat(address, **regex)
        epoch, owned = told.memberEpoch, []

        def until(count):
            nonlocal epoch, owned
            deadline = time.monotonic() + PATIENCE_S
            while sum(len(p) for _, p in owned) != count and time.monotonic() < deadline:
                told = beat(address, epoch=epoch, owned=owned)
                assert told.errorCode == 0, told
                epoch = told.memberEpoch
                owned = owned if told.assignment is None else owned_by(told)
                time.sleep(0.02)
            assert sum(len(p) for _, p in owned) == count

        until(2)
        create_topic(address, "orders-b", 3)
        create_topic(address, "others", 3)
        until(5)
        assert beat(address, "bad", **regex | {"subscribedTopicRegex": "(a"}).errorCode == 128


def test_what_the_command_shows_of_a_consumer_group(tmp_path):
    with broker_on(tmp_path) as broker:
        address = broker.bootstrap_servers
        create_topic(address, "t", 2)
        produce_batch(address, "t", [b"1", b"2"])
        ready(address)
        told = beat(address, "a", rackId="r1")

        def command(*words):
            done = subprocess.run(
                [sys.executable, "-m", "barnabas", "groups", *words, "--bootstrap-server", address],
                capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            return done.stdout if "--json" in words else done.stdout + done.stderr

        (listed,) = json.loads(command("list", "--json"))
        assert listed == {
            "group": "g",
            "state": "Stable",
            "type": "consumer",
            "protocol": "consumer",
        }
        (group,) = json.loads(command("describe", "g", "--json"))
        assert (group["type"], group["state"], group["epoch"]) == ("consumer", "Stable", 2)
        assert group["assignor"] == "uniform" and group["target_epoch"] == 2
        (member,) = group["members"]
        assert member["member"] == "a" and member["epoch"] == told.memberEpoch
        assert member["assignment"] == member["target"] == {"t": [0, 1]}
        shown = command("describe", "g")
        assert "consumer" in shown and "epoch 2" in shown


def test_commits_of_a_member_by_its_epoch_need_no_python_until_the_epoch_changes(tmp_path):
    """A member of KIP-848 commits in its epoch, from version 9 of OffsetCommit on."""
    with broker_on(tmp_path, AT_ONCE) as broker:
        address = broker.bootstrap_servers
        create_topic(address, "t", 2)
        ready(address)
        epoch = beat(address).memberEpoch
        native = native_broker.native_of(broker)

        def commit(offset, at, version=9):
            with closing(Wire(address)) as wire:
                rows = [(0, offset, "", -1)]
                return native_broker.commit(
                    wire, rows, version=version, generation=at, member="m"
                ), native.served

        assert commit(1, epoch) == ([0], 1)
        assert commit(2, epoch) == ([0], 2)
        assert commit(3, epoch, version=8) == ([35], 2)
        assert commit(3, epoch + 1) == ([113], 2)
        assert beat(address, epoch=epoch).errorCode == 0
        assert commit(3, epoch) == ([0], 3)
        assert beat(address, "other").memberEpoch == epoch + 1
        told = beat(address, epoch=epoch, owned=())
        while told.memberEpoch == epoch:
            told = beat(address, epoch=epoch, owned=())
        assert commit(4, told.memberEpoch) == ([0], 4)
        assert commit(5, told.memberEpoch) == ([0], 5)
        assert beat(address, epoch=-1).errorCode == 0
        assert commit(6, told.memberEpoch) == ([25], 5)
        assert native_broker.fetched(broker)[0][0] == 5
