"""zk.connect: brokers and topics are found in a real ZooKeeper, with real brokers of Kafka 2.7
that start and stop."""

import contextlib
import json
import time

import pytest
from compat.support import rival
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kazoo.client import KazooClient
from waiting import soon
from zookeeper_server import ZooKeeperServer

from barnabas.client import Cluster, Reader
from barnabas.client.failures import CannotConnect
from barnabas.clients import FailedToSend, KeyedMessage, Producer, ProducerData
from barnabas.clients.producer.zookeeper_brokers import address_of

WAIT_S = 60
VERSION = "2.7.2"


def register(client, number, address, **more):
    """A broker's node, as Kafka writes it."""
    host, _, port = address.rpartition(":")
    row = {"version": 4, "host": host, "port": int(port), "jmx_port": -1, "timestamp": "1"}
    row |= {"endpoints": [f"PLAINTEXT://{address}"], **more}
    path = f"/brokers/ids/{number}"
    client.create(path, json.dumps(row).encode(), ephemeral=True, makepath=True)
    return path


def test_a_lost_broker_and_a_new_one(zookeeper_server, tmp_path):
    """The brokers are ours, one at a time; the second takes over the first one's data."""
    from barnabas import Broker

    chroot = zookeeper_server.new_chroot()
    client = KazooClient(zookeeper_server.address)
    client.start(30)
    client.ensure_path(chroot)
    client.chroot = chroot
    settings = {"log.dirs": str(tmp_path)}
    producer = None
    try:
        with Broker(settings) as first:
            first.create_topic("t")
            path = register(client, 1, first.bootstrap_servers)
            producer = Producer(
                {
                    "zk.connect": zookeeper_server.connect(chroot),
                    "producer.type": "async",
                    "queue.time": "1",
                    "message.send.max.retries": "-1",
                }
            )
            for i in range(50):
                producer.send(ProducerData("t", b"%d" % i))
            first.assert_records("t", [b"%d" % i for i in range(50)])
        client.delete(path)
        for i in range(50, 100):  # no broker is running; the messages wait
            producer.send(ProducerData("t", b"%d" % i))
        with Broker(settings) as second:
            assert second.bootstrap_servers != first._run.settings.get("listeners")
            register(client, 2, second.bootstrap_servers)
            for i in range(100, 150):
                producer.send(ProducerData("t", b"%d" % i))
            second.assert_records("t", [b"%d" % i for i in range(150)], timeout_s=WAIT_S)
            producer.close()
        assert producer.metrics["dropped"] == 0
    finally:
        if producer is not None:
            producer.close()
        client.stop()
        client.close()


def test_no_broker_is_registered(zookeeper_server):
    chroot = zookeeper_server.new_chroot()
    with KazooClientOf(zookeeper_server.address) as client:
        client.ensure_path(chroot)
    settings = {"zk.connect": zookeeper_server.connect(chroot), "request.timeout.ms": "300"}
    with Producer(settings) as producer:
        with pytest.raises(FailedToSend, match="no broker is registered"):
            producer.send(ProducerData("t", b"v"))


def test_no_zookeeper_is_there():
    with pytest.raises(CannotConnect, match="no ZooKeeper responds at 127.0.0.1:1"):
        Producer({"zk.connect": "127.0.0.1:1", "zk.connectiontimeout.ms": "500"})


@pytest.mark.java
def test_zookeeper_may_go_away_and_come_back(tmp_path, session_broker, topic):
    with ZooKeeperServer(tmp_path) as zookeeper:
        with KazooClientOf(zookeeper.address) as client:
            register(client, 1, session_broker.bootstrap_servers)
            producer = Producer({"zk.connect": zookeeper.address})
            producer.send(ProducerData(topic, b"with"))
            zookeeper.kill()
            producer.send(ProducerData(topic, b"without"))
            zookeeper.start()
            producer.send(ProducerData(topic, b"with again"))
            producer.close()
    session_broker.assert_records(topic, [b"with", b"without", b"with again"])


@contextlib.contextmanager
def KazooClientOf(address):
    client = KazooClient(address)
    client.start(30)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize(
    ("data", "address"),
    [
        (b'{"host":"h","port":9,"endpoints":["PLAINTEXT://h:9"]}', "h:9"),
        (b'{"host":null,"port":-1,"endpoints":["SSL://h:1","PLAINTEXT://[::1]:2"]}', "[::1]:2"),
        (
            b'{"host":null,"port":-1,"endpoints":["IN://h:3"],'
            b'"listener_security_protocol_map":{"IN":"PLAINTEXT"}}',
            "h:3",
        ),
        (b"10.0.0.1-1300000000000:10.0.0.1:9092", "10.0.0.1:9092"),  # 0.7
        (b'{"host":null,"port":-1,"endpoints":["SSL://h:1"]}', None),
        (b"[]", None),
        (b"\xff\xfe", None),
        (b"", None),
    ],
)
def test_what_a_brokers_node_says(data, address):
    assert address_of(data) == address


class KafkaBroker(rival.Rival):
    """One of several brokers, with a ZooKeeper that runs already."""

    def __init__(self, data_dir, zookeeper, number):
        settings = {
            "broker.id": str(number),
            "zookeeper.connect": zookeeper,
            "zookeeper.session.timeout.ms": "2000",
            "auto.create.topics.enable": "false",
            "controlled.shutdown.enable": "false",
            "log.cleaner.enable": "false",
        }
        super().__init__(VERSION, data_dir, "zookeeper", settings)

    def _start_zookeeper(self):
        pass

    def _command(self):
        found = [word for word in super()._command() if not word.startswith("-Xm")]
        return [found[0], "-Xmx256m", "-XX:TieredStopAtLevel=1", *found[1:]]


def read(address, topic, partition):
    with Cluster(address) as cluster:
        reader = Reader(cluster, topic, {partition: 0}, to_end=True)
        return [record.value for _, record in reader]


@pytest.mark.java
def test_a_cluster_of_kafka_that_changes(zookeeper_server, tmp_path):
    """A new topic, a new broker, a topic on it, more partitions on it, and its loss."""
    if rival.missing(VERSION):
        pytest.skip(rival.missing(VERSION))
    chroot = zookeeper_server.new_chroot()
    zookeeper = zookeeper_server.connect(chroot)
    with KafkaBroker(tmp_path / "1", zookeeper, 1) as first:
        admin = AdminClient({"bootstrap.servers": first.address})
        create(admin, "old", [[1]])
        settings = {
            "zk.connect": zookeeper,
            "topic.metadata.refresh.interval.ms": "-1",  # changes are seen in ZooKeeper only
            "message.send.max.retries": "-1",
        }
        with Producer(settings) as producer:
            producer.send(KeyedMessage("old", b"1"))
            create(admin, "new", [[1]])
            producer.send(KeyedMessage("new", b"a new topic"))
            with KafkaBroker(tmp_path / "2", zookeeper, 2) as second:
                create(admin, "on-second", [[2]])
                producer.send(KeyedMessage("on-second", b"a topic on a new broker"))
                create(admin, "on-both", [[2, 1]])
                producer.send(KeyedMessage("on-both", b"on both"))
                grown = NewPartitions("old", 2, replica_assignment=[[2]])
                admin.create_partitions([grown])["old"].result(WAIT_S)
                soon(lambda: grows(producer), "the new partition was not seen")
                assert read(second.address, "old", 1) == [b"new partition"]
                assert read(second.address, "on-second", 0) == [b"a topic on a new broker"]
                second.kill()
            producer.send(KeyedMessage("on-both", b"after the loss"))
            producer.send(KeyedMessage("old", b"2", partition=0))
        assert read(first.address, "on-both", 0) == [b"on both", b"after the loss"]
        assert read(first.address, "old", 0) == [b"1", b"2"]
        assert read(first.address, "new", 0) == [b"a new topic"]


def create(admin, name, assignment):
    """Kafka accepts connections a little before its controller knows it as a broker."""
    asked = NewTopic(name, len(assignment), replica_assignment=assignment)
    end = time.monotonic() + WAIT_S
    while True:
        try:
            admin.create_topics([asked], request_timeout=10)[name].result(WAIT_S)
            return
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def grows(producer):
    """Whether partition 1 of `old` can be written to; it is written to once."""
    try:
        producer.send(KeyedMessage("old", b"new partition", partition=1))
    except ValueError:  # is not a partition: there are 1
        return False
    return True
