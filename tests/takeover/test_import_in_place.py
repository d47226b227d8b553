"""`barnabas storage import --in-place` and `--undo`: a broker uses Kafka's own directory, and Kafka
gets it back as it was."""

import json
import shutil

import pytest
from confluent_kafka import Producer
from long_form import pick
from takeover.importing import calls_of, killed_before, kills, storage
from takeover.kafka_before import COMMITTED, MONEY, NEWS, KafkaBefore, recorded, rival
from takeover.test_import_real_kafka import places, values

from barnabas import Broker
from barnabas.node import CannotStart

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


def test_the_store_of_a_broker_is_refused(capsys, newest):
    (newest / "metadata").mkdir()
    before = contents(newest)
    (line,) = storage(capsys, "import", newest, "--in-place", status=1)
    assert f"{newest / 'metadata'} is of a broker of barnabas" in line
    assert contents(newest) == before


def test_another_node_id_is_refused(capsys, newest):
    before = contents(newest)
    (line,) = storage(capsys, "import", newest, "--in-place", "--set", "node.id=9", status=1)
    assert "keeps the broker's id" in line
    assert contents(newest) == before


@pytest.fixture(params=pick(short=["4.3.1"], long=["4.3.1", "3.9.2"]))
def two(tmp_path, request):
    """Returns a folder with two log directories of one broker of Kafka."""
    log_dir = recorded(request.param, tmp_path / "recorded")
    shutil.copytree(log_dir, tmp_path / "two" / "a")
    (tmp_path / "two" / "b").mkdir()
    for name in ("meta.properties", ".kafka_cleanshutdown"):
        shutil.copy2(log_dir / name, tmp_path / "two" / "b" / name)
    (tmp_path / "two" / "a" / f"{NEWS}-1").rename(tmp_path / "two" / "b" / f"{NEWS}-1")
    return tmp_path / "two"


def copied(folder, copy):
    """Copies log directories. Returns their paths."""
    shutil.rmtree(copy, ignore_errors=True)
    return sorted(shutil.copytree(folder, copy).glob("[ab]"))


def has_switched(copy):
    return any(path.is_dir() for path in copy.glob(f"[ab]/{UNDO}"))


def of_kafka(copy, before):
    """Returns whether the directories are as Kafka has left them."""
    found = without_set_aside(contents(copy))
    return found == before and not list(copy.glob("[ab]/metadata"))


def refuses_to_start(copy, paths):
    dirs = ",".join(map(str, paths))
    with pytest.raises(CannotStart) as error:
        Broker({"log.dirs": dirs}, durable=False).start()
    if has_switched(copy):
        assert "`barnabas storage import --in-place` or `--undo` has not fini" in str(error.value)


@pytest.mark.timeout(pick(short=300, long=3600))
def test_a_kill_leaves_kafkas_directories_or_such_that_go_both_ways(tmp_path, capsys, two):
    """The import is killed before something in the directories is opened, renamed and so on. Until
    the switch Kafka's files are there, beside directories that Kafka removes; after it the same
    command finishes, and --undo goes back."""
    copy, switched, before = tmp_path / "killed", 0, without_set_aside(contents(two))
    words = ["import", *copied(two, copy), "--in-place"]
    calls = calls_of(copy, *words)
    for call in kills(calls, 5, calls - 9, last=6):
        both = ("--in-place", "--undo")
        for after in pick(short=(both[call % 2],), long=both):
            paths = copied(two, copy)
            killed_before(call, copy, *words)
            is_ours = has_switched(copy)
            assert is_ours or of_kafka(copy, before)
            switched += is_ours
            if not (copy / "a" / "metadata").exists():
                refuses_to_start(copy, paths)
            if is_ours or after == "--in-place":
                storage(capsys, "import", *paths, after)
            if after == "--in-place":
                assert (copy / "a" / "metadata").is_dir() and not list(copy.glob(f"*/{UNDO}-0*"))
                storage(capsys, "import", *paths, "--undo")
            assert of_kafka(copy, before) and not has_switched(copy)
    assert switched > 4


@pytest.mark.timeout(pick(short=300, long=3600))
def test_a_killed_undo_is_continued(tmp_path, capsys, two):
    before, ours, copy = without_set_aside(contents(two)), tmp_path / "ours", tmp_path / "killed"
    dirs = copied(two, ours)
    storage(capsys, "import", *dirs, "--in-place")
    with Broker({"log.dirs": ",".join(map(str, dirs))}, durable=False) as broker:
        broker.create_topic("later")
    words = ["import", *copied(ours, copy), "--undo", "--allow-loss"]
    calls = calls_of(copy, *words)
    assert of_kafka(copy, before)
    for call in kills(calls, 2, last=4):
        paths = copied(ours, copy)
        killed_before(call, copy, *words)
        if not (copy / "a" / "metadata").exists():
            refuses_to_start(copy, paths)
        if has_switched(copy) and not (copy / "a" / "metadata").exists():
            (line,) = storage(capsys, "import", *paths, "--in-place", status=1)
            assert "--undo again" in line
        storage(capsys, "import", *paths, "--undo", "--allow-loss")
        assert of_kafka(copy, before) and not list(copy.glob(f"*/{UNDO}*"))


def test_the_directories_in_another_order_finish_the_switch(tmp_path, capsys, two):
    copy = tmp_path / "killed"
    words = ["import", *copied(two, copy), "--in-place"]
    calls = calls_of(copy, *words)
    paths = copied(two, copy)
    killed_before(calls - 3, copy, *words)
    assert (copy / "a" / UNDO / "metadata").is_dir()
    storage(capsys, "import", *reversed(paths), "--in-place")
    assert (copy / "a" / "metadata").is_dir()


DAMAGED = {
    "not JSON": b"{",
    "not text": b"\xff\xfe",
    "nested too deeply": b"[" * 100_000,
    "a list": b"[]",
    "another version": b'{"version": 2}',
    "without fields": b'{"version": 1}',
}
CHANGED = {
    "partitions": [[], {"../elsewhere-0": {}}, {"a-0": []}, {"a-0": {"../file": [0, 0]}}],
    "others": ["a-0", ["../elsewhere-0"], [1]],
    "top": [None, {"": [0, 0]}, {"file": 1}, {"file": [1]}, {"file": ["a", 1]}, {"file": [-1, 0]}]
    + [{"file": [0, 1 << 63]}, {"file": [True, 0]}],
}


def test_a_damaged_record_is_refused_with_its_path(capsys, newest):
    import_it(capsys, newest)
    record = newest / UNDO / "record.json"
    right = json.loads(record.read_bytes())
    damaged = [*DAMAGED.values()]
    for name, wrong in CHANGED.items():
        damaged += [json.dumps({**right, name: value}).encode() for value in wrong]
    for data in damaged:
        record.write_bytes(data)
        before = contents(newest)
        (line,) = storage(capsys, "import", newest, "--undo", "--allow-loss", status=1)
        assert line.startswith(f"barnabas: {record} is "), data[:60]
        assert contents(newest) == before
    record.write_text(json.dumps(right))
    storage(capsys, "import", newest, "--undo")


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
