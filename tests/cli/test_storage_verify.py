"""`barnabas storage verify` finds each defect that a test plants, says what the next start does,
and changes nothing."""

import json
import logging
import shutil
import sqlite3
import struct
from pathlib import Path

import pytest
from api.admin_calls import admin_on
from confluent_kafka import Producer
from durability.broker_process import BrokerProcess, free_port
from legacy07.conftest import connect
from oracle.kafka07 import LISTENERS

from barnabas import Broker
from barnabas.cext.codec.crc import crc32c
from barnabas.cli import main
from barnabas.storage.address_index import AddressIndex
from barnabas.storage.checkpoints import read_offsets, write_offsets
from barnabas.storage.partition_dirs import ADDRESSES, marked_name

RECORDS = 2000
SEGMENT = "0" * 20
COMPACTED = {"cleanup.policy": "compact", "segment.ms": 100, "min.cleanable.dirty.ratio": 0.01}


def load(address: str) -> None:
    """Records in several segments of news-0 and news-1; in news-0 also transactions."""
    settings = {"bootstrap.servers": address, "log_level": 0}
    producer = Producer({**settings, "enable.idempotence": True, "batch.num.messages": 10})
    for number in range(RECORDS):
        producer.produce("news", b"%200d" % number, partition=number % 2)
    assert producer.flush(30) == 0
    sender = Producer({**settings, "transactional.id": "sender"})
    sender.init_transactions()
    for ends in (sender.commit_transaction, sender.abort_transaction):
        sender.begin_transaction()
        for number in range(10):
            sender.produce("news", b"%d" % number, partition=0)
        sender.flush(30)
        ends()


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a broker that has stopped cleanly."""
    data = tmp_path_factory.mktemp("verify") / "data"
    with Broker({"log.dirs": data, "num.network.threads": 1}) as broker:
        broker.create_topic("news", 2, configs={"segment.bytes": 60_000})
        load(broker.bootstrap_servers)
    return data


@pytest.fixture
def data(loaded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(loaded, tmp_path / "data"))


def state_of(top: Path) -> dict[Path, tuple[int, bytes]]:
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in top.rglob("*")
    }


def verify(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, list[dict], dict]:
    """(exit status, findings, summary)"""
    capsys.readouterr()
    status = main(["storage", "verify", "--json", *map(str, words)])
    *found, summary = map(json.loads, capsys.readouterr().out.splitlines())
    return status, found, summary


def segments(data: Path, partition: str = "news-0") -> list[Path]:
    return sorted((data / partition).glob("*.log"))


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_a_sound_directory_has_no_defect_and_is_not_changed(data, capsys):
    before = state_of(data)
    status, found, summary = verify(capsys, data, "--records")
    assert (status, found) == (0, [])
    assert summary["cleanStop"] and not summary["running"]
    assert summary["segments"] >= 50 + 3 + 2 and summary["batches"] > 100
    assert state_of(data) == before


def damaged_batch(data):
    flip(segments(data)[1], 100)
    return segments(data)[1], 0, "wrong CRC", "gets CORRUPT_MESSAGE"


def lost_page(data):
    path = segments(data)[1]
    content = bytearray(path.read_bytes())
    content[4096:8192] = bytes(4096)
    path.write_bytes(content)
    return path, None, "", "gets CORRUPT_MESSAGE"


def torn_end(data):
    with segments(data)[-1].open("ab") as file:
        file.write(b"\1" * 30)
    size = segments(data)[-1].stat().st_size
    return segments(data)[-1], size - 30, "begin with no batch", "never acknowledged"


def missing_segment(data):
    path = segments(data)[1]
    for suffix in (".log", ".index", ".timeindex"):
        path.with_suffix(suffix).unlink()
    return segments(data)[1], 0, "are missing before it", "logs an ERROR"


def missing_log(data):
    path = segments(data)[0]
    path.unlink()
    return path.with_suffix(".index"), None, "the .log of this segment is missing", "removes"


def missing_end(data):
    """The segments themselves leave no trace: only the checkpoints know."""
    first, *later = segments(data, "news-1")
    for path in later:
        for suffix in (".log", ".index", ".timeindex"):
            path.with_suffix(suffix).unlink()
    return data / "recovery-point-offset-checkpoint", None, "for news-1, whose log ends", "ERROR"


def missing_partition(data):
    shutil.rmtree(data / "news-1")
    return data / "news-1", None, "directory of this partition is missing", "empty log"


def missing_index(data):
    path = segments(data)[0].with_suffix(".index")
    path.unlink()
    return path, None, "is missing", "rebuilds"


def torn_index(data):
    path = segments(data)[0].with_suffix(".index")
    path.write_bytes(path.read_bytes()[:-3])
    return path, path.stat().st_size // 8 * 8, "not a multiple of 8", "rebuilds"


def wrong_index(data):
    path = segments(data)[0].with_suffix(".index")
    content = bytearray(path.read_bytes())
    struct.pack_into(">i", content, 4, struct.unpack_from(">i", content, 4)[0] + 1)
    path.write_bytes(content)
    return path, None, "does not fit the .log", "searches that it misleads"


def descending_index(data):
    path = segments(data)[0].with_suffix(".index")
    content = path.read_bytes()
    path.write_bytes(content[8:16] + content[:8] + content[16:])
    return path, 8, "entry 1 of", "rebuilds"


def wrong_time_index(data):
    path = segments(data)[0].with_suffix(".timeindex")
    content = bytearray(path.read_bytes())
    content[7] ^= 1
    path.write_bytes(content)
    return path, None, "does not fit the .log", ""


def lost_abort(data):
    (path,) = (data / "news-0").glob("*.txnindex")
    path.unlink()
    return path, None, "consumers with read_committed get its records", "keeps it"


def wrong_abort(data):
    (path,) = (data / "news-0").glob("*.txnindex")
    content = bytearray(path.read_bytes())
    content[9] ^= 1
    path.write_bytes(content)
    return path, 0, "no marker of producer", "rebuilds"


def damaged_snapshot(data):
    path = max((data / "news-0").glob("*.snapshot"))
    flip(path, 20)
    return path, 0, "CRC", "removes it"


def stale_snapshot(data):
    path = max((data / "news-0").glob("*.snapshot"))
    content = bytearray(path.read_bytes())
    content[10 + 10 + 3] ^= 1  # the last sequence of the first producer
    struct.pack_into(">I", content, 2, crc32c(bytes(content[6:])))
    path.write_bytes(content)
    return path, None, "has sequence", "remove the file"


def late_snapshot(data):
    path = data / "news-0" / f"{9999:020d}.snapshot"
    shutil.copy(max((data / "news-0").glob("*.snapshot")), path)
    return path, None, "above the end of the log", "removes it"


def damaged_epochs(data):
    path = data / "news-0" / "leader-epoch-checkpoint"
    path.write_text("0\n1\nx y\n")
    return path, None, "cannot read line", "without the leader epochs"


def lost_epochs(data):
    path = data / "news-0" / "leader-epoch-checkpoint"
    path.unlink()
    return path, None, "has no epoch for offset 0", "without the leader epochs"


def damaged_checkpoint(data):
    path = data / "replication-offset-checkpoint"
    path.write_text("0\n1\nnews\n")
    return path, None, "cannot read line", "cannot notice"


def late_cleaner(data):
    path = data / "cleaner-offset-checkpoint"
    write_offsets(path, {**read_offsets(path), ("news", 0): 99999})
    return path, None, "offset 99999 for news-0", "begins at the start"


def damaged_topic_id(data):
    path = data / "news-0" / "partition.metadata"
    path.write_text("version: 0\n")
    return path, None, "topic_id", "directory's name"


def another_topic(data):
    path = data / "news-0" / "partition.metadata"
    path.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAABAQ")
    return path, None, "another topic of this name", "-stray"


def unknown_topic(data):
    shutil.copytree(data / "news-0", data / "olds-0")
    return data / "olds-0", None, "the metadata has no such partition", "-stray"


def damaged_store(data):
    path = data / "metadata" / "metadata.db"
    connection = sqlite3.connect(path)
    connection.execute("UPDATE nodes SET version = version + 1 WHERE path = '/brokers/topics/news'")
    connection.commit()
    connection.close()
    return path, None, "does not match its CRC", "is refused"


def missing_store(data):
    path = data / "metadata" / "metadata.db"
    path.unlink()
    return path, None, "is missing", "-stray"


def another_cluster(data):
    path = data / "meta.properties"
    path.write_text(path.read_text().replace("cluster.id=", "cluster.id=x"))
    return path, None, "cluster.id is x", "is refused"


def damaged_owner(data):
    path = data / "meta.properties"
    path.write_text("version=7\n")
    return path, None, "version '7'", "is refused"


def damaged_addresses(data):
    path = data / "news-0" / ADDRESSES
    AddressIndex.create(path, 0, 0, -1)
    flip(path, 3)
    return path, None, "damaged", "Kafka 0.7"


def late_addresses(data):
    path = data / "news-0" / ADDRESSES
    AddressIndex.create(path, 0, 99999, -1)
    return path, None, "offset 99999", "removes it"


def link(data):
    (data / "news-0" / "x").symlink_to(data)
    return data / "news-0" / "x", None, "symbolic link", ""


PLANTED = [
    value for value in list(globals().values()) if callable(value) and value.__module__ == __name__
]
PLANTED = PLANTED[PLANTED.index(damaged_batch) : PLANTED.index(link) + 1]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_defect_is_found(data, capsys, plant):
    file, position, what, start = plant(data)
    before = state_of(data)
    status, found, _ = verify(capsys, data)
    assert status == 1
    rows = [row for row in found if row["file"] == str(file) and what in row["what"]]
    assert rows and rows[0]["defect"], found
    assert start in rows[0]["start"]
    if position is not None:
        assert rows[0]["position"] == position
    assert state_of(data) == before


def test_leftovers_are_notes(data, capsys):
    (data / marked_name("olds", 0, "delete")).mkdir()
    (data / marked_name("olds", 0, "stray")).mkdir()
    for name in (f"{SEGMENT}.log.deleted", f"{SEGMENT}.log.cleaned", "x.tmp", "notes.txt"):
        (data / "news-0" / name).touch()
    shutil.copy(segments(data)[0], data / "news-0" / f"{9:020d}.cut")
    status, found, summary = verify(capsys, data)
    assert status == 0
    assert (len(found), summary["notes"]) == (7, 7)
    (cut,) = (row for row in found if row["file"].endswith(".cut"))
    assert "with 0 records" not in cut["what"]


def test_a_start_after_a_kill_does_what_was_said(tmp_path, capsys, caplog):
    """The damage is in the middle of the last segment, with sound batches behind it."""
    with admin_on(tmp_path) as a:
        a.create("t")
        for _ in range(20):
            assert a.produce("t", size=100) == 0
        data = a.data
    (data / ".kafka_cleanshutdown").unlink()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (data / name).unlink()
    (segment,) = segments(data, "t-0")
    size = segment.stat().st_size
    flip(segment, size // 20 * 5 + 80)
    status, found, summary = verify(capsys, data)
    assert status == 1 and not summary["cleanStop"]
    (row,) = (row for row in found if row["file"] == str(segment))
    assert row["position"] == size // 20 * 5
    assert "cuts the log off at offset 5" in row["start"]
    assert f"keeps these {size - size // 20 * 5} bytes" in row["start"]
    with caplog.at_level(logging.INFO), admin_on(tmp_path):
        pass
    (cut,) = (data / "t-0").glob("*.cut")
    assert int(cut.name[:20]) == 5 and cut.stat().st_size == size - size // 20 * 5


def test_a_directory_of_a_killed_broker_has_notes_only(tmp_path, capsys):
    data = tmp_path / "data"
    with BrokerProcess(data, free_port()) as broker:
        assert (
            main(
                [
                    "topics",
                    "create",
                    "news",
                    "--partitions",
                    "2",
                    "--bootstrap-server",
                    broker.address,
                ]
            )
            == 0
        )
        load(broker.address)
        broker.kill()
    status, found, summary = verify(capsys, data)
    assert status == 0, found
    assert not summary["cleanStop"]


def test_a_running_broker_that_writes_and_compacts_has_no_defect(tmp_path, capsys):
    data = tmp_path / "data"
    with Broker({"log.dirs": data, "log.cleaner.backoff.ms": 50}) as broker:
        broker.create_topic("keys", 1, configs=COMPACTED)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        for number in range(20_000):
            producer.produce("keys", b"%50d" % number, b"%d" % (number % 100))
            producer.poll(0)
            if number % 5000 == 4999:
                status, found, summary = verify(capsys, data)
                assert status == 0, found
                assert summary["running"]
        assert producer.flush(30) == 0
    status, found, _ = verify(capsys, data)
    assert status == 0, found
    assert all(row["file"].endswith(".deleted") for row in found)


def test_what_is_no_directory_is_refused_in_one_line(tmp_path, capsys):
    assert main(["storage", "verify", str(tmp_path / "none")]) == 1
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and "there is no directory" in said.err


def test_the_text_names_file_position_and_what_a_start_does(data, capsys):
    file, position, *_ = damaged_batch(data)
    capsys.readouterr()
    assert main(["storage", "verify", str(data)]) == 1
    said = capsys.readouterr()
    assert f"{file}, byte {position}: the batch of" in said.out
    assert "  a start does not read it" in said.out
    assert said.err.startswith("1 defect, 0 notes in 5")


# -- the addresses for clients of Kafka 0.7


@pytest.fixture(scope="module")
def addressed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped broker, one of whose clients has read news-0 with the protocol of 0.7: plain and
    compressed batches, a transaction and one that was aborted."""
    data = tmp_path_factory.mktemp("addressed") / "data"
    with Broker({"log.dirs": data, "listeners": LISTENERS}) as broker:
        broker.create_topic("news", 2, configs={"segment.bytes": 60_000})
        load(broker.bootstrap_servers)
        packed = Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "compression.type": "lz4"}
        )
        for number in range(RECORDS):
            packed.produce("news", b"%300d" % number, partition=0)
        assert packed.flush(30) == 0
        with connect(broker) as client:
            values, _address = client.consume("news", 0)
    assert len(values) == RECORDS + RECORDS // 2 + 10
    return data


def test_sound_addresses_are_no_defect(addressed, tmp_path, capsys) -> None:
    index, _whole = AddressIndex.parse(addressed, (addressed / "news-0" / ADDRESSES).read_bytes())
    assert len(index.offsets) > 3
    assert verify(capsys, addressed)[0] == 0


@pytest.mark.parametrize("wrong", [1, 3, -1])
def test_a_wrong_address_is_found(addressed, tmp_path, capsys, wrong) -> None:
    """Its CRC is right, so that only the log can tell."""
    data = Path(shutil.copytree(addressed, tmp_path / "data"))
    path = data / "news-0" / ADDRESSES
    index, _whole = AddressIndex.parse(path, path.read_bytes())
    index.addresses[wrong] += 5
    index.write()
    offset = index.offsets[wrong]
    status, found, _summary = verify(capsys, data)
    assert status == 1
    whats = [row["what"] for row in found]
    assert whats[0].startswith(f"gives offset {offset} the address {index.addresses[wrong]}, and")
    assert {row["file"] for row in found} == {str(path)}
