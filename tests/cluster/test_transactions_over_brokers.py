"""Tests transactions whose coordinator, partitions and group are on different brokers, without
faults."""

import pytest
from cluster.roles import coordinator
from cluster.three_brokers import Cluster, soon
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from transactions.dialogue import Talk

pytestmark = pytest.mark.takes(seconds=40)

PARTITIONS = 6
WAIT_S = 30
COMMITTED = ("a", "c")  # what the transactions of one producer write; "b" is aborted


@pytest.fixture(scope="module")
def cluster(shared_zookeeper, tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("cluster"), shared_zookeeper.connect("/t")) as made:
        yield made


def create(cluster, topic):
    """Creates a topic whose partitions have all three brokers as leaders."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(WAIT_S)
    soon(lambda: set(leaders(cluster, topic).values()) == {1, 2, 3}, "not all brokers lead")


def leaders(cluster, topic):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    found = admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
    return {index: row.leader for index, row in found.items() if len(row.isrs) == 3}


def names_on_each_broker(cluster, stem, kind):
    """Returns for each broker a name that it coordinates."""
    found = {}
    for number in range(100):
        name = f"{stem}-{number}"
        found.setdefault(coordinator(cluster, name, kind), name)
        if len(found) == 3:
            return found
    raise AssertionError(f"one broker coordinates nothing: {found}")


def transactional(cluster, name):
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(WAIT_S)
    return producer


def write(producer, topic, word):
    for partition in range(PARTITIONS):
        producer.produce(topic, word, partition=partition)


def read_committed(cluster, topic):
    """Returns the values of each partition, read up to the last stable offset, which must be the
    end."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, at, 0) for at in range(PARTITIONS)])
    found, ended = {at: [] for at in range(PARTITIONS)}, set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(WAIT_S)
        assert message is not None
        if message.error() is None:
            found[message.partition()].append(message.value().decode())
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF
            ended.add(message.partition())
    consumer.close()
    return found


def test_each_committed_record_is_read_once_and_offsets_go_with_it(cluster):
    topic = "first"
    create(cluster, topic)
    groups = [
        Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
        for group in names_on_each_broker(cluster, "group", 0).values()
    ]
    ids = names_on_each_broker(cluster, "id", 1)
    for broker_id, name in ids.items():
        producer = transactional(cluster, name)
        for word in ("a", "b", "c"):
            producer.begin_transaction()
            write(producer, topic, f"{name} {word}")
            for group in groups:
                position = TopicPartition(topic, broker_id, ord(word))
                producer.send_offsets_to_transaction(
                    [position], group.consumer_group_metadata(), WAIT_S
                )
            if word in COMMITTED:
                producer.commit_transaction(WAIT_S)
            else:
                producer.abort_transaction(WAIT_S)
    expected = sorted(f"{name} {word}" for name in ids.values() for word in COMMITTED)
    found = read_committed(cluster, topic)
    assert {at: sorted(values) for at, values in found.items()} == dict.fromkeys(found, expected)
    for group in groups:
        rows = group.committed([TopicPartition(topic, at) for at in (1, 2, 3)], WAIT_S)
        assert [row.offset for row in rows] == [ord(COMMITTED[-1])] * 3
        group.close()


def test_a_fenced_producer_is_refused_by_leaders_on_other_brokers(cluster):
    topic = "fenced"
    create(cluster, topic)
    for name in names_on_each_broker(cluster, "fenced", 1).values():
        old = transactional(cluster, name)
        old.begin_transaction()
        write(old, topic, f"{name} old")
        old.flush(WAIT_S)
        new = transactional(cluster, name)  # aborts the transaction of the old one
        with pytest.raises(KafkaException) as raised:
            write(old, topic, "late")
            old.commit_transaction(WAIT_S)
        assert raised.value.args[0].code() == KafkaError._FENCED
        new.begin_transaction()
        write(new, topic, f"{name} new")
        new.commit_transaction(WAIT_S)
    found = read_committed(cluster, topic)
    for values in found.values():
        assert [value.split()[1] for value in values] == ["new"] * 3


def test_a_producer_of_the_second_version_adds_partitions_at_another_broker(cluster):
    """KIP-890: the client sends no AddPartitionsToTxn, and each end gives it a new epoch."""
    name = "second"
    create(cluster, f"{name}-topic")
    at = {id_: Talk(broker.address, name, again=True) for id_, broker in cluster.brokers.items()}
    own = at[coordinator(cluster, f"{name}-txn", 1)]
    group = at[coordinator(cluster, f"{name}-group", 0)]
    code, *producer = own.init(version=5)
    assert code == 0
    for turn, word in enumerate(("a", "b", "c")):
        now = tuple(producer)
        for partition, leader in leaders(cluster, own.topic).items():
            for sequence in (0, 1):
                code, _offset = at[leader].produce(
                    now, sequence, version=12, partition=partition, values=[word.encode()]
                )
                assert code == 0, (turn, partition, leader, sequence)
        assert group.commit_offsets(now, ord(word), version=5) == [0]
        code, *producer = own.end(now, word in COMMITTED, version=5)
        assert code == 0 and tuple(producer) == (now[0], now[1] + 1)
    found = read_committed(cluster, own.topic)
    assert list(found.values()) == [["a", "a", "c", "c"]] * PARTITIONS
    stale = (producer[0], producer[1] - 1)
    for partition, leader in leaders(cluster, own.topic).items():
        code, _offset = at[leader].produce(stale, 2, version=12, partition=partition)
        assert code == 47  # INVALID_PRODUCER_EPOCH
