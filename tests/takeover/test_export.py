"""`barnabas storage export` without Kafka: the import reads it back; refusals; kill -9.
test_export_real_kafka.py starts Kafka on it."""

import json
import shutil

import pytest
from kazoo.client import KazooClient
from long_form import pick
from takeover.importing import (
    calls_of,
    content,
    files,
    import_to,
    killed_before,
    kills,
    storage,
)
from takeover.kafka_before import NEWS, recorded
from zookeeper_server import ZooKeeperServer

from barnabas import Broker
from barnabas.cext.record.records import Record, encode_batch
from barnabas.cli.zookeeper_process import missing
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.tree_copy import nodes_to_copy
from barnabas.metadata.znodes import PartitionState
from barnabas.takeover.exported_tree import kafkas_nodes, unreadable_groups
from barnabas.wire.internal import CONSUMER_OFFSETS, record_type

UNFINISHED = "barnabas-export-unfinished"


@pytest.fixture
def data(tmp_path, capsys):
    """Returns the directory of a stopped broker, with what Kafka 4.3.1 had in its own."""
    import_to(capsys, tmp_path / "barnabas", recorded("4.3.1", tmp_path / "recorded"))
    return tmp_path / "barnabas"


def export_to(capsys, target, data, *words, status=0):
    return storage(capsys, "export", target, "--set", f"log.dirs={data}", *words, status=status)


def nodes(data):
    """Returns the data of all nodes, the objects of JSON decoded, with the leader epochs apart."""
    tree = EmbeddedTree(data / "metadata", clock_ms=lambda: 0)
    found = {node.path: node.data for node in nodes_to_copy(tree)}
    tree.close()
    epochs = {}
    for path in [path for path in found if path.endswith("/state")]:
        epochs[path] = PartitionState.decode(found.pop(path)).leader_epoch
    return {path: json.loads(row or b"null") for path, row in found.items()}, epochs


def test_what_is_exported_and_imported_again_is_the_same(tmp_path, capsys, data):
    before = content(data / f"{NEWS}-0")
    found = export_to(capsys, tmp_path / "kafka", data)
    assert content(data / f"{NEWS}-0") == before
    assert found["notes"] == []
    import_to(capsys, tmp_path / "again", tmp_path / "kafka")
    ours, our_epochs = nodes(data)
    theirs, their_epochs = nodes(tmp_path / "again")
    assert theirs == ours
    assert their_epochs == {path: epoch + 1 for path, epoch in our_epochs.items()}
    for row in found["partitions"]:
        name = f"{row['topic']}-{row['partition']}"
        assert files(tmp_path / "again" / name) == files(data / name)
    for name in ("replication-offset-checkpoint", "log-start-offset-checkpoint"):
        ours_text = sorted((data / name).read_text().splitlines())
        assert sorted((tmp_path / "kafka" / name).read_text().splitlines()) == ours_text
    assert (tmp_path / "kafka" / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / "kafka" / UNFINISHED).exists()


def test_a_dry_run_makes_nothing(tmp_path, capsys, data):
    found = export_to(capsys, tmp_path / "kafka", data, "--dry-run")
    assert found["isDryRun"] and len(found["partitions"]) == 11
    assert not (tmp_path / "kafka").exists()


def test_a_directory_of_an_unclean_stop_is_not_marked_as_clean(tmp_path, capsys, data):
    (data / ".kafka_cleanshutdown").unlink()
    export_to(capsys, tmp_path / "kafka", data)
    assert not (tmp_path / "kafka" / ".kafka_cleanshutdown").exists()


def test_a_running_broker_is_refused(tmp_path, capsys, data):
    with Broker({"log.dirs": data}, durable=False):
        (line,) = export_to(capsys, tmp_path / "kafka", data, status=1)
    assert "another broker is using" in line
    assert not (tmp_path / "kafka").exists()


def test_a_directory_that_is_not_empty_is_refused(tmp_path, capsys, data):
    (tmp_path / "kafka").mkdir()
    (tmp_path / "kafka" / "precious").write_text("mine")
    (line,) = export_to(capsys, tmp_path / "kafka", data, status=1)
    assert f"{tmp_path / 'kafka'} is not empty" in line
    assert (tmp_path / "kafka" / "precious").read_text() == "mine"


def test_a_missing_partition_is_refused(tmp_path, capsys, data):
    shutil.rmtree(data / f"{NEWS}-1")
    (line,) = export_to(capsys, tmp_path / "kafka", data, status=1)
    assert f"no log directory has {NEWS}-1" in line


def test_a_directory_that_is_not_ours_is_refused(tmp_path, capsys):
    (line,) = export_to(capsys, tmp_path / "kafka", tmp_path / "nothing", status=1)
    assert "has no meta.properties" in line


def test_a_group_that_kafka_in_zookeeper_mode_cannot_read_is_named(data):
    group = record_type(CONSUMER_OFFSETS, "ConsumerGroupMetadata")
    rows = [
        Record(group.encode_value(group.value.cls(epoch=1), 0), group.encode_key(key))
        for key in (group.key.cls(groupId="new"), group.key.cls(groupId="gone"))
    ]
    rows.append(Record(None, group.encode_key(group.key.cls(groupId="gone"))))
    partition = data / f"{CONSUMER_OFFSETS}-0"
    (partition / f"{0:020d}.log").write_bytes(encode_batch(rows, leader_epoch=0))
    assert unreadable_groups({(CONSUMER_OFFSETS, 0): partition}) == [
        "left out: group 'new': Kafka in ZooKeeper mode does not have its protocol"
    ]


def test_the_nodes_for_kafka_are_those_that_it_has(data):
    tree = EmbeddedTree(data / "metadata", clock_ms=lambda: 0)
    tree.ensure_path("/barnabas/own")
    paths = {node.path for node in kafkas_nodes(tree)}
    every = {node.path for node in nodes_to_copy(tree)}
    tree.close()
    assert every - paths == {"/barnabas", "/barnabas/own", "/feature"}


@pytest.mark.java
def test_a_tree_in_zookeeper_that_is_not_empty_is_refused(tmp_path, capsys, data):
    if reason := missing():
        pytest.skip(reason)
    with ZooKeeperServer(tmp_path / "zookeeper") as server:
        client = KazooClient(server.address)
        client.start(30)
        client.ensure_path("/kafka/brokers")
        client.stop()
        client.close()
        where = f"{server.address}/kafka"
        (line,) = export_to(capsys, tmp_path / "kafka", data, "--zookeeper", where, status=1)
    assert "the tree in ZooKeeper is not empty: it has /brokers" in line
    assert not (tmp_path / "kafka").exists()


@pytest.mark.timeout(pick(short=300, long=3600))
def test_a_kill_leaves_a_directory_that_the_next_run_makes_again(tmp_path, capsys, data):
    """Kafka does not start without meta.properties, which comes last."""
    before, target = content(data / f"{NEWS}-0"), tmp_path / "killed"
    words = ["export", target, "--set", f"log.dirs={data}"]
    complete = 0
    for call in kills(calls_of(target, *words), 3, 60, last=3):
        shutil.rmtree(target)
        killed_before(call, target, *words)
        if (target / UNFINISHED).exists() and (target / "meta.properties").exists():
            assert (target / "__cluster_metadata-0").is_dir()
        if (target / "meta.properties").exists() and not (target / UNFINISHED).exists():
            (line,) = export_to(capsys, target, data, status=1)  # it was complete
            assert f"{target} is not empty" in line
            complete += 1
        else:
            export_to(capsys, target, data)
        assert not (target / UNFINISHED).exists()
        assert files(target / f"{NEWS}-0") == files(data / f"{NEWS}-0")
        assert content(data / f"{NEWS}-0") == before
    assert complete == 1  # the last call brings the removal of the mark to disk
