"""Tests transactions whose coordinator, partitions and group are on different brokers, without
faults."""

import pytest
from cluster.roles import coordinator
from cluster.three_brokers import Cluster
from compat.support import Wire
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from transactions.dialogue import Talk
from waiting import soon

from barnabas.client import Cluster as Client
from barnabas.controller.features import UNSAFE_DOWNGRADE, UPGRADE
from barnabas.wire import request

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


def test_every_broker_stores_transactions_at_the_level_that_one_was_told(cluster):
    """The level of transaction.version decides the version of a transaction's record."""
    topic = "levels"
    create(cluster, topic)
    ids = names_on_each_broker(cluster, "level", 1)
    try:
        for level in (0, 2):
            set_level(cluster, level)
            soon(lambda now=level: all_levels(cluster) == [now] * 3, "a broker has another level")
            before = len(stored_versions(cluster))
            for name in ids.values():
                producer = transactional(cluster, name)
                producer.begin_transaction()
                write(producer, topic, name)
                producer.commit_transaction(WAIT_S)
            written = soon(
                lambda at=before: whole(stored_versions(cluster)[at:]), "records are missing"
            )
            assert set(written) == {0 if level == 0 else 1}
    finally:
        set_level(cluster, 2)


def set_level(cluster, level):
    update = request(57)
    kind = UNSAFE_DOWNGRADE if level == 0 else UPGRADE
    row = update.struct("featureUpdates")(
        feature="transaction.version", maxVersionLevel=level, upgradeType=kind
    )
    with Wire(cluster.brokers[1].address) as wire:
        answer = wire.call(57, 1, update.cls(timeoutMs=1000, featureUpdates=[row]))
    assert answer.errorCode == 0, answer.errorMessage


def all_levels(cluster):
    """Returns the level of transaction.version that each broker tells."""
    found = []
    for broker in cluster.brokers.values():
        with Client(broker.address) as client:
            found.append(client.any_connection().features.get("transaction.version", 0))
    return found


def whole(versions):
    """Returns the versions when each of three ids has the four records of a transaction."""
    return versions if len(versions) >= 12 else None


def stored_versions(cluster):
    """Returns the version of each record with a value in __transaction_state."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "states",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    topic = "__transaction_state"
    partitions = consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, at, 0) for at in partitions])
    found, ended = [], set()
    while len(ended) < len(partitions):
        message = consumer.poll(WAIT_S)
        assert message is not None
        if message.error() is not None:
            ended.add(message.partition())
        elif message.value() is not None:
            found.append((message.timestamp()[1], message.value()[1]))
    consumer.close()
    return [version for _at, version in sorted(found)]
