"""Backups of log directories: of a running and of a stopped broker, in a directory and in S3,
incremental, and restored to a broker with the same records, offsets and identity."""

import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from spark.store_fixtures import place_of, s3_server

from barnabas import Broker
from barnabas.cli import main

QUIET = {"log_level": 0}
COUNT = 300


def storage(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, list[dict], str]:
    """(exit status, lines of JSON, errors)"""
    capsys.readouterr()
    status = main(["storage", *map(str, words), "--json"])
    said = capsys.readouterr()
    return status, [json.loads(line) for line in said.out.splitlines()], said.err


def backed_up(capsys: pytest.CaptureFixture[str], *words: object) -> dict:
    status, rows, said = storage(capsys, "backup", *words)
    assert status == 0, said
    return rows[0]


def fill(broker: Broker, count: int) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 10, **QUIET}
    producer = Producer(settings)
    for number in range(count):
        producer.produce("news", b"%1000d" % number)
    assert producer.flush(30) == 0


def commit(broker: Broker, offset: int) -> None:
    consumer = group_of(broker)
    consumer.commit(offsets=[TopicPartition("news", 0, offset)], asynchronous=False)
    consumer.close()


def group_of(broker: Broker) -> Consumer:
    return Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", **QUIET})


def check(capsys: pytest.CaptureFixture[str], data: Path, count: int, offset: int) -> None:
    """A broker on the directory has the records and the committed offset."""
    assert main(["storage", "verify", str(data)]) == 0, capsys.readouterr().out
    with Broker({"log.dirs": data}) as broker:
        assert len(broker.records("news")) == count
        consumer = group_of(broker)
        assert consumer.committed([TopicPartition("news", 0)], 20)[0].offset == offset
        consumer.close()


@pytest.fixture(scope="module")
def s3():
    pytest.importorskip("moto", reason="needs barnabas[test]")
    yield from s3_server()


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    with Broker({"log.dirs": data}) as broker:
        broker.create_topic("news", 1, configs={"segment.bytes": 50_000})
        fill(broker, COUNT)
        commit(broker, 7)
    return data


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_a_running_broker_is_backed_up_and_restored(kind, tmp_path, capsys, request, monkeypatch):
    url = place_of(kind, request, monkeypatch)
    data = tmp_path / "data"
    with Broker({"log.dirs": data}) as broker:
        broker.create_topic("news", 1, configs={"segment.bytes": 50_000})
        fill(broker, COUNT)
        commit(broker, 7)
        first = backed_up(capsys, data, url)
        assert first["running"] and first["storedBytes"] > COUNT * 1000
        fill(broker, 10)
        commit(broker, 9)
        second = backed_up(capsys, data, url)
        assert not list((data / ".snapshots").glob("*"))
        assert second["sizeBytes"] > first["sizeBytes"]
        for figure in ("readBytes", "storedBytes"):  # the new segment and the metadata store
            assert second[figure] < first[figure] / 2
    status, rows, _ = storage(capsys, "restore", url, "--list")
    assert (status, [row["backup"] for row in rows]) == (0, [first["backup"], second["backup"]])
    for number, name, count, offset in (
        (1, first["backup"], COUNT, 7),
        (2, second["backup"], COUNT + 10, 9),
    ):
        restored = tmp_path / f"restored-{number}"
        assert storage(capsys, "restore", url, restored, "--backup", name)[0] == 0
        check(capsys, restored, count, offset)
        own, other = ((top / "meta.properties").read_text() for top in (data, restored))
        assert own == other


def test_a_stopped_broker_is_backed_up_and_starts_without_recovery(stopped, tmp_path, capsys):
    backed_up(capsys, stopped, tmp_path / "backups")
    assert (tmp_path / "backups").stat().st_mode & 0o077 == 0
    assert storage(capsys, "restore", tmp_path / "backups", tmp_path / "new")[0] == 0
    store = tmp_path / "new" / "metadata" / "metadata.db"
    assert store.stat().st_mode & 0o077 == 0
    assert (tmp_path / "new" / ".kafka_cleanshutdown").exists()
    check(capsys, tmp_path / "new", COUNT, 7)
    again = backed_up(capsys, stopped, tmp_path / "backups")
    assert (again["readBytes"], again["storedBytes"]) == (0, 0)


def test_two_directories_are_restored_as_one(tmp_path, capsys):
    dirs = [tmp_path / "one", tmp_path / "two"]
    with Broker({"log.dirs": ",".join(map(str, dirs))}) as broker:
        broker.create_topic("news", 4)
        fill(broker, COUNT)
    backed_up(capsys, *dirs, tmp_path / "backups")
    assert storage(capsys, "restore", tmp_path / "backups", tmp_path / "new")[0] == 0
    assert main(["storage", "verify", str(tmp_path / "new")]) == 0
    with Broker({"log.dirs": tmp_path / "new"}) as broker:
        assert len(broker.records("news")) == COUNT


def largest_part(backups: Path) -> Path:
    return max(
        (path for path in (backups / "parts").iterdir() if not path.name.startswith(".")),
        key=lambda path: path.stat().st_size,
    )


def missing_part(backups: Path) -> str:
    largest_part(backups).unlink()
    return "the backup is incomplete"


def damaged_part(backups: Path) -> str:
    path = largest_part(backups)
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    return "the backup is damaged"


def damaged_part_without_its_crc(backups: Path) -> str:
    path = largest_part(backups)
    (path.parent / f".{path.name}.crc").unlink()
    damaged_part(backups)
    return "has other bytes"


def only(backups: Path) -> Path:
    (path,) = (backups / "backups").glob("*.json")
    (path.parent / f".{path.name}.crc").unlink()
    return path


def damaged_list(backups: Path) -> str:
    path = only(backups)
    path.write_bytes(path.read_bytes().replace(b'"size_bytes": ', b'"size_bytes": 1', 1))
    return "does not match its checksum"


def torn_list(backups: Path) -> str:
    path = only(backups)
    path.write_bytes(path.read_bytes()[:-20])
    return "is damaged"


def interrupted(backups: Path) -> str:
    only(backups).unlink()
    return "there is no complete backup"


def path_that_leads_out(backups: Path) -> str:
    from barnabas.cli.storage_backup import _sum

    path = only(backups)
    document = json.loads(path.read_bytes())
    document["backup"]["entries"][0]["path"] = "../x"
    document["sha256"] = _sum(document["backup"])
    path.write_text(json.dumps(document))
    return "is no path of a log directory"


BROKEN = [
    missing_part,
    damaged_part,
    damaged_part_without_its_crc,
    damaged_list,
    torn_list,
    interrupted,
    path_that_leads_out,
]


@pytest.mark.parametrize("breaks", BROKEN, ids=lambda breaks: breaks.__name__)
def test_a_broken_backup_is_refused_in_one_line(stopped, tmp_path, capsys, breaks):
    backups = tmp_path / "backups"
    backed_up(capsys, stopped, backups)
    wanted = breaks(backups)
    status, _, said = storage(capsys, "restore", backups, tmp_path / "new")
    assert status == 1 and said.count("\n") == 1
    assert wanted in said
    assert not (tmp_path / "new").exists() and not (tmp_path / "new.part").exists()
    assert not (tmp_path / "x").exists()


def test_other_refusals_are_one_line(stopped, tmp_path, capsys):
    def refused(*words: object) -> str:
        status, _, said = storage(capsys, *words)
        assert status == 1 and said.count("\n") == 1, said
        return said

    backups = tmp_path / "backups"
    assert "there is no directory" in refused("backup", tmp_path / "none", backups)
    (tmp_path / "empty").mkdir()
    assert "is not a log directory" in refused("backup", tmp_path / "empty", backups)
    backed_up(capsys, stopped, backups)
    assert "not an empty directory" in refused("restore", backups, stopped)
    assert "there is no backup x" in refused("restore", backups, tmp_path / "new", "--backup", "x")
    assert "TARGET is missing" in refused("restore", backups)


def test_old_backups_are_removed_with_what_only_they_had(stopped, tmp_path, capsys):
    """Those of another broker stay, and parts that a kept backup shares with a removed one."""
    target, other = tmp_path / "backups", tmp_path / "other"
    with Broker({"log.dirs": other}) as broker:
        broker.create_topic("elsewhere")
    backed_up(capsys, other, target)
    count, made = COUNT, []
    for _ in range(3):
        made.append(backed_up(capsys, stopped, target))
        with Broker({"log.dirs": stopped}) as broker:
            fill(broker, 10)
            commit(broker, 7)
        count += 10
    assert [row["removed"] for row in made] == [[], [], []]
    orphan = target / "parts" / ("0" * 64)
    orphan.write_bytes(b"of a backup that was interrupted")
    last = backed_up(capsys, stopped, target, "--keep", 2)
    assert last["removed"] == [made[0]["backup"], made[1]["backup"]]
    status, left, _ = storage(capsys, "restore", target, "--list")
    assert status == 0
    assert [row["backup"] for row in left][1:] == [made[2]["backup"], last["backup"]]
    named = {
        part
        for path in (target / "backups").glob("*.json")
        for row in json.loads(path.read_bytes())["backup"]["entries"]
        for part in row["parts"]
    }
    assert {path.name for path in (target / "parts").iterdir() if path.name[0] != "."} == named
    for name in [row["backup"] for row in left]:
        place = tmp_path / name
        status, _rows, said = storage(capsys, "restore", target, place, "--backup", name)
        assert status == 0, said
    check(capsys, tmp_path / last["backup"], count, 7)


@pytest.mark.parametrize("text", ["0", "-1", "x"])
def test_keep_of_no_backup_is_refused(stopped, tmp_path, capsys, text):
    with pytest.raises(SystemExit):
        main(["storage", "backup", str(stopped), str(tmp_path / "backups"), "--keep", text])
    assert "--keep" in capsys.readouterr().err
    assert not (tmp_path / "backups").exists()
