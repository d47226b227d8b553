"""`barnabas storage import` of directories of Apache Kafka 0.8, 0.9 and 0.10.

Their messages have the formats 0 and 1: every record is read; the group and old clients go on."""

import pytest
from compat.support import rival
from confluent_kafka import Consumer, TopicPartition
from long_form import pick
from takeover.importing import content, import_to
from takeover.kafka_before import READERS, TIMEOUT_S, recorded
from takeover.old_kafka import COMMITTED, IN_ZOOKEEPER, TOPIC, OldKafka, sent

from barnabas import Broker
from barnabas.cli import main
from barnabas.cli.zookeeper_process import missing
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.znodes import consumer_offset_path

RECORDED = ("0.8.2.2", "0.10.2.2")
REAL = pick(
    short=[("0.8.2.2", "stop")],
    long=[
        (version, end)
        for version in ("0.8.2.2", "0.9.0.1", "0.10.0.1", "0.10.2.2")
        for end in ("stop", "kill")
    ],
)
MORE = {0: [(b"more", b"of 0")], 1: [(None, b"of 1")]}


def read(servers, partition, **settings):
    """Returns key and value of each record of a partition."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "reading", "enable.partition.eof": True}
        | settings
    )
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    found = []
    while True:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error():
            break
        found.append((message.key(), message.value()))
    consumer.close()
    return found


def check(broker, version):
    servers = broker.bootstrap_servers
    for partition, expected in sent(version).items():
        assert read(servers, partition) == expected
    consumer = Consumer({"bootstrap.servers": servers, "group.id": READERS})
    asked = [TopicPartition(TOPIC, partition) for partition in COMMITTED]
    assert {row.partition: row.offset for row in consumer.committed(asked, 20)} == COMMITTED
    consumer.close()


@pytest.mark.parametrize("version", RECORDED)
def test_recorded_directories(tmp_path, capsys, version):
    source, data = recorded(version, tmp_path / "kafka"), tmp_path / "new"
    before = content(source)
    assert len(list((source / f"{TOPIC}-0").glob("*.log"))) > 1
    found = import_to(capsys, data, source, "--set", "node.id=1")
    assert content(source) == before
    assert found["nodeId"] == 1 and found["groupOffsets"] == len(COMMITTED)
    counts = {
        row["partition"]: row["records"] for row in found["partitions"] if row["topic"] == TOPIC
    }
    assert counts == {partition: len(rows) for partition, rows in sent(version).items()}
    with Broker({"log.dirs": data}, durable=False) as broker:
        check(broker, version)
    assert main(["storage", "verify", str(data), "--records"]) == 0


@pytest.mark.java
@pytest.mark.parametrize(("version", "end"), REAL)
def test_old_kafka_and_its_clients(tmp_path, capsys, version, end):
    if reason := rival.missing(version) or missing():
        pytest.skip(reason)
    with OldKafka(version, tmp_path) as before:
        before.fill()
        getattr(before, end)()
        source, data = content(before.log_dir), tmp_path / "data"
        words = ("--set", "node.id=1", "--zookeeper", before.zookeeper.address)
        found = import_to(capsys, data, before.log_dir, *words)
        assert content(before.log_dir) == source
        assert not [note for note in found["notes"] if note.startswith("lost")]
        tree = EmbeddedTree(data / "metadata", clock_ms=lambda: 0)
        stored = tree.get(consumer_offset_path(READERS, TOPIC, 0))[0]
        tree.close()
        assert int(stored) == IN_ZOOKEEPER
        listener = f"PLAINTEXT://127.0.0.1:{before.port}"
        with Broker({"log.dirs": data, "listeners": listener}) as broker:
            check(broker, version)
            before.send(MORE)
            for partition, expected in sent(version).items():
                everything = [*expected, *MORE[partition]]
                assert read(broker.bootstrap_servers, partition) == everything
                assert read(broker.bootstrap_servers, partition, **before.client) == everything
