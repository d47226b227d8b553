"""The brokers that get the partitions by which a topic grows."""

import pytest

from barnabas.controller.controller_role import SingleNodeRole
from barnabas.controller.partition_growth import PartitionGrowth
from barnabas.controller.placement import place
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


def grown(folder, brokers, replicas, count):
    """The replicas of the partitions that a topic of one partition gets."""
    tree = EmbeddedTree(folder, clock_ms=lambda: 1)
    tree.ensure_paths(znodes.PERSISTENT_PATHS)
    address = Endpoint("PLAINTEXT", "h", 9092, "PLAINTEXT")
    registration = BrokerRegistration((address,), 0).encode()
    state = PartitionState(replicas[0], 5, replicas, 1).encode()
    tree.multi(
        [
            *(CreateNode(znodes.broker_path(b), registration, ephemeral=True) for b in brokers),
            CreateNode(znodes.topic_path("t"), TopicAssignment({0: replicas}, TOPIC_ID).encode()),
            CreateNode(znodes.partitions_path("t")),
            CreateNode(znodes.partition_path("t", 0)),
            CreateNode(znodes.partition_state_path("t", 0), state),
        ]
    )
    try:
        PartitionGrowth(tree, ClusterStateReader(tree), SingleNodeRole()).grow("t", count)
        found = TopicAssignment.decode(tree.get(znodes.topic_path("t"))[0]).partitions
    finally:
        tree.close()
    assert found.pop(0) == replicas, "what is there stays"
    return [found[index] for index in sorted(found)]


@pytest.mark.parametrize("first", [1, 3, 5])
def test_f17_growth_goes_on_from_the_first_replica_of_partition_0(tmp_path, first):
    brokers = [1, 2, 3, 4, 5]
    found = grown(tmp_path, brokers, (first, first % 5 + 1), 7)
    leaders = [brokers[(first - 1 + index) % 5] for index in range(1, 7)]
    assert [replicas[0] for replicas in found] == leaders
    assert found == place(brokers, 6, 2, first - 1, first=1)


def test_f17_the_next_broker_stands_for_a_first_replica_that_is_not_live(tmp_path):
    """Kafka's AdminZkClient: the first live broker whose id is not smaller, or the first of all."""
    for number, (gone, start) in enumerate([(3, 2), (9, 0)]):
        brokers = [1, 2, 4, 5]
        found = grown(tmp_path / str(number), brokers, (gone, 1), 5)
        assert found == place(brokers, 4, 2, start, first=1), gone
