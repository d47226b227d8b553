"""Clients of Kafka 0.7 and two brokers: each broker has addresses of its own for what it leads."""

import pytest
from cluster.three_brokers import BrokerProcess
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from durability.broker_process import free_port
from oracle import kafka07
from oracle.kafka07 import LATEST, Client07
from waiting import soon

pytestmark = pytest.mark.takes(seconds=15)


class Both(BrokerProcess):
    """A broker with both listeners, at the same ports in each start."""

    def __init__(self, folder, node_id, connect):
        self.port = free_port()
        listeners = f"PLAINTEXT://127.0.0.1:{free_port()},LEGACY07://127.0.0.1:{self.port}"
        settings = {"listeners": listeners, "offsets.topic.replication.factor": "1"}
        super().__init__(folder, node_id, connect, settings)
        self._listeners = listeners

    def start(self):
        self._given["listeners"] = self._listeners
        return super().start()


def is_leader(broker):
    with Client07(broker.port) as client:
        return client.offsets("t", LATEST)[0] == 0


def test_addresses_while_leaders_change(tmp_path, zookeeper_server) -> None:
    connect = zookeeper_server.connect(zookeeper_server.new_chroot())
    one, two = (Both(tmp_path, number, connect).start() for number in (1, 2))
    admin = AdminClient({"bootstrap.servers": f"{one.address},{two.address}"})
    admin.create_topics([NewTopic("t", 1, replica_assignment=[[1, 2]])])["t"].result(30)
    soon(lambda: is_leader(one), "broker 1 does not lead")
    first = [b"%d" % number for number in range(100)]
    with Client07(one.port) as client, Client07(two.port) as other:
        client.produce("t", kafka07.messages(first))
        soon(lambda: client.consume("t", 0)[0] == first, "not replicated")
        assert other.fetch("t", 0) == (3, b"")
        assert other.offsets("t", LATEST) == (3, [])
    one.kill()
    soon(lambda: is_leader(two), "broker 2 does not lead")
    second = [b"second %d" % number for number in range(100)]
    with Client07(two.port) as client:
        client.produce("t", kafka07.messages(second))
        expected = first + second
        found, end = client.consume("t", 0)
        assert (found, end) == (expected, len(kafka07.messages(expected)))
    one.start()

    def isr():
        found = AdminClient({"bootstrap.servers": two.address}).list_topics("t", timeout=10)
        return sorted(found.topics["t"].partitions[0].isrs)

    soon(lambda: isr() == [1, 2], "broker 1 does not come back")
    with Client07(one.port) as client:
        assert client.fetch("t", 0) == (3, b"")
    admin = AdminClient({"bootstrap.servers": two.address})
    admin.list_topics(timeout=10)
    admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("t", 0)]).result(30)
    soon(lambda: is_leader(one), "broker 1 does not lead again")
    with Client07(one.port) as client:
        middle = len(kafka07.messages(first))  # where the consumer of broker 1 was
        assert client.consume("t", middle) == (second, end)
        assert client.consume("t", 0)[0] == expected
    assert one.stop() == two.stop() == 0
