"""kafka-reassign-partitions and kafka-preferred-replica-election of Kafka 2.7, which write nodes
below /admin, and in the long form those of Kafka 3.9, which ask a broker, over two brokers."""

import json
import subprocess

import pytest
from compat.support import rival
from confluent_kafka.admin import AdminClient, NewTopic
from zookeeper.test_kafka_tools import KAFKA, connect, soon, tool  # noqa: F401  (fixtures)

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


@pytest.mark.only_long
def test_tools_that_ask_a_broker(two, tmp_path):
    def run(name, *arguments):
        command = rival.tool("3.9.2", name, tmp_path / "tool.log")
        at = ("--bootstrap-server", two.bootstrap_servers)
        done = subprocess.run(
            [*command, *at, *arguments], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    file = plan(tmp_path, 2, 1)
    assert "Successfully started" in run("reassign", "--reassignment-json-file", file, "--execute")
    soon(lambda: two.partition() == (1, (2, 1), [1, 2], ()), "the partition does not move")
    assert "is complete" in run("reassign", "--reassignment-json-file", file, "--verify")
    elected = ("--election-type", "preferred", "--topic", "t", "--partition", "0")
    assert "Successfully completed" in run("leader-election", *elected)
    soon(lambda: two.partition()[0] == 2, "the preferred replica does not lead")
    described = run("topics", "--describe", "--topic", "t")
    assert "Leader: 2" in described and "Replicas: 2,1" in described
