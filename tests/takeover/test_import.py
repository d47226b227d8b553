"""`barnabas storage import` of directories that Apache Kafka has left (recorded/): what it copies,
reports and refuses. No Java runs here."""

import fcntl
import shutil
import subprocess
import sys

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from takeover.importing import content, files, import_to
from takeover.kafka_before import COMMITTED, CUT, CUT_BEFORE, NEWS, READERS, recorded

from barnabas import Broker
from barnabas.cext.codec.crc import crc32c
from barnabas.cext.record.records import Record, encode_batch
from barnabas.cli import main
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.producer_ids import allocate_block
from barnabas.metadata.znodes import PartitionState
from barnabas.node import CannotStart
from barnabas.storage import checkpoints
from barnabas.takeover import partition_files

VERSIONS = ("4.3.1", "3.9.2")
META = "meta.properties"


@pytest.fixture(params=VERSIONS)
def source(tmp_path, request):
    return recorded(request.param, tmp_path / "kafka")


@pytest.fixture
def newest(tmp_path):
    return recorded(VERSIONS[0], tmp_path / "kafka")


def tree_of(data):
    return EmbeddedTree(data / "metadata", clock_ms=lambda: 0)


def test_a_dry_run_changes_nothing_and_says_what_would_be_imported(tmp_path, capsys, source):
    before = content(source)
    found = import_to(capsys, tmp_path / "new", source, "--dry-run")
    assert content(source) == before
    assert not (tmp_path / "new").exists()
    assert found["isDryRun"] and found["nodeId"] == 1
    counts = ("topics", "accessRules", "users", "quotas", "groups", "groupOffsets")
    assert [found[name] for name in counts] == [6, 2, 2, 1, 1, 2]
    assert found["openTransactions"] == {"open": "ongoing"}
    (left,) = found["notes"]
    assert left.startswith(f"not imported: {source}/gone-0.") and "set aside" in left


def test_a_start_on_directories_of_kafka_names_the_command(source):
    before = content(source)
    with pytest.raises(
        CannotStart, match="KRaft cluster of Apache Kafka.*`barnabas storage import`"
    ):
        Broker({"log.dirs": str(source), "node.id": "1"}).start()
    after = content(source)
    assert {name: after[name] for name in before if name in after} == before


def test_the_files_are_kafkas_and_the_counts_and_sums_are_right(tmp_path, capsys, source):
    before, data = content(source), tmp_path / "new"
    found = import_to(capsys, data, source)
    assert content(source) == before
    for row in found["partitions"]:
        name = f"{row['topic']}-{row['partition']}"
        assert files(data / name) == files(source / name)
        segments = b"".join(path.read_bytes() for path in sorted((source / name).glob("*.log")))
        assert (row["sizeBytes"], row["crc32c"]) == (len(segments), f"{crc32c(segments):08x}")
    rows = {(row["topic"], row["partition"]): row for row in found["partitions"]}
    assert [rows[NEWS, p]["records"] for p in (0, 1)] == [100, 100]
    assert rows["money", 0]["endOffset"] == 5  # two values, two markers, one open value
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        offsets = checkpoints.read_offsets(data / name)
        theirs = checkpoints.read_offsets(source / name)
        kept = {key: theirs[key] for key in theirs if key[0] not in ("__cluster_metadata", "gone")}
        assert offsets == kept
    assert checkpoints.read_offsets(data / checkpoints.LOG_START) == {(CUT, 0): CUT_BEFORE}
    assert main(["storage", "verify", str(data)]) == 0


def test_the_leader_epoch_rises(tmp_path, capsys, newest):
    import_to(capsys, tmp_path / "new", newest)
    known = checkpoints.read_leader_epochs(newest / f"{NEWS}-0")[-1][0]
    tree = tree_of(tmp_path / "new")
    state = PartitionState.decode(tree.get(f"/brokers/topics/{NEWS}/partitions/0/state")[0])
    tree.close()
    # Kafka raised the epoch once more when it stopped: the partition had no leader then.
    assert state == PartitionState(1, known + 2, (1,), 0)


def test_new_producer_ids_begin_behind_kafkas(tmp_path, capsys, newest):
    import_to(capsys, tmp_path / "new", newest)
    tree = tree_of(tmp_path / "new")
    block = allocate_block(tree, 1)
    tree.close()
    assert block.block_start == 1000  # Kafka had given out the ids 0 to 999


def test_a_copy_that_differs_is_found(tmp_path, capsys, newest, monkeypatch):
    def wrong(row, target):
        crc = copy(row, target)
        if row.size_bytes and row.path.suffix == ".log":
            target.write_bytes(bytes(row.size_bytes))
        return crc

    copy = partition_files._copy
    monkeypatch.setattr(partition_files, "_copy", wrong)
    (line,) = import_to(capsys, tmp_path / "new", newest, status=1)
    assert "differs from" in line and ".log" in line
    with pytest.raises(Exception, match="storage import"):
        Broker({"log.dirs": tmp_path / "new"}).start()


def test_a_broker_serves_it_and_keeps_topic_ids_and_group_offsets(tmp_path, capsys, source):
    data = tmp_path / "new"
    import_to(capsys, data, source)
    topic_id = checkpoints.read_topic_id(source / f"{NEWS}-0")
    with Broker({"log.dirs": data}, durable=False) as broker:
        assert broker.topics == ["cut", "keys", "money", NEWS]
        assert broker.node.cluster().topics[NEWS].topic_id is not None
        assert checkpoints.read_topic_id(data / f"{NEWS}-0") == topic_id
        assert broker.node.config.node_id in (-1, 1)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": READERS})
        asked = [TopicPartition(NEWS, partition) for partition in COMMITTED]
        found = {row.partition: row.offset for row in consumer.committed(asked, 20)}
        consumer.close()
    assert found == COMMITTED
    assert not list(data.glob("*-stray"))


def test_node_id_of_the_settings_becomes_that_of_all_replicas(tmp_path, capsys, newest):
    found = import_to(capsys, tmp_path / "new", newest, "--set", "node.id=7")
    assert found["nodeId"] == 7
    with Broker({"log.dirs": tmp_path / "new"}, durable=False) as broker:
        replicas = broker.node.cluster().topics[NEWS].partitions[0].replicas
    assert replicas == (7,)


def test_several_log_directories_share_the_partitions(tmp_path, capsys, newest):
    second = tmp_path / "second"
    second.mkdir()
    shutil.copy(newest / META, second / META)
    shutil.copy(newest / ".kafka_cleanshutdown", second)
    (newest / f"{NEWS}-1").rename(second / f"{NEWS}-1")
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        shutil.copy(newest / name, second / name)
    data = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    import_to(capsys, data, newest, second)
    assert (tmp_path / "a" / f"{NEWS}-0").is_dir() and (tmp_path / "b" / f"{NEWS}-1").is_dir()
    watermarks = checkpoints.read_offsets(tmp_path / "b" / checkpoints.HIGH_WATERMARK)
    assert watermarks == {(NEWS, 1): 100}
    with Broker({"log.dirs": data}, durable=False) as broker:
        assert NEWS in broker.topics


@pytest.mark.parametrize("is_clean", [True, False])
def test_sealed_segments_are_linked_and_kafkas_stay_as_they_are(tmp_path, capsys, newest, is_clean):
    partition = newest / f"{NEWS}-0"
    more = encode_batch([Record(b"more")], base_offset=100, leader_epoch=0)
    (partition / f"{100:020d}.log").write_bytes(more)
    if not is_clean:
        (newest / ".kafka_cleanshutdown").unlink()
    before = content(partition)
    import_to(capsys, tmp_path / "new", newest, "--link")
    copied = tmp_path / "new" / f"{NEWS}-0"
    links = {path.name: path.stat().st_nlink for path in copied.glob("*.log")}
    assert links == {f"{0:020d}.log": 2 if is_clean else 1, f"{100:020d}.log": 1}
    assert all(path.stat().st_nlink == 1 for path in copied.iterdir() if path.suffix != ".log")
    with Broker({"log.dirs": tmp_path / "new"}, durable=False) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce(NEWS, b"later", partition=0)
        assert producer.flush(20) == 0
    assert content(partition) == before


# -- refusals: a line for each, with the file


def refused(capsys, tmp_path, *words):
    """Returns the lines of a refused import, which has made no directory."""
    lines = import_to(capsys, tmp_path / "new", *words, status=1)
    assert not (tmp_path / "new").exists()
    return lines


def test_a_directory_that_a_broker_uses_is_refused(tmp_path, capsys, newest):
    with open(newest / ".lock", "w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        child = subprocess.run(
            [sys.executable, "-m", "barnabas", "storage", "import", str(newest)]
            + ["--set", f"log.dirs={tmp_path / 'new'}"],
            capture_output=True,
            text=True,
        )
    assert child.returncode == 1
    assert child.stderr == f"barnabas: a broker is using {newest}. Stop it first.\n"


def test_a_directory_without_metadata_is_refused(tmp_path, capsys, newest):
    shutil.rmtree(newest / "__cluster_metadata-0")
    (line,) = refused(capsys, tmp_path, newest)
    assert "__cluster_metadata-0" in line and "metadata.log.dir" in line


def test_a_directory_that_is_not_kafkas_is_refused(tmp_path, capsys):
    (line,) = refused(capsys, tmp_path, tmp_path)
    assert str(tmp_path) in line and META in line


def test_a_damaged_metadata_log_is_refused(tmp_path, capsys, newest):
    first = newest / "__cluster_metadata-0" / f"{0:020d}.log"
    (first.parent / f"{1000:020d}.log").write_bytes(b"")  # the damage is not in the newest segment
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    (line,) = refused(capsys, tmp_path, newest)
    assert line.startswith(f"barnabas: {first}: damaged at byte ")


def test_a_metadata_record_of_a_later_kafka_is_refused(tmp_path, capsys, newest):
    log = newest / "__cluster_metadata-0" / f"{0:020d}.log"
    later = encode_batch([Record(bytes([1, 120, 0, 0]))], base_offset=10_000, leader_epoch=1)
    log.write_bytes(log.read_bytes() + later)
    (line,) = refused(capsys, tmp_path, newest)
    assert f"{log}: batch up to offset 10000: type 120 version 0 is not known" in line


def test_a_missing_partition_is_refused_and_begins_empty_where_that_is_accepted(
    tmp_path, capsys, newest
):
    shutil.rmtree(newest / f"{NEWS}-1")
    (line,) = refused(capsys, tmp_path, newest)
    assert line.startswith(f"barnabas: {NEWS}-1: no given directory has it (replicas: 1)")
    found = import_to(capsys, tmp_path / "new", newest, "--allow-loss")
    assert any(note.startswith(f"lost: {NEWS}-1") for note in found["notes"])
    with Broker({"log.dirs": tmp_path / "new"}, durable=False) as broker:
        assert len(broker.node.cluster().topics[NEWS].partitions) == 2


def test_a_directory_that_is_not_empty_is_refused(tmp_path, capsys, newest):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "precious").write_text("mine")
    (line,) = import_to(capsys, tmp_path / "new", newest, status=1)
    assert f"{tmp_path / 'new'} is not empty" in line
    assert (tmp_path / "new" / "precious").read_text() == "mine"


def test_a_link_in_place_of_a_segment_is_refused(tmp_path, capsys, newest):
    segment = newest / f"{NEWS}-0" / f"{0:020d}.log"
    segment.rename(tmp_path / "elsewhere")
    segment.symlink_to(tmp_path / "elsewhere")
    (line,) = refused(capsys, tmp_path, newest)
    assert str(segment) in line and "plain file" in line
