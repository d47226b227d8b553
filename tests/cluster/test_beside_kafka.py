"""Tests one barnabas broker beside two of Apache Kafka 3.9 (2.8 in the long form): it follows,
leads, becomes the controller, and gives these roles back, under load.

Each broker is a process. At the end the test reads every acknowledged record, and compares the
files of all replicas by offset, bytes and leader epoch."""

import json
import signal

import pytest
from cluster.acknowledged import Groups, Sender, Transactions, leaders_and_isrs
from cluster.kafka_brokers import KAFKA, KafkaProcess
from cluster.three_brokers import BrokerProcess
from compat.support import rival
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from long_form import pick
from waiting import soon

from barnabas.client import Cluster

pytestmark = [
    pytest.mark.java,
    pytest.mark.takes(seconds=80),
    pytest.mark.alone(reason="two brokers of Kafka, ZooKeeper and a broker start side by side"),
]

TOPIC, PARTITIONS = "replicated", 2
OURS = 3


OF_OURS = {"controlled.shutdown.retry.backoff.ms": "200", "auto.create.topics.enable": "false"}


class Mixed:
    """Kafka brokers 1 and 2, and barnabas broker 3, with one ZooKeeper."""

    def __init__(self, folder, zookeeper, version=KAFKA, **settings):
        self._zookeeper = zookeeper
        connect = zookeeper.connect("/mixed")
        self.client = KazooClient(connect)
        admin = KazooClient(zookeeper.address)
        admin.start(30)
        admin.ensure_path("/mixed")
        admin.stop()
        admin.close()
        self.client.start(30)
        self.kafka = {
            node_id: KafkaProcess(folder, node_id, connect, settings, version) for node_id in (1, 2)
        }
        self.ours = BrokerProcess(folder, OURS, connect, {**OF_OURS, **settings})
        self.brokers = {**self.kafka, OURS: self.ours}

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        print(*self.ours.lines, sep="\n")  # shown when the test fails
        for broker in self.brokers.values():
            if broker.is_running:
                broker.signal(signal.SIGCONT)
                broker.kill()
        self.client.stop()
        self.client.close()

    @property
    def servers(self):
        return ",".join(broker.address for broker in self.brokers.values() if broker.is_running)

    def znode(self, path):
        """Returns the value of a znode; None when there is none."""
        if self.client.exists(path) is None:
            return None
        return json.loads(self.client.get(path)[0])

    def controller(self):
        found = self.znode("/controller")
        return None if found is None else found["brokerid"]

    def end_session(self, broker_id):
        """Ends the session of a killed broker at once."""
        _data, stat = self.client.get(f"/brokers/ids/{broker_id}")
        self._zookeeper.expire(stat.ephemeralOwner)

    def kill(self, broker_id):
        """Kills a broker (SIGKILL), and ends its session at once."""
        self.brokers[broker_id].kill()
        self.end_session(broker_id)

    def partitions(self, asked, topic=TOPIC):
        """Returns leader and ISR of each partition, as one broker answers."""
        return leaders_and_isrs(self.brokers[asked].address, topic)

    def wait_for_isr(self, isr, why, topic=TOPIC):
        """Waits until all running brokers answer that all partitions have this ISR."""
        wanted = [isr] * PARTITIONS
        for broker_id, broker in self.brokers.items():
            if broker.is_running:
                soon(
                    lambda asked=broker_id: (
                        [row[1] for row in self.partitions(asked, topic).values()] == wanted
                    ),
                    f"{why}: broker {broker_id} answers another ISR",
                )


@pytest.fixture(params=pick(short=[KAFKA], long=[KAFKA, "2.8.2"]))
def mixed(own_zookeeper, tmp_path, request):
    reason = rival.missing(request.param)
    if reason:
        pytest.skip(reason)
    with Mixed(tmp_path, own_zookeeper, request.param) as made:
        yield made


def create(mixed, topic, replicas):
    admin = AdminClient({"bootstrap.servers": mixed.servers})
    config = {"min.insync.replicas": "2"}
    new = NewTopic(topic, len(replicas), replica_assignment=replicas, config=config)
    admin.create_topics([new])[topic].result(30)


def test_it_follows_leads_and_takes_the_controllers_place(mixed):
    for broker in mixed.kafka.values():
        broker.start()
    first = soon(mixed.controller, "no controller")
    second = 3 - first
    mixed.ours.start()
    create(mixed, TOPIC, [[first, OURS, second], [OURS, second, first]])
    mixed.wait_for_isr([1, 2, 3], "after the creation")
    assert [row[0] for row in mixed.partitions(second).values()] == [first, OURS]
    with Cluster(mixed.ours.address) as ours:
        features = ours.connection_to(OURS).features
    assert not features.keys() & {
        "group.version",
        "share.version",
        "streams.version",
        "transaction.version",
    }
    sender = Sender(mixed.servers, TOPIC, PARTITIONS)
    sender.wait_for_more()
    groups = Groups(TOPIC)
    groups.step(mixed.servers)
    create(mixed, "transactional", [[first, OURS, second], [OURS, second, first]])
    transactions = Transactions(mixed.servers, "transactional")

    # The Kafka broker that leads and is the controller dies; barnabas is the only one that can
    # become the controller, because the other Kafka is stopped for that moment.
    mixed.kafka[second].pause()
    mixed.kill(first)
    soon(lambda: mixed.controller() == OURS, "barnabas does not take the controller's place")
    mixed.kafka[second].resume()
    sender.wait_for_more()
    groups.step(mixed.servers)
    transactions.step(1)
    mixed.wait_for_isr(sorted([OURS, second]), "after the death of the controller")
    assert [row[0] for row in mixed.partitions(second).values()] == [OURS, OURS]

    mixed.kafka[first].start()
    mixed.wait_for_isr([1, 2, 3], "after the return of the first Kafka")
    create(mixed, "gone", [[first, OURS, second], [second, OURS, first]])
    mixed.wait_for_isr([1, 2, 3], "a topic made by barnabas", "gone")
    # librdkafka may ask another broker than the one that it knows first, which may not know it yet.
    wanted = [first, second]
    soon(
        lambda: [row[0] for row in mixed.partitions(first, "gone").values()] == wanted,
        "a topic made by barnabas has other leaders",
    )
    admin = AdminClient({"bootstrap.servers": mixed.servers})
    admin.delete_topics(["gone"])["gone"].result(30)
    for broker_id in mixed.brokers:
        soon(
            lambda asked=broker_id: "gone" not in _topics(mixed, asked),
            f"broker {broker_id} still knows the deleted topic",
        )

    # It gives all back: barnabas stops, a Kafka is the controller and leads.
    mixed.ours.stop()
    assert soon(mixed.controller, "no controller") in (first, second)
    sender.wait_for_more()
    groups.step(mixed.servers)
    transactions.step(2)
    mixed.wait_for_isr([1, 2], "without barnabas")
    mixed.ours.start()
    mixed.wait_for_isr([1, 2, 3], "after the return of barnabas")
    groups.step(mixed.servers)
    transactions.end()
    sender.wait_for_more()
    sender.stop()
    transactions.check(mixed.servers)
    sender.check(mixed.servers)
    for broker in mixed.brokers.values():
        broker.stop()
    assert sender.check_files(list(mixed.brokers.values())) > 10


def _topics(mixed, asked):
    client = AdminClient({"bootstrap.servers": mixed.brokers[asked].address})
    return client.list_topics(timeout=10).topics
