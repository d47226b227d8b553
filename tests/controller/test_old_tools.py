"""Nodes below /admin that tools of Kafka before 2.4 write, on a real tree."""

import threading
from dataclasses import replace

import pytest
from controller.test_reassignments import Moved

from barnabas.config import BrokerConfig, DynamicConfig, TopicConfig
from barnabas.controller.elections import Elections
from barnabas.controller.old_tools import OldToolRequests
from barnabas.controller.reassignments import Reassignments
from barnabas.metadata import znodes
from barnabas.metadata.znodes import PartitionState, Reassignment

ELECT, MOVE = znodes.PREFERRED_ELECTION_PATH, znodes.REASSIGN_PARTITIONS_PATH


@pytest.fixture
def moved(tmp_path):
    made = Moved(tmp_path, partitions=2)
    yield made
    made.tree.close()


@pytest.fixture
def tools(moved):
    dynamic = DynamicConfig(BrokerConfig({}))
    elections = Elections(moved.tree, moved.reader, lambda _topic: TopicConfig({}, dynamic))
    moves = Reassignments(moved.tree, moved.reader)
    woken = threading.Event()
    made = OldToolRequests(moved.tree, moved.reader, elections, moves, woken.set)
    made.run(())
    made.woken = woken
    return made


def wanted(rows):
    return Reassignment(rows).encode()


def test_a_preferred_election(moved, tools):
    path = znodes.partition_state_path("t", 1)
    before = PartitionState.decode(moved.tree.get(path)[0])
    moved.tree.set(path, replace(before, leader=2).encode())
    moved.reader.refresh_topics(["t"])
    moved.tree.create(ELECT, znodes.encode_partitions([("t", 0), ("t", 1), ("absent", 0)]))
    assert tools.woken.wait(10), "the node is not watched"
    tools.run(())
    assert moved.state(0)[0] == moved.state(1)[0] == 1
    assert moved.tree.exists(ELECT) is None


def test_a_reassignment_stays_until_its_moves_end(moved, tools):
    rows = {("t", 0): (3, 2), ("t", 1): (4, 5), ("absent", 0): (1,)}
    moved.tree.create(MOVE, wanted(rows))
    assert tools.woken.wait(10), "the node is not watched"
    tools.run(())
    assert Reassignment.decode(moved.tree.get(MOVE)[0]).replicas == {
        ("t", 0): (3, 2),
        ("t", 1): (4, 5),
    }
    moved.in_isr(1, 2, 3)
    tools.run(())
    assert Reassignment.decode(moved.tree.get(MOVE)[0]).replicas == {("t", 1): (4, 5)}
    moved.in_isr(1, 2, 4, 5, index=1)
    tools.run(())
    assert moved.tree.exists(MOVE) is None
    assert moved.assigned(0) == ((3, 2), (), ()) and moved.assigned(1) == ((4, 5), (), ())


def test_a_move_that_is_cancelled_by_a_request_is_taken_out_and_not_begun_again(moved, tools):
    moved.tree.create(MOVE, wanted({("t", 0): (3, 4)}))
    tools.run(())
    assert moved.assigned(0)[1] == (3, 4)
    assert moved.begin(None) is None
    tools.run(())
    assert moved.tree.exists(MOVE) is None
    assert moved.assigned(0) == ((1, 2), (), ())


def test_the_next_controller_goes_on(moved, tools):
    moved.tree.create(MOVE, wanted({("t", 0): (3, 4)}))
    tools.run(())
    dynamic = DynamicConfig(BrokerConfig({}))
    elections = Elections(moved.tree, moved.reader, lambda _topic: TopicConfig({}, dynamic))
    moves = Reassignments(moved.tree, moved.reader)
    after = OldToolRequests(moved.tree, moved.reader, elections, moves, lambda: None)
    after.run(())
    assert moved.assigned(0) == ((3, 4, 1, 2), (3, 4), (1, 2))
    moved.in_isr(1, 2, 3, 4)
    after.run(())
    assert moved.tree.exists(MOVE) is None and moved.assigned(0) == ((3, 4), (), ())


@pytest.mark.parametrize("path", [ELECT, MOVE])
def test_a_node_that_cannot_be_read_is_deleted(moved, tools, path):
    moved.tree.create(path, b"{damaged")
    tools.run(())
    assert moved.tree.exists(path) is None
