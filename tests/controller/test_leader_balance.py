"""Which partitions auto.leader.rebalance.enable brings back to their preferred replicas."""

from types import MappingProxyType

import pytest

from barnabas.controller.leader_balance import out_of_balance
from barnabas.metadata.cluster_state import Broker, ClusterState, Partition, Topic
from barnabas.metadata.znodes import BrokerRegistration, PartitionState, TopicAssignment


def state(rows, brokers=(1, 2, 3), **assignment):
    """`rows`: replicas, leader and ISR of the partitions of topic t."""
    partitions = {
        index: Partition(replicas, PartitionState(leader, 5, isr, 1), 0, 10)
        for index, (replicas, leader, isr) in enumerate(rows)
    }
    replicas = {index: row.replicas for index, row in partitions.items()}
    topic = Topic("t", TopicAssignment(replicas, "id", **assignment), 0, partitions)
    alive = {row: Broker(row, BrokerRegistration((), 0), 1) for row in brokers}
    return ClusterState(brokers=alive, topics=MappingProxyType({"t": topic}))


AT_HOME = ((1, 2), 1, (1, 2))
AWAY = ((1, 2), 2, (1, 2))


@pytest.mark.parametrize(
    ("rows", "percentage", "found"),
    [
        ([AT_HOME] * 9 + [AWAY], 10, []),  # a tenth is allowed
        ([AT_HOME] * 9 + [AWAY], 9, [("t", 9)]),
        ([AT_HOME, AWAY, AWAY], 10, [("t", 1), ("t", 2)]),
        ([((2, 1), 2, (1, 2)), ((1, 2), 2, (1, 2))], 50, [("t", 1)]),  # each broker by itself
        ([((1, 2), 2, (2,)), AWAY], 10, [("t", 1)]),  # 0 is not in sync: it counts, and stays
    ],
)
def test_who_leads_too_little(rows, percentage, found):
    assert out_of_balance(state(rows), percentage) == found


def test_a_dead_broker_is_not_elected():
    assert out_of_balance(state([AWAY], brokers=(2, 3)), 10) == []


def test_a_partition_that_is_being_moved_stays():
    moving = state([AWAY, AWAY], adding_replicas={0: (3,)}, removing_replicas={0: (2,)})
    assert out_of_balance(moving, 10) == [("t", 1)]
