"""`barnabas storage import` of directories that Apache Kafka wrote in ZooKeeper mode.

recorded/kafka-0.11.0.3.tar.xz: topic `old` with messages of format 1 in gzip, of a release that
writes neither topic ids nor a cluster id into its directories."""

import json
import shutil

import pytest
from confluent_kafka import Consumer, TopicPartition
from kazoo.client import KazooClient
from takeover.importing import content, files, import_to
from takeover.kafka_before import READERS, recorded
from takeover.test_import_real_kafka import values
from zookeeper_server import ZooKeeperServer

from barnabas import Broker
from barnabas.cli.zookeeper_process import missing
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.znodes import PartitionState, decode_config

OLD = "old"
PARTITIONS = {OLD: 2, "__consumer_offsets": 3}
CLUSTER_ID = "OldClusterOfTheTests01"
ALICE = {"SCRAM-SHA-256": "salt=YQ==,stored_key=Yg==,server_key=Yw==,iterations=4096"}
RULE = {"principal": "User:alice", "permissionType": "Allow", "operation": "Read", "host": "*"}
TREE = {
    "cluster/id": {"version": "1", "id": CLUSTER_ID},
    "latest_producer_id_block": {
        "version": 1,
        "broker": 1,
        "block_start": "4000",
        "block_end": "4999",
    },
    f"config/topics/{OLD}": {"version": 1, "config": {"retention.ms": "-1"}},
    "config/brokers/1": {"version": 1, "config": {"log.cleaner.threads": "1"}},
    "config/brokers/2": {"version": 1, "config": {"log.cleaner.threads": "2"}},
    "config/users/alice": {"version": 1, "config": {**ALICE, "producer_byte_rate": "1048576"}},
    f"kafka-acl/Topic/{OLD}": {"version": 1, "acls": [RULE]},
    "admin/delete_topics/gone": None,
    "brokers/topics/gone": {"version": 1, "partitions": {"0": [1]}},
    "controller_epoch": 7,
}


@pytest.fixture
def source(tmp_path):
    return recorded("0.11.0.3", tmp_path / "kafka")


@pytest.fixture
def zookeeper(tmp_path):
    if reason := missing():
        pytest.skip(reason)
    with ZooKeeperServer(tmp_path / "zookeeper") as running:
        write_tree(running, isr=[1])
        yield running


def write_tree(zookeeper, isr):
    """Writes the tree of the cluster below the chroot /main, and a tree of another one."""
    nodes = {f"/main/{path}": value for path, value in TREE.items()}
    for topic, count in PARTITIONS.items():
        replicas = {str(partition): [1] for partition in range(count)}
        nodes[f"/main/brokers/topics/{topic}"] = {"version": 1, "partitions": replicas}
        for partition in range(count):
            state = {"controller_epoch": 7, "leader": 1, "version": 1, "leader_epoch": 3}
            path = f"/main/brokers/topics/{topic}/partitions/{partition}/state"
            nodes[path] = state | {"isr": isr}
    nodes["/other/brokers/topics"] = None
    nodes["/other/cluster/id"] = {"version": "1", "id": "AnotherCluster"}
    client = KazooClient(zookeeper.address)
    client.start(30)
    for path, value in nodes.items():
        data = b"" if value is None else json.dumps(value).encode()
        client.ensure_path(path)
        client.set(path, data)
    client.stop()
    client.close()


def read(data, path):
    tree = EmbeddedTree(data / "metadata", clock_ms=lambda: 0)
    try:
        return tree.get(path)[0]
    finally:
        tree.close()


def offsets_of(servers):
    consumer = Consumer({"bootstrap.servers": servers, "group.id": READERS})
    (found,) = consumer.committed([TopicPartition(OLD, 0)], 20)
    consumer.close()
    return found.offset


def test_without_zookeeper_what_is_there_alone_is_named(tmp_path, capsys, source):
    before, data = content(source), tmp_path / "new"
    found = import_to(capsys, data, source)
    assert content(source) == before
    assert [row["records"] for row in found["partitions"] if row["topic"] == OLD] == [100, 100]
    assert (found["groups"], found["groupOffsets"]) == (1, 1)
    assert found["notes"][0].startswith("not imported: settings, access rules, SCRAM users")
    assert "retention.ms=-1" in found["notes"][1]
    for name in (f"{OLD}-0", f"{OLD}-1"):
        assert files(data / name) == files(source / name)
    assert decode_config(read(data, f"/config/topics/{OLD}"))["retention.ms"] == "-1"
    with Broker({"log.dirs": data}, durable=False) as broker:
        sent = [b"%d" % number for number in range(0, 200, 2)]
        assert values(broker.bootstrap_servers, OLD, 0) == sent
        assert offsets_of(broker.bootstrap_servers) == 33


def test_a_cluster_without_an_id_gets_the_same_one_in_each_run(tmp_path, capsys, source):
    """By this id a run knows the directory that a killed one has left."""
    first = import_to(capsys, tmp_path / "new", source)
    shutil.rmtree(tmp_path / "new")
    assert import_to(capsys, tmp_path / "new", source) == first


def test_a_directory_of_kafka_08_needs_the_id_of_its_broker(tmp_path, capsys, source):
    (source / "meta.properties").unlink()
    (line,) = import_to(capsys, tmp_path / "new", source, status=1)
    assert "as those of Kafka 0.7 and 0.8" in line and "--set node.id=ID" in line
    found = import_to(capsys, tmp_path / "new", source, "--set", "node.id=4")
    assert found["nodeId"] == 4
    with Broker({"log.dirs": tmp_path / "new"}, durable=False) as broker:
        assert broker.topics == [OLD]


@pytest.mark.java
@pytest.mark.parametrize("place", ["address", "data directory"])
def test_zookeeper_has_the_rest(tmp_path, capsys, source, zookeeper, place):
    (source / "meta.properties").write_text(
        f"broker.id=1\nversion=0\ncluster.id={CLUSTER_ID}\n"  # as from Kafka 2.4 on
    )
    where = f"{zookeeper.address}/main"
    if place != "address":
        zookeeper.stop()
        where = zookeeper.data_dir / "data"
        assert (where / "version-2").is_dir()
        before_zookeeper = content(where)
    before, data = content(source), tmp_path / "new"
    found = import_to(capsys, data, source, "--zookeeper", where)
    assert content(source) == before
    if place != "address":
        assert content(where) == before_zookeeper
    assert found["clusterId"] == CLUSTER_ID
    counts = ("topics", "settings", "accessRules", "users", "quotas")
    assert [found[name] for name in counts] == [2, 2, 1, 1, 1]
    assert found["notes"] == [
        "not imported: settings of broker 2: log.cleaner.threads",
        "not imported: topic gone: it was being deleted",
    ]
    assert json.loads(read(data, "/config/users/alice")) == TREE["config/users/alice"]
    assert json.loads(read(data, f"/kafka-acl/Topic/{OLD}")) == TREE[f"kafka-acl/Topic/{OLD}"]
    assert b"4999" in read(data, "/latest_producer_id_block")
    state = PartitionState.decode(read(data, f"/brokers/topics/{OLD}/partitions/1/state"))
    assert state == PartitionState(1, 4, (1,), 0)
    with Broker({"log.dirs": data}, durable=False) as broker:
        assert broker.topics == [OLD]
        assert offsets_of(broker.bootstrap_servers) == 33


@pytest.mark.java
def test_a_replica_that_is_not_in_sync_is_refused(tmp_path, capsys, source, zookeeper):
    write_tree(zookeeper, isr=[2])
    where = f"{zookeeper.address}/main"
    lines = import_to(capsys, tmp_path / "new", source, "--zookeeper", where, status=1)
    assert len(lines) == sum(PARTITIONS.values())
    assert all("broker 1 was not in sync (in sync: 2)" in line for line in lines)
    found = import_to(capsys, tmp_path / "new", source, "--zookeeper", where, "--allow-loss")
    assert sum(note.startswith("lost: ") for note in found["notes"]) == len(lines)


@pytest.mark.java
def test_another_clusters_zookeeper_is_refused(tmp_path, capsys, source, zookeeper):
    (source / "meta.properties").write_text("broker.id=1\nversion=0\ncluster.id=Third\n")
    for where in (f"{zookeeper.address}/main", zookeeper.data_dir / "data"):
        (line,) = import_to(capsys, tmp_path / "new", source, "--zookeeper", where, status=1)
        assert CLUSTER_ID in line and "Third" in line
    where = f"{zookeeper.address}/nowhere"
    (line,) = import_to(capsys, tmp_path / "new", source, "--zookeeper", where, status=1)
    assert "has no topics of Kafka" in line


def test_a_directory_that_is_not_zookeepers_is_refused(tmp_path, capsys, source):
    (line,) = import_to(capsys, tmp_path / "new", source, "--zookeeper", tmp_path, status=1)
    assert f"{tmp_path} is not a data directory of ZooKeeper" in line
