"""The tree that our broker writes equals the tree that Apache Kafka writes, byte for byte."""

import re

import pytest
from compat.support import rival
from confluent_kafka import Producer
from kafka.admin import (
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    NewPartitions,
    NewTopic,
)
from waiting import soon

pytestmark = pytest.mark.java
HEAP = ("-Xmx512M", "-XX:TieredStopAtLevel=1")
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "auto.create.topics.enable": "false",
}
# What a broker registers, and Kafka does not: `Features.apply` tells by it who supports what.
OUR_FEATURES = (
    rb'"features":{"group.version":{"min_version":1,"max_version":1},'
    rb'"share.version":{"min_version":1,"max_version":1},'
    rb'"streams.version":{"min_version":1,"max_version":1},'
    rb'"transaction.version":{"min_version":1,"max_version":2}}'
)
MASKS = (
    (rb'"timestamp":"\d+"', rb'"timestamp":"T"'),
    (rb'"id":"[\w-]{22}"', rb'"id":"I"'),
    (rb'"topic_id":"[\w-]{22}"', rb'"topic_id":"I"'),
    (rb"127\.0\.0\.1:\d+", b"127.0.0.1:P"),
    (rb'"port":\d+', rb'"port":P'),
    (rb'"jmx_port":P', rb'"jmx_port":-1'),
    (OUR_FEATURES, b'"features":{}'),
)


def dump(client, chroot):
    """Path below the chroot -> masked data, and whether the znode is ephemeral."""
    found = {}

    def walk(path):
        data, stat = client.get(path)
        for pattern, instead in MASKS:
            data = data and re.sub(pattern, instead, data)
        short = path[len(chroot) :] or "/"
        found[short] = (data, stat.ephemeralOwner != 0)
        for name in client.get_children(path):
            walk(f"{path}/{name}")

    walk(chroot)
    return found


def act(bootstrap, client, chroot):
    """Carries out the same actions with either broker; returns when the tree has all of them."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    configs = {"retention.ms": "1000", "cleanup.policy": "compact,delete"}
    admin.create_topics([NewTopic("made", 2, 1, topic_configs=configs), NewTopic("gone", 1, 1)])
    soon(lambda: client.exists(f"{chroot}/brokers/topics/gone/partitions/0/state"), "gone")
    soon(lambda: client.exists(f"{chroot}/brokers/topics/made/partitions/1/state"), "made")
    admin.create_partitions({"made": NewPartitions(3)})
    soon(lambda: client.exists(f"{chroot}/brokers/topics/made/partitions/2/state"), "more")
    changed = {"retention.ms": "2000", "segment.bytes": "1048576"}
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "made", changed)])
    admin.alter_configs(
        [ConfigResource(ConfigResourceType.BROKER, "1", {"log.cleaner.threads": "2"})]
    )
    admin.delete_topics(["gone"])
    soon(lambda: not client.exists(f"{chroot}/admin/delete_topics/gone"), "gone is there")
    soon(lambda: not client.exists(f"{chroot}/brokers/topics/gone"), "gone is there")
    admin.close()
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce("made", b"value", partition=0)
    assert producer.flush(30) == 0


def tree_of_kafka(version, server, client, folder, **more):
    reason = rival.missing(version)
    if reason:
        pytest.skip(reason)
    chroot = server.new_chroot()
    settings = SETTINGS | more | {"zookeeper.connect": server.connect(chroot)}
    with rival.Rival(version, folder, "zookeeper", settings=settings, heap=HEAP) as kafka:
        act(kafka.address, client, chroot)
        return dump(client, chroot)


def tree_of_ours(server, client, brokers, **more):
    chroot = server.new_chroot()
    broker = brokers.start(server.connect(chroot), **SETTINGS, **more)
    soon(lambda: client.exists(f"{chroot}/feature"), "no features")
    act(broker.bootstrap_servers, client, chroot)
    return dump(client, chroot)


def difference(ours, theirs):
    """Path -> our data, and Kafka's data."""
    return {
        path: (ours.get(path), theirs.get(path))
        for path in sorted(ours.keys() | theirs.keys())
        if ours.get(path) != theirs.get(path)
    }


def test_beside_kafka_2_7_2(zookeeper_server, zk, brokers, tmp_path):
    """The one difference is the topic's id, which Kafka 2.7 does not know."""
    client = zk(zookeeper_server)
    rack = {"broker.rack": "r"}
    ours = tree_of_ours(zookeeper_server, client, brokers, **rack)
    theirs = tree_of_kafka("2.7.2", zookeeper_server, client, tmp_path / "kafka", **rack)
    assert difference(ours, theirs) == {
        "/brokers/topics/made": (
            (
                b'{"partitions":{"0":[1],"1":[1],"2":[1]},"topic_id":"I","adding_replicas":{},'
                b'"removing_replicas":{},"version":3}',
                False,
            ),
            (
                b'{"version":2,"partitions":{"0":[1],"1":[1],"2":[1]},"adding_replicas":{},'
                b'"removing_replicas":{}}',
                False,
            ),
        ),
    }


def test_beside_kafka_3_9_2(zookeeper_server, zk, brokers, tmp_path):
    """Topics as every later Kafka with ZooKeeper writes them, without its additions."""
    client = zk(zookeeper_server)
    ours = tree_of_ours(zookeeper_server, client, brokers)
    theirs = tree_of_kafka("3.9.2", zookeeper_server, client, tmp_path / "kafka")
    assert difference(ours, theirs) == {
        "/config/ips": (None, (None, False)),
        "/controller": (
            (b'{"version":1,"brokerid":1,"timestamp":"T"}', True),
            (b'{"version":2,"brokerid":1,"timestamp":"T","kraftControllerEpoch":-1}', True),
        ),
        "/feature": (
            (b'{"features":{},"version":1,"status":1}', False),
            (b'{"features":{},"version":2,"status":1}', False),
        ),
    }
