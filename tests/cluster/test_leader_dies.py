"""Three brokers replicate a topic; its leader dies; nothing that was acknowledged is lost.

Each broker is a process of its own. At the end the files of all replicas are read and compared: the
same batches at the same offsets, with the same leader epochs.
"""

import threading

import pytest
from cluster.three_brokers import Cluster, soon
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

pytestmark = pytest.mark.takes(seconds=60)

TOPIC = "replicated"


class Sender:
    """Produces numbers with acks=all and idempotence until it is stopped."""

    def __init__(self, servers):
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 1,
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )
        self.acknowledged = {}
        self.refused = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        number = 0
        while not self._stop.is_set():
            self._producer.produce(TOPIC, b"%d" % number, on_delivery=self._delivered)
            self._producer.poll(0.002)
            number += 1

    def _delivered(self, error, message):
        if error is not None:
            self.refused.append((message.value(), error))
        else:
            self.acknowledged[message.offset()] = message.value()

    def wait_for_more(self, count=200):
        before = len(self.acknowledged)
        soon(lambda: len(self.acknowledged) >= before + count, "nothing more is acknowledged")

    def stop(self):
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        return self.acknowledged


def metadata(cluster):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    return admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions[0]


def isr(cluster):
    try:
        return sorted(metadata(cluster).isrs)
    except (KafkaException, KeyError):  # a broker that does not know the topic yet
        return None


def read_all(servers, count):
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([TOPIC])
    found = {}
    while len(found) < count:
        message = consumer.poll(30)
        assert message is not None, f"{len(found)} of {count} records were read"
        if message.error() is None:
            found[message.offset()] = message.value()
    consumer.close()
    return found


def test_the_leader_is_killed_and_comes_back(own_zookeeper, tmp_path):
    with Cluster(tmp_path, own_zookeeper.connect("/c")) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        new = NewTopic(TOPIC, 1, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([new])[TOPIC].result(30)
        soon(lambda: isr(cluster) == [1, 2, 3], "the ISR has not all three")
        sender = Sender(cluster.bootstrap_servers)
        sender.wait_for_more()
        first = metadata(cluster).leader
        cluster.brokers[first].kill()
        sender.wait_for_more()
        second = metadata(cluster).leader
        assert second != first
        assert isr(cluster) == sorted({1, 2, 3} - {first})
        cluster.brokers[first].start()
        soon(lambda: isr(cluster) == [1, 2, 3], "the killed broker did not come back into the ISR")
        sender.wait_for_more()
        cluster.brokers[second].kill()
        sender.wait_for_more()
        cluster.brokers[second].start()
        soon(lambda: isr(cluster) == [1, 2, 3], "the second one did not come back into the ISR")
        sender.wait_for_more()
        acknowledged = sender.stop()
        assert sender.refused == []
        found = read_all(cluster.bootstrap_servers, len(acknowledged))
        assert {offset: found[offset] for offset in acknowledged} == acknowledged
        replicas = []
        for broker in cluster.brokers.values():
            broker.stop()
            replicas.append(list(broker.batches(TOPIC, 0)))
        assert len(replicas[0]) > 10
        assert replicas[0] == replicas[1] == replicas[2]
        assert sorted({epoch for _offset, epoch, _batch in replicas[0]})[-1] >= 2
