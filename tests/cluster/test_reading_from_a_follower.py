"""Tests that a consumer reads from the replica in its rack (KIP-392), and from another replica when
that broker is killed."""

import json

import pytest
from cluster.three_brokers import Cluster
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import soon

from barnabas.config.replica_selector import BY_RACK

pytestmark = pytest.mark.takes(seconds=20)

TOPIC = "near"
COUNT = 300


class Reader:
    """A consumer in a rack. The statistics of librdkafka show from which broker it reads."""

    def __init__(self, servers, rack):
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "readers",
                "client.rack": rack,
                "auto.offset.reset": "earliest",
                "statistics.interval.ms": 100,
                "stats_cb": self._told,
            }
        )
        self._consumer.subscribe([TOPIC])
        self._partition = {}
        self.found = []

    def _told(self, text):
        self._partition = (
            json.loads(text)["topics"].get(TOPIC, {"partitions": {}})["partitions"].get("0", {})
        )

    @property
    def reads_from(self):
        self._poll(0.05)
        return self._partition.get("broker")

    def _poll(self, seconds):
        message = self._consumer.poll(seconds)
        if message is not None and message.error() is None:
            self.found.append(int(message.value()))

    def read(self, count):
        def enough():
            self._poll(0.1)
            return len(self.found) >= count

        soon(enough, f"not all of {count} records were read")

    def close(self):
        self._consumer.close()


def test_a_consumer_reads_from_the_replica_in_its_rack(own_zookeeper, tmp_path):
    settings = {"replica.selector.class": BY_RACK}
    with Cluster(tmp_path, own_zookeeper.connect("/c"), with_racks=True, **settings) as cluster:
        servers = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(30)

        def partition():
            return admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions[0]

        soon(lambda: sorted(partition().isrs) == [1, 2, 3], "the ISR has not all three")
        leader = partition().leader
        near = min({1, 2, 3} - {leader})
        producer = Producer({"bootstrap.servers": servers})

        def produce(numbers):
            for number in numbers:
                producer.produce(TOPIC, b"%d" % number)
            assert producer.flush(60) == 0

        produce(range(COUNT))
        reader = Reader(servers, f"rack-{near}")
        reader.read(COUNT)
        soon(lambda: reader.reads_from == near, f"it reads from {reader.reads_from}")
        produce(range(COUNT, 2 * COUNT))
        reader.read(2 * COUNT)
        assert reader.reads_from == near
        cluster.brokers[near].kill()
        produce(range(2 * COUNT, 3 * COUNT))
        reader.read(3 * COUNT)
        soon(lambda: reader.reads_from not in (near, None), f"it reads from {reader.reads_from}")
        assert reader.found == list(range(3 * COUNT))
        reader.close()
