"""What `barnabas cluster inventory` finds in log directories, clean, killed and damaged ones."""

import json
import shutil
from pathlib import Path

import pytest
from confluent_kafka import Producer

from barnabas import Broker
from barnabas.cli import log_files, main
from barnabas.controller.rebuilt_tree import Inventory
from barnabas.storage.log_dirs import CLEAN_SHUTDOWN

RECORDS = 2200


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """Returns the log directory of a stopped broker with several segments, index entries and
    producers."""
    data = tmp_path_factory.mktemp("logs") / "data"
    with Broker({"log.dirs": data, "num.network.threads": 1}) as broker:
        broker.create_topic("started")
        broker.create_topic("news", 2, configs={"segment.bytes": 200_000})
        first, second = (idempotent(broker), idempotent(broker))
        # Only the newest segment has records of the second, and others follow them.
        for producer, count in ((first, RECORDS - 200), (second, 100), (first, 100)):
            for number in range(count):
                producer.produce("news", b"%200d" % number, partition=number % 2)
            assert producer.flush(30) == 0
    shutil.rmtree(data / "started-0")
    return data


def idempotent(broker):
    """Returns a producer that has its producer id."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": True,
            "batch.num.messages": 10,
        }
    )
    producer.produce("started", b"")
    assert producer.flush(30) == 0
    return producer


def killed(data):
    """Changes the directory to that of a killed broker: no clean stop, no snapshot of the end."""
    (data / CLEAN_SHUTDOWN).unlink()
    for folder in data.glob("news-*"):
        max(folder.glob("*.snapshot")).unlink()


def inventory(data, capsys):
    capsys.readouterr()
    status = main(["cluster", "inventory", "--json", "--set", f"log.dirs={data}"])
    said = capsys.readouterr()
    assert status == 0, said.err
    return Inventory.decode(said.out.encode())


def last_batches(data):
    """Returns the last batch of each partition and the largest producer id, found by reading all
    batches."""
    ends, producer_id = {}, -1
    for path in sorted(data.glob("news-*/*.log")):
        for row, batch in log_files.batches(log_files.mapped(path)):
            if batch is not None:
                ends[path.parent.name] = row["lastOffset"] + 1
                producer_id = max(producer_id, row["producerId"])
    return ends, producer_id


def ends_of(found):
    return {f"{row.topic}-{row.partition}": row.end_offset for row in found.replicas}


@pytest.mark.parametrize("is_killed", [False, True])
def test_it_finds_what_a_walk_over_all_batches_finds(logs, tmp_path, capsys, is_killed):
    data = Path(shutil.copytree(logs, tmp_path / "data"))
    assert len(list(data.glob("news-0/*.log"))) > 1
    if is_killed:
        killed(data)
    ends, producer_id = last_batches(data)
    found = inventory(data, capsys)
    assert ends_of(found) == ends == {"news-0": RECORDS // 2, "news-1": RECORDS // 2}
    assert found.latest_producer_id == producer_id > 0
    assert found.is_clean is not is_killed
    ids = {row.topic_id for row in found.replicas}
    assert (
        len(ids) == 1
        and f"topic_id: {ids.pop()}" in (data / "news-1" / "partition.metadata").read_text()
    )
    assert {(row.leader_epoch, row.last_epoch) for row in found.replicas} == {(0, 0)}


def test_a_torn_end_does_not_count(logs, tmp_path, capsys):
    data = Path(shutil.copytree(logs, tmp_path / "data"))
    killed(data)
    newest = max(data.glob("news-0/*.log"))
    content = newest.read_bytes()
    newest.write_bytes(content[:-1])
    ends, _ = last_batches(data)
    assert ends["news-0"] < RECORDS // 2
    assert ends_of(inventory(data, capsys)) == ends


def test_strays_and_deleted_directories_are_left_out(logs, tmp_path, capsys):
    data = Path(shutil.copytree(logs, tmp_path / "data"))
    (data / "news-0").rename(data / f"news-0.{'0' * 32}-stray")
    (data / "news-1").rename(data / f"news-1.{'0' * 32}-delete")
    assert inventory(data, capsys).replicas == ()


def test_a_damaged_checkpoint_is_named(logs, tmp_path, capsys):
    data = Path(shutil.copytree(logs, tmp_path / "data"))
    (data / "news-0" / "leader-epoch-checkpoint").write_text("0\n1\nnonsense\n")
    assert main(["cluster", "inventory", "--set", f"log.dirs={data}"]) == 1
    assert "leader-epoch-checkpoint" in capsys.readouterr().err
    assert main(["cluster", "inventory", "--set", f"log.dirs={tmp_path / 'absent'}"]) == 1
    assert "is not the log directory of a broker" in capsys.readouterr().err
    assert not (tmp_path / "absent").exists()


def test_a_file_that_is_no_inventory_is_refused(tmp_path, capsys):
    file = tmp_path / "broker.json"
    connect = ["--set", "zookeeper.connect=127.0.0.1:1"]
    for text, reason in (("{}", "version"), ("no JSON", "not JSON"), (None, "No such file")):
        if text is not None:
            file.write_text(text)
        else:
            file.unlink()
        assert main(["cluster", "recover", str(file), *connect]) == 1
        assert reason in capsys.readouterr().err
    file.write_text(json.dumps({"version": 1}))
    assert main(["cluster", "recover", str(file), *connect]) == 1
