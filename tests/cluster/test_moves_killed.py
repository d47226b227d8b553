"""Kills `barnabas cluster join` and `leave` (SIGKILL) before and after each change.

After each kill the same command completes the move, with the same tree and store as a move without
a kill. At no time can a broker start on both stores."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest
from cluster import killed_move
from confluent_kafka import Producer
from long_form import pick

from barnabas import Broker
from barnabas.cli import main
from barnabas.config.zookeeper import ZooKeeperSettings
from barnabas.metadata import tree_copy, znodes
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.zookeeper import ZooKeeperTree
from barnabas.node import CannotStart

pytestmark = pytest.mark.takes(seconds=20)

EVERY = pick(short=7, long=1)
LEAVE = znodes.Unfinished("leave", 1)


def settings_of(data, store="embedded", connect="unused:1"):
    return {
        "log.dirs": str(data),
        "metadata.store": store,
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": "6000",
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "num.network.threads": "1",
        "offsets.topic.num.partitions": "3",
        "offsets.topic.replication.factor": "1",
    }


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """Returns the log directory of a stopped single broker."""
    data = tmp_path_factory.mktemp("single") / "data"
    with Broker(settings_of(data)) as broker:
        broker.create_topic("news", 7, configs={"retention.ms": 86_400_000})
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("news", b"kept", partition=0)
        assert producer.flush(30) == 0
    return data


@contextmanager
def zookeeper_tree(connect):
    hosts, _, chroot = connect.partition("/")
    with closing(ZooKeeperTree(ZooKeeperSettings(hosts, "/" + chroot))) as tree:
        yield tree


def dump(connect):
    with zookeeper_tree(connect) as tree:
        return {node.path: node.data for node in tree.subtree("/")}


def store_of(data):
    """Returns the embedded store of a stopped broker: data by path. The epochs of a leave differ in
    each run."""
    with closing(EmbeddedTree(data / "metadata", clock_ms=lambda: 1)) as store:
        return {node.path: node.data for node in store.subtree("/")}


def words(action, data, connect):
    given = settings_of(data, connect=connect) | {"zookeeper.connection.timeout.ms": "6000"}
    return [
        "cluster",
        action,
        *(word for row in given.items() for word in ("--set", "=".join(row))),
    ]


def run_child(at, *command):
    child = subprocess.run(
        [sys.executable, killed_move.__file__, str(at), *command],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert child.returncode == (0 if at < 0 else -signal.SIGKILL), (at, child.stderr)
    return child.stdout


def check_stores(data, connect):
    """Returns whether the broker starts on its embedded store. If it does, no broker starts on the
    tree in ZooKeeper."""
    copy = data.with_name(f"{data.name}-started")
    shutil.copytree(data, copy)
    try:
        with Broker(settings_of(copy)) as broker:
            assert [row.value for row in broker.records("news")] == [b"kept"]
    except CannotStart as error:
        assert "barnabas cluster join" in str(error) or "its metadata is not here" in str(error)
        return False
    with zookeeper_tree(connect) as tree:
        owner = tree_copy.owner_of(tree)
    if owner.cluster_id is not None:
        assert owner.unfinished is not None
        with pytest.raises(CannotStart, match=f"{owner.unfinished} has not finished its work"):
            Broker(settings_of(copy, "zookeeper", connect)).start()
    return True


def test_a_killed_join_goes_on(single, zookeeper_server, tmp_path, capsys):
    def prepared(name):
        data = tmp_path / name
        shutil.copytree(single, data)
        return data, zookeeper_server.connect(zookeeper_server.new_chroot())

    whole, connect = prepared("whole")
    changes = int(run_child(-1, *words("join", whole, connect)))
    wanted = dump(connect)
    assert "/brokers/topics/news/partitions/6/state" in wanted and changes > 5
    started = []
    for at in (*range(0, 2 * changes - 1, EVERY), 2 * changes - 1):
        data, connect = prepared(f"killed-{at}")
        run_child(at, *words("join", data, connect))
        started.append(check_stores(data, connect))
        assert main(words("join", data, connect)) == 0, (at, capsys.readouterr().err)
        assert dump(connect) == wanted, at
        assert "metadata" not in os.listdir(data) and "metadata.joined" in os.listdir(data)
    assert started[0] and not started[-1]


def test_a_killed_leave_goes_on(single, zookeeper_server, tmp_path, capsys):
    joined, connect = tmp_path / "joined", zookeeper_server.connect(zookeeper_server.new_chroot())
    shutil.copytree(single, joined)
    assert main(words("join", joined, connect)) == 0
    with zookeeper_tree(connect) as tree:
        cluster_id, nodes = tree_copy.owner_of(tree).cluster_id, tree_copy.nodes_to_copy(tree)

    def prepared(name):
        data, connect = tmp_path / name, zookeeper_server.connect(zookeeper_server.new_chroot())
        shutil.copytree(joined, data)
        with zookeeper_tree(connect) as tree:
            tree_copy.begin(tree, cluster_id, LEAVE)
            tree_copy.fill(tree, nodes)
            tree_copy.finish(tree, cluster_id)
        return data, connect

    whole, connect = prepared("whole")
    changes = int(run_child(-1, *words("leave", whole, connect)))
    wanted = store_of(whole)
    assert "/brokers/topics/news/partitions/6/state" in wanted and changes > 5
    started = []
    for at in (*range(0, 2 * changes - 1, EVERY), 2 * changes - 1):
        data, connect = prepared(f"killed-{at}")
        run_child(at, *words("leave", data, connect))
        started.append(check_stores(data, connect))
        assert main(words("leave", data, connect)) == 0, (at, capsys.readouterr().err)
        assert store_of(data) == wanted, at
        assert dump(connect) == {"/": b""}
        assert {"metadata.joined", "metadata.leaving"} & set(os.listdir(data)) == set()
    assert started[-1] and not started[0]


def test_a_leave_names_what_the_broker_lacks(single, zookeeper_server, tmp_path, capsys):
    data, connect = tmp_path / "data", zookeeper_server.connect(zookeeper_server.new_chroot())
    shutil.copytree(single, data)
    assert main(words("join", data, connect)) == 0
    shutil.rmtree(data / "news-3")
    with zookeeper_tree(connect) as tree:
        path = znodes.partition_state_path("news", 1)
        state = znodes.PartitionState.decode(tree.get(path)[0])
        tree.set(path, replace(state, leader=2, isr=(2,)).encode())
        topic = znodes.TopicAssignment.decode(tree.get(znodes.topic_path("news"))[0])
        moved = topic.partitions | {1: (2, 1), 2: (2, 3)}
        tree.set(znodes.topic_path("news"), replace(topic, partitions=moved).encode())
        before = {node.path: node.data for node in tree.subtree("/")}
        live = f"{znodes.BROKER_IDS_PATH}/2"
        tree.create(live, b"{}", ephemeral=True)
        capsys.readouterr()
        assert main(words("leave", data, connect)) == 1
        assert "broker 2 is registered in the cluster" in capsys.readouterr().err
        tree.delete(live)
    assert main(words("leave", data, connect)) == 1
    said = capsys.readouterr().err
    assert (
        "broker 1 has no complete replica of news-1 (in sync: 2), news-2 (replicas: 2, 3),"
        " news-3 (its directory is missing)." in said
    )
    assert dump(connect) == before and not (data / "metadata").exists()
