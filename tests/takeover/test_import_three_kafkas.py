"""`barnabas storage import` of the directories of three brokers of the real Kafka.

three_kafkas.py says how their replicas came to differ: broker 3 was killed with records that no
other one has, 2 stopped before 1. So 1 has every acknowledged record, but for pairs-2: 2 has
those."""

import pytest
from compat.support import rival
from confluent_kafka import Consumer, TopicPartition
from takeover.importing import content, files, import_to
from takeover.kafka_before import READERS
from takeover.test_import_real_kafka import values
from takeover.three_kafkas import LOST, NEWS, PAIRS, ThreeKafkas, recorded

from barnabas import Broker
from barnabas.storage import checkpoints

REAL = [("4.3.1", "kraft", 1), ("4.3.1", "kraft", 3), ("3.9.2", "zookeeper", 0)]
# Followers may have fetched these before they stood still.
PERHAPS = (b"before", b"%s: 0" % LOST)


@pytest.fixture
def record(tmp_path):
    """Returns the log directories by broker, what was acknowledged, and the group's offsets."""
    return recorded("4.3.1", tmp_path)


def sources_of(found):
    """Returns from which directory each partition comes."""
    return {(row["topic"], row["partition"]): row["source"] for row in found["partitions"]}


def check_choice(found, log_dirs):
    where = {name: str(log_dirs[1]) for name in sources_of(found)}
    assert sources_of(found) == where | {(PAIRS, 2): str(log_dirs[2])}


def check_records(data, listener, acknowledged, committed):
    """Checks what clients read on the broker that starts on the imported directory."""
    epochs = [epoch for epoch, _start in checkpoints.read_leader_epochs(data / f"{NEWS}-0")]
    assert len(epochs) > 1 and epochs == sorted(epochs)
    with Broker({"log.dirs": data, "listeners": listener}) as broker:
        servers = broker.bootstrap_servers
        for (topic, partition), expected in acknowledged.items():
            found = values(servers, topic, partition)
            assert [value for value in found if value not in PERHAPS] == expected
        consumer = Consumer({"bootstrap.servers": servers, "group.id": READERS})
        asked = [TopicPartition(NEWS, partition) for partition in committed]
        assert {row.partition: row.offset for row in consumer.committed(asked, 20)} == committed
        consumer.close()
        state = broker.node.cluster().topics[NEWS].partitions[0].state
        assert state.leader_epoch > epochs[-1]


def check_divergence(log_dirs):
    """The record that is to be left out is on broker 3, and on no other one."""
    has = {
        number: any(
            LOST + b": 2" in path.read_bytes() for path in (row / f"{NEWS}-0").glob("*.log")
        )
        for number, row in log_dirs.items()
    }
    assert has == {1: False, 2: False, 3: True}


def test_every_acknowledged_record_is_read_and_no_other(tmp_path, capsys, record):
    log_dirs, acknowledged, committed = record
    check_divergence(log_dirs)
    before = {number: content(row) for number, row in log_dirs.items()}
    for order in ((1, 2, 3), (3, 2, 1)):
        words = (*(log_dirs[number] for number in order), "--dry-run")
        check_choice(import_to(capsys, tmp_path / "new", *words), log_dirs)
    import_to(capsys, tmp_path / "new", *log_dirs.values())
    assert {number: content(row) for number, row in log_dirs.items()} == before
    for (topic, partition), number in {(NEWS, 0): 1, (PAIRS, 0): 1, (PAIRS, 2): 2}.items():
        name = f"{topic}-{partition}"
        assert files(tmp_path / "new" / name) == files(log_dirs[number] / name)
    check_records(tmp_path / "new", "PLAINTEXT://127.0.0.1:0", acknowledged, committed)


def test_without_the_only_replica_in_sync_it_is_refused(tmp_path, capsys, record):
    log_dirs, acknowledged, _committed = record
    words = (log_dirs[1], log_dirs[3])
    (line,) = import_to(capsys, tmp_path / "new", *words, status=1)
    assert f"{PAIRS}-2: broker 3 was not in sync (in sync: 2)" in line
    assert str(log_dirs[3] / f"{PAIRS}-2") in line and "--allow-loss" in line
    (line,) = import_to(capsys, tmp_path / "new", log_dirs[1], status=1)
    assert f"{PAIRS}-2: no given directory has it (replicas: 2, 3)" in line
    assert not (tmp_path / "new").exists()
    found = import_to(capsys, tmp_path / "new", *words, "--allow-loss")
    assert sum(note.startswith("lost: ") for note in found["notes"]) == 1
    with Broker({"log.dirs": tmp_path / "new"}, durable=False) as broker:
        kept = values(broker.bootstrap_servers, PAIRS, 2)
        assert kept == acknowledged[PAIRS, 2][: len(kept)] and kept


def test_the_metadata_of_a_killed_broker_is_refused(tmp_path, capsys, record):
    """Its metadata log ends where it led and was in sync: its replicas look complete."""
    log_dirs = record[0]
    for number in (2, 3):
        line, *_others = import_to(capsys, tmp_path / "new", log_dirs[number], status=1)
        metadata = log_dirs[number] / "__cluster_metadata-0"
        assert f"{metadata} may lack the last changes" in line
        assert "1 of the controllers 1 have all of them" in line
    import_to(capsys, tmp_path / "new", log_dirs[3], "--dry-run", "--allow-loss")


@pytest.mark.java
@pytest.mark.only_long
@pytest.mark.parametrize(("version", "mode", "controllers"), REAL)
def test_three_real_brokers(tmp_path, capsys, version, mode, controllers):
    if reason := rival.missing(version):
        pytest.skip(reason)
    with ThreeKafkas(version, tmp_path, mode, controllers) as before:
        before.run()
        log_dirs = before.log_dirs
        check_divergence(log_dirs)
        zookeeper = ()
        if before.zookeeper is not None:
            zookeeper = ("--zookeeper", before.zookeeper.address)
        kept = {number: content(row) for number, row in log_dirs.items()}
        words = (*log_dirs.values(), *zookeeper)
        check_choice(import_to(capsys, tmp_path / "new", *words, "--dry-run"), log_dirs)
        line, *_ = import_to(capsys, tmp_path / "new", log_dirs[3], *zookeeper, status=1)
        voters = ", ".join(map(str, range(1, controllers + 1)))
        assert (f"of the controllers {voters} have all of them" in line) == (mode == "kraft")
        import_to(capsys, tmp_path / "new", *words)
        assert {number: content(row) for number, row in log_dirs.items()} == kept
        listener = f"PLAINTEXT://{before.brokers[1].address}"
        check_records(tmp_path / "new", listener, before.acknowledged, before.committed)
