"""Administrative calls of the client, with our broker and with Apache Kafka."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat.support import KAFKA, QUICK_HEAP, rival
from waiting import soon

from barnabas import Broker
from barnabas.client import (
    EARLIEST,
    Cluster,
    ConfigChange,
    NewTopic,
    Producer,
    Resource,
    alter_configs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    list_offsets,
)
from barnabas.client.admin import SET, TOPIC
from barnabas.errors import (
    InvalidPartitions,
    OffsetOutOfRange,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)


@pytest.fixture(scope="module", params=["barnabas", pytest.param("kafka", marks=pytest.mark.java)])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("admin")
    if request.param == "kafka":
        reason = rival.missing(KAFKA)
        if reason:
            pytest.skip(reason)
        with rival.Rival(KAFKA, folder, heap=QUICK_HEAP) as kafka, Cluster(kafka.address) as made:
            yield made
        return
    settings = {"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0"}
    with Broker(settings) as broker, Cluster(broker.bootstrap_servers) as made:
        yield made


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = f"a{random.randrange(10**12)}"
    create_topics(cluster, [NewTopic(name, partition_count=1)])
    return name


def test_records_below_an_offset_are_deleted(cluster: Cluster, topic: str):
    with Producer(cluster, topic) as producer:
        for i in range(10):
            producer.send(b"%d" % i)
    assert delete_records(cluster, topic, {0: 4}) == {0: 4}
    assert list_offsets(cluster, topic, {0: EARLIEST})[0].offset == 4
    assert delete_records(cluster, topic, {0: -1}) == {0: 10}
    with pytest.raises(OffsetOutOfRange, match=topic):
        delete_records(cluster, topic, {0: 11})


def test_the_cluster_tells_its_brokers(cluster: Cluster):
    found = describe_cluster(cluster)
    cluster.refresh([])
    assert found.clusterId == cluster.cluster_id
    assert [broker.brokerId for broker in found.brokers] == list(cluster.brokers)


def test_log_directories_tell_sizes(cluster: Cluster, topic: str):
    with Producer(cluster, topic) as producer:
        producer.send(b"x" * 1000)
    [node_id] = cluster.brokers
    [directory] = describe_log_dirs(cluster, node_id, {topic: [0]})
    [found] = directory.topics
    assert found.name == topic and found.partitions[0].partitionSize > 1000
    assert topic in {row.name for row in describe_log_dirs(cluster, node_id)[0].topics}


def test_one_of_several_that_is_refused_is_named_and_the_others_are_done(
    cluster: Cluster, topic: str
):
    with pytest.raises(TopicAlreadyExists, match=topic):
        create_topics(cluster, [NewTopic(topic, 1), NewTopic(f"{topic}-2", 1)])
    end = time.monotonic() + 60
    while f"{topic}-2" not in cluster.topics():  # KRaft's brokers apply it a moment later
        assert time.monotonic() < end
    with pytest.raises(UnknownTopicOrPartition):
        delete_topics(cluster, ["absent", topic])
    assert topic not in cluster.topics()


def test_what_is_only_asked_is_not_done(cluster: Cluster, topic: str):
    create_topics(cluster, [NewTopic(f"{topic}-asked", 1)], validate_only=True)
    assert f"{topic}-asked" not in cluster.topics()
    resource = Resource(TOPIC, topic)
    change = ConfigChange(SET, "retention.ms", "77")
    alter_configs(cluster, resource, [change], validate_only=True)
    before = {row.name: row.value for row in describe_configs(cluster, resource)}
    alter_configs(cluster, resource, [change])
    after, deadline = before, time.monotonic() + 10
    while after == before and time.monotonic() < deadline:  # Kafka answers before it applies
        after = {row.name: row.value for row in describe_configs(cluster, resource)}
    assert before["retention.ms"] != "77" and after == before | {"retention.ms": "77"}


def test_partitions_grow(cluster: Cluster, topic: str):
    create_partitions(cluster, {topic: 3})

    def grown():  # Kafka answers before each broker knows
        cluster.forget(topic)
        return list(cluster.topic(topic).partitions) == [0, 1, 2]

    soon(grown)
    with pytest.raises(InvalidPartitions):
        create_partitions(cluster, {topic: 2})
