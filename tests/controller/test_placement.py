"""The brokers that get a new partition, and the names and assignments that are accepted."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.controller.placement import place
from barnabas.controller.topic_names import check_collision, check_topic_name
from barnabas.controller.topics import checked_assignments
from barnabas.errors import InvalidReplicaAssignment, InvalidTopicException
from barnabas.metadata.cluster_state import ClusterState

ANSWERS = Path(__file__).parent / "placements.json"


@given(st.integers(1, 9), st.integers(1, 40), st.data())
def test_replicas_are_distinct_and_leaders_spread(count, partitions, data):
    factor = data.draw(st.integers(1, count))
    start = data.draw(st.integers(0, count - 1))
    placed = place(list(range(100, 100 + count)), partitions, factor, start)
    assert all(len(set(replicas)) == factor for replicas in placed)
    leaders = [replicas[0] for replicas in placed]
    shares = [leaders.count(broker) for broker in range(100, 100 + count)]
    assert max(shares) - min(shares) <= 1


def test_placements_are_those_of_kafka():
    """KafkaPlacements.java printed the answers of Kafka 3.9.2: the racks of brokers 0, 1, ... (`-`:
    five brokers without racks), replication factor, start, first partition, replicas."""
    for racks, factor, start, first, wanted in json.loads(ANSWERS.read_text()):
        count = 5 if racks == "-" else len(racks)
        given_racks = None if racks == "-" else dict(enumerate(racks))
        found = place(range(count), 2 * count + 1, factor, start, first, given_racks)
        assert found == [tuple(row) for row in wanted], (racks, factor, start, first)


def test_racks_do_not_count_when_a_broker_has_none():
    assert place([1, 2, 3], 4, 2, 0, racks={1: "a", 2: "a"}) == place([1, 2, 3], 4, 2, 0)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a b", "ä", "x" * 250, "a\0", "../../etc/x"]
)
def test_names_that_are_refused(name):
    with pytest.raises(InvalidTopicException):
        check_topic_name(name)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "x" * 249])
def test_names_that_are_taken(name):
    check_topic_name(name)


def test_dots_and_underscores_collide():
    check_collision("a.b", ["a.b", "a-b", "ab"])
    with pytest.raises(InvalidTopicException, match="a_b"):
        check_collision("a.b", ["x", "a_b"])


@pytest.mark.parametrize(
    "assignments",
    [{1: [1]}, {0: [1], 2: [1]}, {0: []}, {0: [1], 1: [1, 2]}, {0: [1, 1]}, {0: [9]}],
)
def test_assignments_that_are_refused(assignments):
    state = ClusterState(brokers={1: None, 2: None})
    with pytest.raises(InvalidReplicaAssignment):
        checked_assignments(assignments, state)
    assert checked_assignments({1: [2], 0: [1]}, state) == {0: (1,), 1: (2,)}
