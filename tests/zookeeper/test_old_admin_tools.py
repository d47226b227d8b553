"""kafka-reassign-partitions and kafka-preferred-replica-election of Kafka 2.7, which write nodes
below /admin, over two brokers. tests/cluster/test_kafka_tools.py has those that ask a broker."""

import json

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import soon
from zookeeper.test_kafka_tools import KAFKA, connect, tool  # noqa: F401  (fixtures)

pytestmark = [pytest.mark.java, pytest.mark.takes(seconds=15)]


@pytest.fixture
def two(brokers, connect):  # noqa: F811
    """Two brokers, and a topic whose one replica is on broker 1. Returns the state of a partition
    as its leader has it: leader, replicas, ISR, what is coming."""
    first, second = brokers.start(connect), brokers.start(connect, node_id=2)
    admin = AdminClient({"bootstrap.servers": first.bootstrap_servers})
    admin.create_topics([NewTopic("t", 1, replica_assignment=[[1]])])["t"].result(30)
    first.partition = lambda: seen(first)
    soon(lambda: second.node.cluster().topic("t"))
    return first


def seen(broker):
    topic = broker.node.cluster().topic("t")
    partition = topic.partitions[0]
    coming = topic.assignment.adding_replicas.get(0, ())
    return partition.state.leader, partition.replicas, sorted(partition.state.isr), coming


def plan(folder, *replicas):
    file = folder / "plan.json"
    rows = [{"topic": "t", "partition": 0, "replicas": list(replicas)}]
    file.write_text(json.dumps({"version": 1, "partitions": rows}))
    return str(file)


def test_tools_that_write_nodes(two, connect, tool, tmp_path):  # noqa: F811
    def reassign(*arguments):
        return tool("kafka.admin.ReassignPartitionsCommand", "--zookeeper", connect, *arguments)

    file = plan(tmp_path, 2, 1)
    said = reassign("--reassignment-json-file", file, "--execute")
    assert "Successfully started partition reassignment" in said
    soon(lambda: two.partition() == (1, (2, 1), [1, 2], ()), "the partition does not move")
    assert "is complete" in reassign("--reassignment-json-file", file, "--verify")
    tool("kafka.admin.PreferredReplicaLeaderElectionCommand", "--zookeeper", connect)
    soon(lambda: two.partition()[0] == 2, "the preferred replica does not lead")
