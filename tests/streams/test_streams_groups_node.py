"""Streams groups (KIP-1071) in a whole broker: kill -9, internal topics, settings, other groups."""

import time
from contextlib import closing

import pytest
from compat.support import Wire, create_topic
from durability.broker_process import BrokerProcess, free_port
from streams.streams_wire import DESCRIBE, HEARTBEAT, StreamsMember, described, topology

from barnabas import Broker
from barnabas.controller.features import SAFE_DOWNGRADE, FeatureUpdate
from barnabas.wire import request

PATIENCE_S = 30
OF_GROUPS = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
}
MISSING_INTERNAL_TOPICS = 3


def broker_on(path, settings=()):
    base = {"log.dirs": str(path), "listeners": "PLAINTEXT://127.0.0.1:0"}
    return Broker({**base, **OF_GROUPS, **dict(settings)})


def call(address, key, version, **fields):
    with closing(Wire(address)) as wire:
        return wire.call(key, version, request(key).cls(**fields))


def test_a_group_outlives_kill_9(tmp_path):
    port = free_port()
    with BrokerProcess(tmp_path, port, OF_GROUPS) as broker:
        create_topic(broker.address, "t", 4)
        first = StreamsMember(broker.address, "g", "t", member="a", changelogs=["log"]).join()
        second = StreamsMember(broker.address, "g", "t", member="b", changelogs=["log"])
        second.beat()
        (before,) = described(broker.address, "g")
        assert before.groupState == "Reconciling"
        broker.kill()
        with BrokerProcess(tmp_path, port, OF_GROUPS):
            assert first.beat().errorCode == 0 and first.active == [0, 1]
            (after,) = described(broker.address, "g")
            assert after.groupEpoch == before.groupEpoch and after.topology == before.topology
            assert {m.memberId for m in after.members} == {"a", "b"}
            first.beat()
            second.beat()
            assert second.active == [2, 3] and second.epoch == first.epoch
            assert described(broker.address, "g")[0].groupState == "Stable"


def test_the_broker_creates_the_internal_topics(tmp_path):
    with broker_on(tmp_path, {"auto.create.topics.enable": "false"}) as broker:
        address = broker.bootstrap_servers
        create_topic(address, "t", 3)
        member = StreamsMember(address, "g", "t", changelogs=["g-store-changelog"])
        member.beat()
        assert member.statuses == {
            MISSING_INTERNAL_TOPICS: "Internal topics are missing: g-store-changelog"
        }
        member.join()
        assert member.active == [0, 1, 2] and not member.statuses
        topic = broker.node.opened.reader.state.topic("g-store-changelog")
        assert len(topic.partitions) == 3


def test_a_topic_that_cannot_be_created_is_named_with_the_reason(tmp_path):
    with broker_on(tmp_path) as broker:
        address = broker.bootstrap_servers
        create_topic(address, "t", 3)
        create_topic(address, "g_log", 3)  # its name collides
        member = StreamsMember(address, "g", "t", changelogs=["g.log"])
        deadline = time.monotonic() + PATIENCE_S
        while "Creation failed: g.log (" not in member.statuses.get(MISSING_INTERNAL_TOPICS, ""):
            assert time.monotonic() < deadline, member.statuses
            assert member.beat().errorCode == 0
            time.sleep(0.02)
        assert member.active == []


@pytest.mark.parametrize("off", ["feature", "protocol"])
def test_without_streams_version_all_requests_are_refused(tmp_path, off):
    settings = {"group.coordinator.rebalance.protocols": "classic,consumer"}
    with broker_on(tmp_path, settings if off == "protocol" else {}) as broker:
        if off == "feature":
            features = broker.node.serving.administration.features
            features.update([FeatureUpdate("streams.version", 0, SAFE_DOWNGRADE)])
        address = broker.bootstrap_servers
        first = {"memberId": "m", "rebalanceTimeoutMs": 1, "topology": topology("t")}
        assert call(address, HEARTBEAT, 1, groupId="g", **first).errorCode == 35
        (row,) = call(address, DESCRIBE, 1, groupIds=["g"]).groups
        assert (row.groupId, row.errorCode) == ("g", 35)
        assert call(address, 93, 0, groupId="g", memberId="m").errorCode == 35


def test_a_classic_member_takes_over_an_empty_group_and_its_offsets(tmp_path):
    with broker_on(tmp_path) as broker:
        address = broker.bootstrap_servers
        create_topic(address, "t", 1)
        member = StreamsMember(address, "g", "t").join()
        commit = request(8)
        rows = [
            commit.struct("topics")(
                name="t",
                partitions=[
                    commit.struct("topics.partitions")(partitionIndex=0, committedOffset=5)
                ],
            )
        ]
        fields = {"groupId": "g", "memberId": "m1", "generationIdOrMemberEpoch": member.epoch}
        told = call(address, 8, 9, topics=rows, **fields)
        assert told.topics[0].partitions[0].errorCode == 0
        member.leave()
        joined = request(11)
        protocol = joined.struct("protocols")(name="range", metadata=b"m")
        told = call(
            address, 11, 3, groupId="g", sessionTimeoutMs=10_000, rebalanceTimeoutMs=1000,
            protocolType="consumer", protocols=[protocol],
        )  # fmt: skip
        assert told.errorCode == 0
        groups = broker.node.serving.coordinators.groups
        assert groups.groups["g"].group_type == "classic"
        assert groups.committed("g")["t"][0].offset == 5
