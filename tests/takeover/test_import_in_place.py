"""`barnabas storage import --in-place` and `--undo`: a broker uses Kafka's own directory, and Kafka
gets it back as it was."""

import shutil
import subprocess
import sys

import pytest
from confluent_kafka import Producer
from long_form import pick
from takeover.importing import storage
from takeover.kafka_before import COMMITTED, MONEY, NEWS, KafkaBefore, recorded, rival
from takeover.test_import import KILLED
from takeover.test_import_real_kafka import places, values

from barnabas import Broker

UNDO = "import-undo"


def contents(directory):
    """Returns bytes and time of the last change of each file, by its path."""
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in directory.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


@pytest.fixture(params=["4.3.1", "3.9.2"])
def log_dir(tmp_path, request):
    return recorded(request.param, tmp_path / "kafka")


@pytest.fixture
def newest(tmp_path):
    return recorded("4.3.1", tmp_path / "kafka")


def without_set_aside(found):
    """Leaves out directories of deleted topics, which each broker removes when it starts."""
    return {path: row for path, row in found.items() if "-delete/" not in path}


def import_it(capsys, log_dir):
    return storage(capsys, "import", log_dir, "--in-place")


def test_a_broker_uses_the_directory_and_kafka_gets_it_back(capsys, log_dir):
    before = without_set_aside(contents(log_dir))
    found = import_it(capsys, log_dir)
    assert found["isInPlace"] and found["logDirs"] == [str(log_dir)]
    assert {row["topic"]: row["records"] for row in found["partitions"]}[NEWS] == 100
    with Broker({"log.dirs": log_dir}, durable=False) as broker:
        assert {NEWS, MONEY} <= set(broker.topics)
    lost = storage(capsys, "import", log_dir, "--undo")["lost"]
    assert lost == []
    assert without_set_aside(contents(log_dir)) == before


def test_written_records_are_lost_only_where_that_is_accepted(capsys, newest):
    before = without_set_aside(contents(newest))
    import_it(capsys, newest)
    with Broker({"log.dirs": newest}, durable=False) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce(NEWS, b"later", partition=1)
        assert producer.flush(20) == 0
        broker.create_topic("later")
    written = contents(newest)
    lines = storage(capsys, "import", newest, "--undo", status=1)
    assert contents(newest) == written
    assert [line.split(": ")[1] for line in lines] == [
        f"{newest / f'{NEWS}-1'}/{0:020d}.log",
        str(newest / "later-0"),
    ]
    assert len(storage(capsys, "import", newest, "--undo", "--allow-loss")["lost"]) == 2
    assert without_set_aside(contents(newest)) == before


def test_a_deleted_segment_cannot_be_given_back(capsys, newest):
    import_it(capsys, newest)
    segment = newest / f"{NEWS}-0" / f"{0:020d}.log"
    segment.unlink()
    (line,) = storage(capsys, "import", newest, "--undo", "--allow-loss", status=1)
    assert f"{segment} has been deleted since the import" in line
    assert (newest / UNDO).is_dir()


def test_without_a_record_nothing_is_undone(capsys, newest):
    before = contents(newest)
    (line,) = storage(capsys, "import", newest, "--undo", status=1)
    assert "has no undo record" in line
    assert contents(newest) == before


def test_another_node_id_is_refused(capsys, newest):
    before = contents(newest)
    (line,) = storage(capsys, "import", newest, "--in-place", "--set", "node.id=9", status=1)
    assert "keeps the broker's id" in line
    assert contents(newest) == before


@pytest.mark.parametrize("after", ["--in-place", "--undo"])
def test_a_kill_leaves_kafkas_directory_or_one_that_goes_both_ways(tmp_path, capsys, newest, after):
    """The import is killed before a file in the directory is opened, renamed and so on. Until the
    switch Kafka's files are there, beside a directory that Kafka removes; after it the same command
    finishes, and --undo goes back."""
    before, switched, killed = without_set_aside(contents(newest)), 0, 0
    for call in range(*pick(short=(5, 10_000, 61), long=(1, 10_000, 1))):
        log_dir = tmp_path / f"killed-{call}"
        shutil.copytree(newest, log_dir)
        child = subprocess.run(
            [sys.executable, "-c", KILLED, str(call), str(log_dir)]
            + ["storage", "import", str(log_dir), "--json", "--in-place"],
            capture_output=True,
            text=True,
        )
        assert child.returncode in (0, -9), child.stderr
        killed += child.returncode == -9
        if not (log_dir / UNDO).exists():
            assert without_set_aside(contents(log_dir)) == before
            assert not (log_dir / "metadata").exists()
        else:
            switched += 1
        if after == "--undo" and (log_dir / UNDO).exists():
            storage(capsys, "import", log_dir, "--undo")
            assert without_set_aside(contents(log_dir)) == before
        elif child.returncode:
            storage(capsys, "import", log_dir, "--in-place")
            assert (log_dir / "metadata").is_dir() and not list(log_dir.glob(f"{UNDO}-0*"))
            storage(capsys, "import", log_dir, "--undo")
            assert without_set_aside(contents(log_dir)) == before
        shutil.rmtree(log_dir)
        if child.returncode == 0:
            break
    assert killed > 2 and switched > 0


@pytest.mark.java
@pytest.mark.only_long
@pytest.mark.takes(seconds=20)
def test_the_real_kafka_starts_again_after_an_undo(tmp_path, capsys):
    if reason := rival.missing("4.3.1"):
        pytest.skip(reason)
    with KafkaBefore("4.3.1", tmp_path) as before:
        before.fill()
        before.stop()
        import_it(capsys, before.log_dir)
        with Broker({"log.dirs": before.log_dir}) as broker:
            assert places(broker.bootstrap_servers) == COMMITTED
        storage(capsys, "import", before.log_dir, "--undo", "--allow-loss")
        before.start_again()
        assert places(before.address) == COMMITTED
        assert len(values(before.address, NEWS, 0)) == 100
        before.go_on()
        assert values(before.address, MONEY, 0)[-2:] == [b"open 2", b"next"]
