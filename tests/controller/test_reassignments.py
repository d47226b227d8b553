"""Reassignments on a real tree: what they write, and when they end. Replicas are played by writing
the ISR, as leaders do."""

from dataclasses import replace

import pytest

from barnabas.controller.reassignments import Reassignments
from barnabas.errors import (
    InvalidReplicaAssignment,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import ClusterStateReader
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.tree import CreateNode
from barnabas.metadata.znodes import (
    BrokerRegistration,
    Endpoint,
    PartitionState,
    TopicAssignment,
)

TOPIC_ID = "AAAAAAAAQAEAAAAAAAAAAQ"


class Moved:
    """One topic with partitions on brokers 1 and 2 of 1 to 5."""

    def __init__(self, folder, partitions=1):
        self.tree = EmbeddedTree(folder, clock_ms=lambda: 1)
        self.tree.ensure_paths(znodes.PERSISTENT_PATHS)
        address = Endpoint("PLAINTEXT", "h", 9092, "PLAINTEXT")
        broker = BrokerRegistration((address,), 0).encode()
        operations = [
            CreateNode(znodes.broker_path(broker_id), broker, ephemeral=True)
            for broker_id in range(1, 6)
        ]
        assignment = TopicAssignment({index: (1, 2) for index in range(partitions)}, TOPIC_ID)
        operations.append(CreateNode(znodes.topic_path("t"), assignment.encode()))
        operations.append(CreateNode(znodes.partitions_path("t")))
        state = PartitionState(1, 5, (1, 2), 1).encode()
        for index in range(partitions):
            operations.append(CreateNode(znodes.partition_path("t", index)))
            operations.append(CreateNode(znodes.partition_state_path("t", index), state))
        self.tree.multi(operations)
        self.reader = ClusterStateReader(self.tree)
        self.reassignments = Reassignments(self.tree, self.reader)

    def begin(self, replicas, index=0, topic="t"):
        [error] = self.reassignments.begin((), {(topic, index): replicas}).values()
        return error

    def in_isr(self, *isr, index=0):
        """The leader writes the ISR, and the controller hears of it."""
        path = znodes.partition_state_path("t", index)
        before = PartitionState.decode(self.tree.get(path)[0])
        self.tree.set(path, replace(before, isr=isr).encode())
        self.reader.refresh_topics(["t"])
        self.reassignments.advance(())

    def advance(self):
        self.reassignments.advance(())

    def assigned(self, index=0):
        found = TopicAssignment.decode(self.tree.get(znodes.topic_path("t"))[0])
        return (
            found.partitions[index],
            found.adding_replicas.get(index, ()),
            found.removing_replicas.get(index, ()),
        )

    def state(self, index=0):
        data, _stat = self.tree.get(znodes.partition_state_path("t", index))
        found = PartitionState.decode(data)
        return found.leader, found.isr, found.leader_epoch


@pytest.fixture
def moved(tmp_path):
    made = Moved(tmp_path)
    yield made
    made.tree.close()


def test_a_partition_moves_to_other_brokers(moved):
    assert moved.begin([3, 4]) is None
    assert moved.assigned() == ((3, 4, 1, 2), (3, 4), (1, 2))
    assert moved.state() == (1, (1, 2), 6), "the leader hears of the new replicas and leads on"
    moved.in_isr(1, 2, 3)
    assert moved.assigned() == ((3, 4, 1, 2), (3, 4), (1, 2))
    moved.in_isr(1, 2, 3, 4)
    assert moved.assigned() == ((3, 4), (), ())
    assert moved.state() == (3, (3, 4), 7)


def test_a_leader_of_the_target_stays(moved):
    assert moved.begin([3, 1]) is None
    assert moved.assigned() == ((3, 1, 2), (3,), (2,))
    moved.in_isr(1, 2, 3)
    assert moved.assigned() == ((3, 1), (), ())
    assert moved.state() == (1, (1, 3), 7)


def test_a_smaller_factor_needs_no_copy(moved):
    assert moved.begin([2]) is None
    assert moved.assigned() == ((2,), (), ())
    assert moved.state() == (2, (2,), 6)


def test_another_order_only(moved):
    assert moved.begin([2, 1]) is None
    assert moved.assigned() == ((2, 1), (), ())
    assert moved.state() == (1, (1, 2), 5)


def test_a_second_target_replaces_the_first(moved):
    moved.begin([3, 4])
    assert moved.begin([5, 1]) is None
    assert moved.assigned() == ((5, 1, 2), (5,), (2,))
    moved.in_isr(1, 2, 5)
    assert moved.assigned() == ((5, 1), (), ())


def test_cancelled(moved):
    assert isinstance(moved.begin(None), NoReassignmentInProgress)
    moved.begin([3, 4])
    moved.in_isr(1, 2, 3)
    assert moved.begin(None) is None
    assert moved.assigned() == ((1, 2), (), ())
    assert moved.state() == (1, (1, 2), 7), "a replica that goes is in the ISR"
    assert isinstance(moved.begin(None), NoReassignmentInProgress)


@pytest.mark.parametrize(("wanted", "during"), [
    (None, ((1, 2, 3), (), (3,))),
    ([1, 5], ((1, 5, 2, 3), (5,), (2, 3))),
])  # fmt: skip
def test_the_only_member_of_the_isr_stays_until_others_are_in_it(moved, wanted, during):
    """Broker 3 was added by the move that is cancelled or replaced. Without it nobody could lead,
    and the state would name a leader that is no replica."""
    moved.begin([3, 4])
    path = znodes.partition_state_path("t", 0)
    moved.tree.set(path, PartitionState(3, 8, (3,), 1).encode())
    moved.reader.refresh_topics(["t"])
    assert moved.begin(wanted) is None
    assert moved.assigned() == during
    assert moved.state()[:2] == (3, (3,))
    moved.in_isr(3, 1, 2, 5)
    target = (1, 2) if wanted is None else (1, 5)
    assert moved.assigned() == (target, (), ())
    assert moved.state()[:2] == (1, target)


def test_a_target_that_is_dead_is_waited_for(moved):
    moved.begin([3, 4])
    for broker in (3, 4):
        moved.tree.delete(znodes.broker_path(broker))
    moved.reader.refresh_brokers()
    moved.in_isr(1, 2, 3, 4)
    assert moved.assigned() == ((3, 4, 1, 2), (3, 4), (1, 2))


@pytest.mark.parametrize(
    ("replicas", "error"),
    [
        ([], InvalidReplicaAssignment),
        ([3, 3], InvalidReplicaAssignment),
        ([3, 9], InvalidReplicaAssignment),
    ],
)
def test_refused(moved, replicas, error):
    assert isinstance(moved.begin(replicas), error)
    assert moved.assigned() == ((1, 2), (), ())


def test_unknown(moved):
    assert isinstance(moved.begin([3], index=9), UnknownTopicOrPartition)
    assert isinstance(moved.begin([3], topic="u"), UnknownTopicOrPartition)


def test_another_writer_meanwhile(moved):
    """The leader shrinks the ISR between the read and the write of the end."""
    moved.begin([3, 4])
    path = znodes.partition_state_path("t", 0)
    for isr in ((1, 2, 3, 4), (1, 2, 3)):
        before = PartitionState.decode(moved.tree.get(path)[0])
        moved.tree.set(path, replace(before, isr=isr).encode())
        if len(isr) == 4:
            moved.reader.refresh_topics(["t"])
    moved.advance()
    assert moved.assigned() == ((3, 4, 1, 2), (3, 4), (1, 2))
    moved.in_isr(1, 2, 3, 4)
    assert moved.assigned() == ((3, 4), (), ())


def test_many_partitions_end_in_parts(tmp_path):
    moved = Moved(tmp_path, partitions=450)
    try:
        wanted = {("t", index): [2] for index in range(450)}
        outcomes = moved.reassignments.begin((), wanted)
        assert set(outcomes.values()) == {None}
        assert all(moved.assigned(index) == ((2,), (), ()) for index in range(450))
        assert all(moved.state(index)[:2] == (2, (2,)) for index in range(450))
    finally:
        moved.tree.close()


def test_an_assignment_larger_than_one_multi(tmp_path):
    """It raised ValueError, and the topic could not be moved."""
    made = Moved(tmp_path, partitions=30)
    limits = made.tree.limits
    made.tree.limits = replace(limits, multi_bytes_max=1500)
    moves = {("t", index): [3, 4] for index in range(30)}
    assert set(made.reassignments.begin((), moves).values()) == {None}
    assert made.assigned(29) == ((3, 4, 1, 2), (3, 4), (1, 2)) and made.state(29)[2] == 6
    made.tree.limits = limits
    for index in range(30):
        path = znodes.partition_state_path("t", index)
        before = PartitionState.decode(made.tree.get(path)[0])
        made.tree.set(path, replace(before, isr=(1, 2, 3, 4)).encode())
    made.reader.refresh_topics(["t"])
    made.tree.limits = replace(limits, multi_bytes_max=1500)
    made.advance()
    assert {made.assigned(index) for index in range(30)} == {((3, 4), (), ())}
    assert {made.state(index)[:2] for index in range(30)} == {(3, (3, 4))}
    made.tree.close()
