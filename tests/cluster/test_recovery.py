"""Recovery of a cluster whose ZooKeeper, disks or brokers are gone (docs/cluster/recovery.md)."""

import json
import shutil

import pytest
from cli.conftest import run_command
from cluster.test_join_and_leave import topic_id
from cluster.three_brokers import Cluster
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import soon

from barnabas.controller.rebuilt_tree import PRODUCER_ID_MARGIN

pytestmark = pytest.mark.takes(seconds=15)

WAIT_S = 30
PARTITIONS = 3


def create(cluster, name, replicas, **configs):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    texts = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([NewTopic(name, PARTITIONS, replicas, config=texts)])[name].result(WAIT_S)


def produce(servers, topic, count, **settings):
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, **settings})
    failed = []
    for number in range(count):
        producer.produce(
            topic,
            b"%d" % number,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(WAIT_S) == 0
    return failed


def records(servers, topic):
    done = run_command("consume", topic, "--from-beginning", "--end", "-b", servers)
    assert done.status == 0, done.err
    return len(done.text.splitlines())


def healthy(servers):
    soon(
        lambda: run_command("cluster", "health", "-b", servers).status == 0,
        "the cluster does not get healthy",
    )


def pay(servers, times):
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "paying"})
    producer.init_transactions(WAIT_S)
    for _ in range(times):
        producer.begin_transaction()
        producer.produce("kept", b"paid", partition=0)
        producer.commit_transaction(WAIT_S)
    found = run_command("transactions", "describe", "paying", "--json", "-b", servers)
    return json.loads(found.text)[0]


def committed(servers):
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "readers"})
    try:
        [found] = consumer.committed([TopicPartition("kept", 1)], WAIT_S)
        return found.offset
    finally:
        consumer.close()


def commit(servers, offset):
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("kept", 1, offset)], asynchronous=False)
    consumer.close()


def test_the_data_of_zookeeper_is_lost(own_zookeeper, tmp_path):
    connect = own_zookeeper.connect("/kept")
    settings = {
        "offsets_topic_replication_factor": "2",
        "transaction_state_log_replication_factor": "2",
        "transaction_state_log_min_isr": "1",
    }
    with Cluster(tmp_path, connect, count=2, **settings) as cluster:
        one, two = cluster.brokers.values()
        create(cluster, "kept", 2, retention_ms="3600000")
        produce(cluster.bootstrap_servers, "kept", 60)
        commit(cluster.bootstrap_servers, 7)
        paid = pay(cluster.bootstrap_servers, 1)
        known_id = topic_id(cluster.bootstrap_servers, "kept")
        two.stop()
        staying = Producer({"bootstrap.servers": one.address, "enable.idempotence": True})
        for _ in range(30):
            staying.produce("kept", b"only on one", partition=1)
        assert staying.flush(WAIT_S) == 0
        one.kill()
        own_zookeeper.kill()
        shutil.rmtree(own_zookeeper.data_dir / "data")
        own_zookeeper.start()
        with pytest.raises(AssertionError, match="recover` if ZooKeeper's data is lost"):
            two.start()
        two.wait()

        files = []
        for broker in (one, two):
            files.append(tmp_path / f"broker-{broker.node_id}.json")
            found = run_command(
                "cluster", "inventory", "--json", "--set", f"log.dirs={broker.data}"
            )
            assert found.status == 0, found.err
            files[-1].write_bytes(found.out)
        words = ["cluster", "recover", *map(str, files), "--set", f"zookeeper.connect={connect}"]
        dry = run_command(*words, "--dry-run")
        assert dry.status == 0 and "/brokers/topics/kept/partitions/2/state" in dry.text, dry.err
        done = run_command(*words)
        assert done.status == 0, done.err
        assert "not rebuilt: settings of topics. 1 topics get" in done.err
        assert "not rebuilt: users (SCRAM), access rules" in done.err
        assert "broker 1 was not stopped cleanly" in done.err
        again = run_command(*words)
        assert again.status == 1 and "is not empty" in again.err

        two.start()  # it lacks records, and waits for broker 1
        one.start()
        healthy(one.address)
        assert records(one.address, "kept") == 91
        staying.produce("kept", b"goes on", partition=1)
        assert staying.flush(WAIT_S) == 0
        assert topic_id(one.address, "kept") == known_id
        assert committed(one.address) == 7
        commit(one.address, 9)
        assert pay(one.address, 1)["producerId"] == paid["producerId"]
        assert not produce(cluster.bootstrap_servers, "kept", 3)
        config = run_command("configs", "describe", "topic", "kept", "--json", "-b", one.address)
        assert {row["name"]: row["value"] for row in json.loads(config.text)}[
            "retention.ms"
        ] == "-1"
        new = Producer({"bootstrap.servers": one.address, "transactional.id": "new"})
        new.init_transactions(WAIT_S)
        found = run_command("transactions", "describe", "new", "--json", "-b", one.address)
        assert json.loads(found.text)[0]["producerId"] > PRODUCER_ID_MARGIN
        assert records(one.address, "kept") == 96


@pytest.mark.only_long
def test_a_broker_gets_an_empty_disk(own_zookeeper, tmp_path):
    with Cluster(tmp_path, own_zookeeper.connect("/disk")) as cluster:
        create(cluster, "kept", 3, min_insync_replicas="2")
        produce(cluster.bootstrap_servers, "kept", 90)
        two, three = cluster.brokers[2], cluster.brokers[3]
        three.kill()
        shutil.rmtree(three.data)
        assert not produce(cluster.bootstrap_servers, "kept", 30)
        three.start()
        healthy(cluster.bootstrap_servers)
        assert records(cluster.bootstrap_servers, "kept") == 120
        for broker in cluster.brokers.values():
            broker.stop()
        for index in range(PARTITIONS):
            assert list(three.batches("kept", index)) == list(two.batches("kept", index))


@pytest.mark.only_long
def test_two_of_three_brokers_are_gone(own_zookeeper, tmp_path):
    with Cluster(tmp_path, own_zookeeper.connect("/majority")) as cluster:
        one, two, three = cluster.brokers.values()
        create(cluster, "kept", 3, min_insync_replicas="2")
        produce(cluster.bootstrap_servers, "kept", 90)
        for broker in (two, three):
            broker.kill()
            shutil.rmtree(broker.data)

        def leads_alone():
            found = run_command("cluster", "under-replicated", "--json", "-b", one.address)
            rows = [row for row in json.loads(found.text) if row["topic"] == "kept"]
            return len(rows) == PARTITIONS and all(row["inSync"] == [1] for row in rows)

        soon(leads_alone, "broker 1 does not lead alone")
        refused = produce(one.address, "kept", 3, **{"message.timeout.ms": 3000})
        assert len(refused) == 3
        altered = run_command(
            "topics", "alter", "kept", "--config", "min.insync.replicas=1", "-b", one.address
        )
        assert altered.status == 0, altered.err
        assert not produce(one.address, "kept", 30)
        assert records(one.address, "kept") == 120
        for broker in (two, three):
            broker.start()
        healthy(cluster.bootstrap_servers)
        one.stop()
        assert records(two.address, "kept") == 120
        with pytest.raises(KafkaException):
            Producer({"bootstrap.servers": one.address}).list_topics(timeout=1)
