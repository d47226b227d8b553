"""A streams group (KIP-1071) whose coordinator's broker is killed goes on at the next coordinator:
the members keep their epochs and their tasks, and a new member gets some of them."""

from contextlib import closing, suppress

import pytest
from cluster.three_brokers import Cluster
from compat.support import Wire
from confluent_kafka.admin import AdminClient, NewTopic
from streams.streams_wire import StreamsMember, described
from waiting import soon

from barnabas.wire import request

pytestmark = pytest.mark.takes(seconds=20)
WAIT_S = 60
SETTINGS = {
    "group_streams_initial_rebalance_delay_ms": "0",
    "group_streams_assignment_interval_ms": "0",
    "offsets_topic_replication_factor": "3",
}


def coordinator(cluster, group):
    """The id of a running broker that coordinates the group, or None."""
    for broker in cluster.brokers.values():
        if broker.is_running:
            with suppress(OSError), closing(Wire(broker.address)) as wire:
                found = wire.call(10, 3, request(10).cls(key=group))
                if found.errorCode == 0 and cluster.brokers[found.nodeId].is_running:
                    return found.nodeId
    return None


def test_a_group_goes_on_at_the_next_coordinator(shared_zookeeper, tmp_path):
    with Cluster(tmp_path, shared_zookeeper.connect("/streams"), **SETTINGS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic("t", 4, 3)])["t"].result(WAIT_S)
        before = soon(lambda: coordinator(cluster, "g"), "no coordinator")
        address = cluster.brokers[before].address
        first = StreamsMember(address, "g", "t", member="a").join()
        second = StreamsMember(address, "g", "t", member="b")
        members = [first, second]
        soon(lambda: beat_all(members) and len(second.active) == 2, "no tasks")
        (was,) = described(address, "g")
        epochs, tasks = [m.epoch for m in members], [m.active for m in members]
        cluster.brokers[before].kill()
        after = soon(lambda: coordinator(cluster, "g"), "no coordinator after the kill")
        assert after != before
        third = StreamsMember(cluster.brokers[after].address, "g", "t", member="c")
        for member in members:
            member.address = cluster.brokers[after].address
        soon(lambda: beat_all(members), "the next coordinator does not load the group")
        assert ([m.epoch for m in members], [m.active for m in members]) == (epochs, tasks)
        (now,) = described(first.address, "g")
        assert (now.groupEpoch, now.topology) == (was.groupEpoch, was.topology)
        members.append(third)
        soon(lambda: beat_all(members) and third.active, "the new member gets no task")
        soon(lambda: beat_all(members) and len({m.epoch for m in members}) == 1, "no one epoch")
        assert sorted(p for m in members for p in m.active) == [0, 1, 2, 3]


def beat_all(members):
    """Each member sends a heartbeat. Returns whether all were accepted."""
    return [member.beat().errorCode for member in members] == [0] * len(members)
