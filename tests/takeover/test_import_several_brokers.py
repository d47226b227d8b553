"""`barnabas storage import` of the directories of several brokers: which replica of each partition.

The directories are copies of a recorded one; records at the end of the metadata log say which
brokers have the replicas and which of them are in sync."""

import shutil

import pytest
from takeover.importing import content, files, import_to
from takeover.kafka_before import KEYS, MONEY, NEWS, recorded
from takeover.test_metadata_log import value_of

from barnabas import Broker
from barnabas.cext.record.records import Record, encode_batch
from barnabas.storage import checkpoints

LATER = 10_000  # an offset behind the end of the recorded metadata log


@pytest.fixture
def brokers(tmp_path):
    """Returns the directories of brokers 1 and 2. Broker 2 has one record more of NEWS-0."""
    first = recorded("4.3.1", tmp_path / "kafka")
    second = tmp_path / "second"
    shutil.copytree(first, second)
    meta = second / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=2"))
    log = second / f"{NEWS}-0" / f"{0:020d}.log"
    more = encode_batch([Record(b"more")], base_offset=100, leader_epoch=0)
    log.write_bytes(log.read_bytes() + more)
    return first, second


def append(log_dir, *changes, offset=LATER, epoch=2):
    """Appends a record about each partition to the metadata log."""
    (log,) = (log_dir / "__cluster_metadata-0").glob("*.log")
    rows = []
    for (topic, partition), fields in changes:
        topic_id = checkpoints.read_topic_id(log_dir / f"{topic}-{partition}")
        rows.append(
            Record(
                value_of(
                    "PartitionChangeRecord",
                    2,
                    partitionId=partition,
                    topicId=topic_id,
                    replicas=[1, 2],
                    eligibleLeaderReplicas=[],
                    **fields,
                )
            )
        )
    batch = encode_batch(rows, base_offset=offset, leader_epoch=epoch)
    log.write_bytes(log.read_bytes() + batch)


def sources_of(found):
    """Returns from which directory each partition would come; of a dry run."""
    return {(row["topic"], row["partition"]): row["source"] for row in found["partitions"]}


def test_the_leader_then_the_isr_then_the_eligible_replicas(tmp_path, capsys, brokers):
    first, second = brokers
    changes = [
        ((NEWS, 0), {"leader": 2, "isr": [1, 2]}),
        ((NEWS, 1), {"leader": 1, "isr": [1, 2]}),
        ((MONEY, 0), {"leader": -1, "isr": [2]}),
    ]
    append(second, *changes)
    append(second, ((KEYS, 0), {"leader": -1, "isr": []}), offset=LATER + 10)
    (log,) = (second / "__cluster_metadata-0").glob("*.log")
    keys_id = checkpoints.read_topic_id(second / f"{KEYS}-0")
    eligible = value_of(
        "PartitionChangeRecord", 2, partitionId=0, topicId=keys_id, eligibleLeaderReplicas=[2]
    )
    batch = encode_batch([Record(eligible)], base_offset=LATER + 20, leader_epoch=2)
    log.write_bytes(log.read_bytes() + batch)
    before = content(first), content(second)
    found = sources_of(import_to(capsys, tmp_path / "new", first, second, "--dry-run"))
    assert found[NEWS, 0] == found[MONEY, 0] == found[KEYS, 0] == str(second)
    assert found[NEWS, 1] == found["cut", 0] == str(first)
    import_to(capsys, tmp_path / "new", first, second)
    assert (content(first), content(second)) == before
    assert files(tmp_path / "new" / f"{NEWS}-0") == files(second / f"{NEWS}-0")
    with Broker({"log.dirs": tmp_path / "new"}, durable=False) as broker:
        replicas = broker.node.cluster().topics[NEWS].partitions[0].replicas
    assert replicas == (1,)


def test_a_partition_whose_replicas_are_all_behind_is_refused(tmp_path, capsys, brokers):
    first, second = brokers
    append(first, ((NEWS, 0), {"leader": 2, "isr": [2]}))
    (line,) = import_to(capsys, tmp_path / "new", first, status=1)
    assert line.startswith(f"barnabas: {NEWS}-0: broker 1 was not in sync (in sync: 2)")
    assert "--allow-loss" in line
    found = import_to(capsys, tmp_path / "new", first, second, "--dry-run")
    assert sources_of(found)[NEWS, 0] == str(second)


def test_an_accepted_loss_takes_the_replica_that_ends_last(tmp_path, capsys, brokers):
    first, second = brokers
    for log_dir in brokers:
        append(log_dir, ((NEWS, 0), {"leader": 3, "isr": [3]}))
    found = import_to(capsys, tmp_path / "new", first, second, "--dry-run", "--allow-loss")
    assert sources_of(found)[NEWS, 0] == str(second)
    assert [note for note in found["notes"] if note.startswith("lost: ")] == [
        f"lost: {NEWS}-0: broker 1, 2 was not in sync (in sync: 3), so acknowledged records may be"
        f" missing in {second / f'{NEWS}-0'}"
    ]


def test_the_newest_metadata_log_counts(tmp_path, capsys, brokers):
    first, second = brokers
    append(first, ((NEWS, 0), {"leader": 1, "isr": [1]}), epoch=2)
    append(second, ((NEWS, 0), {"leader": 2, "isr": [2]}), epoch=3)
    for sources in ((first, second), (second, first)):
        found = import_to(capsys, tmp_path / "new", *sources, "--dry-run")
        assert sources_of(found)[NEWS, 0] == str(second)
        assert found["metadata"] == str(second / "__cluster_metadata-0")


def test_fewer_than_most_controllers_are_refused(tmp_path, capsys, brokers):
    """A majority of them has every change of the metadata; the recorded log names controller 1."""
    first, second = brokers
    (log,) = (first / "__cluster_metadata-0").glob("*.log")
    rows = [value_of("RegisterControllerRecord", 0, controllerId=number) for number in (2, 3)]
    batch = encode_batch(list(map(Record, rows)), base_offset=LATER, leader_epoch=2)
    log.write_bytes(log.read_bytes() + batch)
    (line,) = import_to(capsys, tmp_path / "new", first, status=1)
    assert "2 of the controllers 1, 2, 3 have all of them, and the directories of 1" in line
    import_to(capsys, tmp_path / "new", first, second, "--dry-run")
    row = value_of("UnregisterControllerRecord", 0, controllerId=3)
    batch = encode_batch([Record(row)], base_offset=LATER + 10, leader_epoch=2)
    log.write_bytes(log.read_bytes() + batch)
    (line,) = import_to(capsys, tmp_path / "new", first, status=1)
    assert "2 of the controllers 1, 2 have" in line


def test_directories_of_two_clusters_are_refused(tmp_path, capsys, brokers):
    first, second = brokers
    meta = second / "meta.properties"
    meta.write_text(meta.read_text().replace("YmFybmFiYXMtcml2YWwtMQ", "AnotherClusterOfTests1"))
    (line,) = import_to(capsys, tmp_path / "new", first, second, status=1)
    assert "belong to 2 clusters" in line


def test_one_partition_twice_in_a_broker_is_refused(tmp_path, capsys, brokers):
    first, second = brokers
    meta = second / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=2", "node.id=1"))
    lines = import_to(capsys, tmp_path / "new", first, second, status=1)
    assert f"barnabas: {NEWS}-0 has two directories of one broker. Move" in lines[-2]
