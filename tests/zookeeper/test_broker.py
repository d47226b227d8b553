"""A broker with its metadata in ZooKeeper: clients see no difference, and a restart restores
all."""

from dataclasses import replace

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import (
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    NewPartitions,
    NewTopic,
)
from kafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError

from barnabas.cli.storage_backup import back_up
from barnabas.cli.storage_snapshot import NotTaken, take
from barnabas.config.zookeeper import ZooKeeperLogin, ZooKeeperSettings
from barnabas.metadata import znodes
from barnabas.metadata.tree import CreateNode, TooLarge, shares
from barnabas.metadata.zookeeper import ZooKeeperTree


@pytest.fixture
def connect(zookeeper_server):
    return zookeeper_server.connect(zookeeper_server.new_chroot() + "/nested")


def admin_of(broker):
    return KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)


def configs_of(admin, topic):
    (found,) = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    return found


def test_administration_and_a_restart(brokers, connect):
    broker = brokers.start(connect)
    admin = admin_of(broker)
    admin.create_topics([NewTopic("kept", 2, 1, topic_configs={"retention.ms": "86400000"})])
    admin.create_topics([NewTopic("gone", 1, 1)])
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic("kept", 1, 1)])
    admin.create_partitions({"kept": NewPartitions(3)})
    changed = ConfigResource(ConfigResourceType.TOPIC, "kept", {"retention.bytes": "4096"})
    admin.alter_configs([changed])
    admin.delete_topics(["gone"])
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics(["gone"])
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    assert producer.send("kept", b"value", partition=2).get(30).offset == 0
    producer.close()
    admin.close()
    topic_id = broker.node.cluster().topic("kept").topic_id
    broker.restart()
    state = broker.node.cluster()
    assert broker.topics == ["kept"] and state.topic("kept").topic_id == topic_id
    assert len(state.topic("kept").partitions) == 3
    assert dict(state.config("topics", "kept"))["retention.bytes"] == "4096"
    assert [row.value for row in broker.records("kept")] == [b"value"]
    assert state.controller_id == 1 and state.controller_epoch == 2


def test_groups_producer_ids_and_transactions(brokers, connect):
    from confluent_kafka import Consumer, Producer

    broker = brokers.start(connect)
    broker.create_topic("t")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("t", b"committed")
    producer.commit_transaction(30)
    producer.begin_transaction()
    producer.produce("t", b"aborted")
    producer.flush(30)
    producer.abort_transaction(30)
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.subscribe(["t"])
    read = consumer.poll(30)
    assert read.value() == b"committed"
    consumer.commit(read, asynchronous=False)
    consumer.close()
    broker.restart()
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id="g")
    assert consumer.committed(TopicPartition("t", 0)) == 1
    consumer.close()
    state = broker.node.cluster()
    assert {"__consumer_offsets", "__transaction_state"} <= state.topics.keys()


def test_the_embedded_store_stays_the_default(tmp_path, zookeeper_server, zk):
    from barnabas import Broker

    chroot = zookeeper_server.new_chroot()
    settings = {"log.dirs": tmp_path / "d", "zookeeper.connect": zookeeper_server.connect(chroot)}
    with Broker(settings) as broker:
        assert "embedded" in " ".join(broker.node.config.notices)
    assert zk(zookeeper_server).exists(chroot) is None


def test_a_topic_larger_than_one_multi(brokers, connect):
    """ZooKeeper accepts 1 MB at once; Kafka also creates such topics in several steps."""
    broker = brokers.start(connect)
    tree = broker.node.opened.tree
    tree.limits = replace(tree.limits, multi_operations_max=20)
    broker.create_topic("large", 40)
    broker.node.serving.administration.growth.grow("large", 60)
    state = broker.node.cluster()
    assert len(state.topic("large").partitions) == 60
    assert all(row.state is not None for row in state.topic("large").partitions.values())
    broker.delete_topic("large")
    assert tree.exists(znodes.topic_path("large")) is None
    assert tree.children(znodes.DELETE_TOPICS_PATH) == []


@pytest.mark.parametrize("data_bytes", [0, 100, 10_000])
@pytest.mark.parametrize("login", [None, ZooKeeperLogin("digest", "u" * 200, "p")])
def test_what_the_limits_allow_zookeeper_takes(zookeeper_server, data_bytes, login):
    """ZooKeeper would close the connection after a packet that is too large."""
    settings = ZooKeeperSettings(
        zookeeper_server.address,
        zookeeper_server.new_chroot() + "/long" * 100,
        login=login,
        set_acl=login is not None,
    )
    tree = ZooKeeperTree(settings)
    try:
        operations = [CreateNode(f"/n{n}", b"x" * data_bytes) for n in range(6000)]
        first = next(shares(operations, tree.limits))
        assert 50 < len(first) < 6000
        assert len(tree.multi(first)) == len(first)
        with pytest.raises(TooLarge):
            tree.multi(operations[: len(first) + 1])
        assert len(tree.children("/")) == len(first)
    finally:
        tree.close()


def test_a_running_broker_has_no_snapshot(brokers, connect, tmp_path):
    """Its metadata would not be in it. A backup of a running broker begins with a snapshot."""
    broker = brokers.start(connect)
    [directory] = broker.node.loaded.logs.directories()
    for make in (
        lambda: take(directory.path, tmp_path / "copy", forks=False),
        lambda: back_up([directory.path], str(tmp_path / "backups"), lambda *_: None),
    ):
        with pytest.raises(NotTaken, match="metadata of this broker is in ZooKeeper"):
            make()
    assert not (tmp_path / "copy").exists()
