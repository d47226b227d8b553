"""The tools of Kafka 2.7 that write to ZooKeeper directly: the broker carries out their changes."""

import re
import subprocess

import pytest
from compat.support import rival
from confluent_kafka import Producer
from waiting import soon

pytestmark = [pytest.mark.java, pytest.mark.takes(seconds=15)]
KAFKA = "2.7.2"
QUICK = ("-Xmx256M", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


@pytest.fixture
def connect(zookeeper_server):
    reason = rival.missing(KAFKA)
    if reason:
        pytest.skip(reason)
    return zookeeper_server.connect(zookeeper_server.new_chroot())


@pytest.fixture
def tool(connect, tmp_path):
    def run(main, *arguments):
        command = rival.java(KAFKA, tmp_path / "tool.log", heap=QUICK)
        done = subprocess.run(
            [*command, main, *arguments], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def produced(broker, topic, partition):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    told = []
    producer.produce(
        topic, b"value", partition=partition, on_delivery=lambda error, _: told.append(error)
    )
    assert producer.flush(30) == 0
    return told == [None]


def test_topics_of_kafka_topics(brokers, connect, tool):
    def topics(*arguments):
        return tool("kafka.admin.TopicCommand", "--zookeeper", connect, *arguments)

    broker = brokers.start(connect)
    state = broker.node.cluster
    config = ("--config", "retention.ms=86400000")
    two = ("--partitions", "2", "--replication-factor", "1")
    assert "Created topic t." in topics("--create", "--topic", "t", *two, *config)
    soon(lambda: (t := state().topic("t")) and all(p.state for p in t.partitions.values()))
    assert produced(broker, "t", 1)
    topic_id = state().topic("t").topic_id
    assert topic_id and broker.node.dynamic
    assert dict(state().config("topics", "t")) == {"retention.ms": "86400000"}

    topics("--alter", "--topic", "t", "--partitions", "3")
    soon(lambda: len(state().topic("t").partitions) == 3)
    soon(lambda: state().topic("t").partitions[2].state and state().topic("t").is_id_kept)
    assert state().topic("t").topic_id == topic_id  # the topic id, which the tool does not write
    assert produced(broker, "t", 2)
    assert len(broker.records("t")) == 2

    broker.create_topic("ours", 2)
    assert set(topics("--list").split()) == {"t", "ours"}
    told = topics("--describe", "--topic", "ours")
    assert re.search(r"Topic: ours\s+PartitionCount: 2\s+ReplicationFactor: 1", told)
    assert len(re.findall(r"Leader: 1\s+Replicas: 1\s+Isr: 1", told)) == 2

    assert "marked for deletion" in topics("--delete", "--topic", "t")
    soon(lambda: state().topic("t") is None)
    soon(lambda: topics("--list").split() == ["ours"])
    soon(lambda: not list(broker.directory.glob("t-?")), "its directories are there")


def test_configs_of_kafka_configs(brokers, connect, tool):
    def configs(*arguments):
        return tool("kafka.admin.ConfigCommand", "--zookeeper", connect, *arguments)

    broker = brokers.start(connect)
    broker.create_topic("t")
    log_config = broker.node.loaded.replicas.topic_config
    of = ("--entity-type", "topics", "--entity-name", "t")
    configs("--alter", *of, "--add-config", "retention.ms=7777")
    soon(lambda: log_config("t").integer("retention.ms") == 7777)
    assert "retention.ms=7777" in configs("--describe", *of)


def test_deletion_that_is_switched_off(brokers, connect, tool, zk, zookeeper_server):
    broker = brokers.start(connect, delete_topic_enable="false")
    broker.create_topic("t")
    assert produced(broker, "t", 0)
    tool("kafka.admin.TopicCommand", "--zookeeper", connect, "--delete", "--topic", "t")
    marker = "/" + connect.partition("/")[2] + "/admin/delete_topics/t"
    client = zk(zookeeper_server)
    soon(lambda: client.exists(marker) is None, "the mark is there")
    assert produced(broker, "t", 0) and len(broker.records("t")) == 2


def test_zookeeper_shell(brokers, connect, tool):
    brokers.start(connect)
    shell = ("org.apache.zookeeper.ZooKeeperMain", "-server", connect)
    assert '"brokerid":1' in tool(*shell, "get", "/controller")
    assert "[1]" in tool(*shell, "ls", "/brokers/ids")


def test_a_tree_and_logs_of_kafka_2_7_2(zookeeper_server, brokers, connect, tmp_path):
    """Kafka is stopped, and our broker continues with its directories and its tree."""
    from kafka import KafkaConsumer, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic

    more = {"zookeeper.connect": connect, "offsets.topic.num.partitions": "1"}
    heap = ("-Xmx512M", "-XX:TieredStopAtLevel=1")
    with rival.Rival(KAFKA, tmp_path / "kafka", "zookeeper", settings=more, heap=heap) as kafka:
        admin = KafkaAdminClient(bootstrap_servers=kafka.address)
        admin.create_topics([NewTopic("kept", 2, 1, topic_configs={"max.message.bytes": "5000"})])
        changed = {"log.cleaner.threads": "2"}
        admin.alter_configs([ConfigResource(ConfigResourceType.BROKER, "1", changed)])
        producer = Producer({"bootstrap.servers": kafka.address})
        for number in range(100):
            producer.produce("kept", b"%d" % number, partition=number % 2)
        assert producer.flush(30) == 0
        consumer = KafkaConsumer(
            bootstrap_servers=kafka.address, group_id="g", auto_offset_reset="earliest"
        )
        consumer.assign([TopicPartition("kept", 0)])
        soon(lambda: consumer.poll(1000))
        consumer.commit()
        committed = consumer.committed(TopicPartition("kept", 0))
        consumer.close()
        admin.close()
    broker = brokers.start(connect, log_dirs=str(kafka.log_dir))
    state = broker.node.cluster()
    assert dict(state.config("topics", "kept")) == {"max.message.bytes": "5000"}
    assert broker.node.dynamic.integer("log.cleaner.threads") == 2
    found = sorted(int(row.value) for row in broker.records("kept"))
    assert found == list(range(100))
    assert state.topic("kept").topic_id and not state.without_id
    assert produced(broker, "kept", 0)
    with KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id="g") as consumer:
        assert consumer.committed(TopicPartition("kept", 0)) == committed
    before = state.topic("kept").topic_id
    broker.restart()
    assert broker.node.cluster().topic("kept").topic_id == before
    assert len(broker.records("kept")) == 101
