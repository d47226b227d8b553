"""`barnabas storage import` of a log directory of Kafka 0.7.

kafka_07.py says what is in it. The broker has to answer clients of 0.7 as Kafka 0.7.2 did."""

import base64
import os
import shutil
from contextlib import suppress

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient
from legacy07.conftest import connect
from long_form import pick
from oracle.kafka07 import EARLIEST, LATEST, LISTENERS, message, messages, payloads_of, wrapped
from takeover.importing import calls_of, content, files, import_to, killed_before, kills
from takeover.kafka_07 import PARTITIONS, READ, READERS, recorded
from takeover.kafka_before import done
from takeover.kafka_before import recorded as later_kafka
from takeover.test_import_real_kafka import values
from zookeeper_server import ZooKeeperServer

from barnabas import Broker
from barnabas.cli import main
from barnabas.cli.zookeeper_process import missing
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.tree import NodeExists
from barnabas.storage.address_index import AddressIndex
from barnabas.takeover.directory_07 import plan_import_07
from barnabas.takeover.found_cluster import with_parents
from barnabas.takeover.source_directory import open_source

BROKER = ("--set", "node.id=3")
RAW = ("packed-0",)  # has wrappers


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("kafka"))


@pytest.fixture
def source(tmp_path, record):
    return shutil.copytree(record[0], tmp_path / "kafka", copy_function=shutil.copy2)


def serving(data):
    return Broker({"log.dirs": str(data), "listeners": LISTENERS}, durable=False)


def delete_before(broker, offset):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    done(admin.delete_records([TopicPartition("packed", 0, offset)]))


def split(name):
    topic, _, partition = name.rpartition("-")
    return topic, int(partition)


def first_of(answers, name):
    return answers[name]["offsets"][str(EARLIEST)][0]


def end_of(answers, name):
    return answers[name]["offsets"][str(LATEST)][0]


def everything_in(answers, name):
    """Returns all messages of a partition: 0.7 answers with those of one segment."""
    data, first = b"", first_of(answers, name)
    while more := base64.b64decode(answers[name]["fetches"][str(first + len(data))]):
        data += more
    return data


def payloads_in(answers, name):
    """Returns the payloads of a partition, as Kafka 0.7.2 sent them."""
    return payloads_of(everything_in(answers, name))


def test_clients_of_07_get_the_answers_of_07_at_each_address(tmp_path, capsys, source, record):
    """Each message of each partition is fetched, at the address and with the bytes of 0.7.2."""
    before, answers = content(source), record[2]
    found = import_to(capsys, tmp_path / "new", source, *BROKER)
    assert content(source) == before
    rows = {f"{row['topic']}-{row['partition']}": row for row in found["partitions"]}
    assert {name for name, row in rows.items() if row["originalSegments"]} == {*RAW}
    with serving(tmp_path / "new") as broker, connect(broker) as client:
        for name, known in answers.items():
            topic, partition = split(name)
            whole = everything_in(answers, name)
            for time_ms, expected in known["offsets"].items():
                answer = client.offsets(topic, int(time_ms), 100, partition)
                assert answer == (0, expected), (name, time_ms)
            for address, expected in known["fetches"].items():
                error, data = client.fetch(topic, int(address), 1 << 20, partition)
                theirs = base64.b64decode(expected)
                at = int(address) - first_of(answers, name)
                assert (error, data) == (0, whole[at : at + len(data)]), (name, address)
                assert bool(data) == bool(theirs)
    assert main(["storage", "verify", str(tmp_path / "new"), "--records"]) == 0


def test_a_consumer_of_07_goes_on_behind_what_it_had_read(tmp_path, capsys, source, record):
    """New messages follow at the addresses that they would have had."""
    answers = record[2]
    import_to(capsys, tmp_path / "new", source, *BROKER)
    with serving(tmp_path / "new") as broker, connect(broker) as client:
        for topic, partition in (("plain", 1), ("packed", 0), ("old", 0)):
            end = end_of(answers, f"{topic}-{partition}")
            client.produce(topic, messages([b"new 1", b"new 2"]), partition)
            data = b""
            while len(data) == 0:
                error, data = client.fetch(topic, end, 1 << 20, partition)
                assert error == 0
            assert payloads_of(data) == [b"new 1", b"new 2"]
        assert client.fetch("plain", end_of(answers, "plain-1") - 1, partition=1)[0] == 1
        inside = sorted(map(int, answers["packed-0"]["fetches"]))[2] + 1
        assert client.fetch("packed", inside)[0] == 1


def test_clients_of_today_read_every_record(tmp_path, capsys, source, record):
    import_to(capsys, tmp_path / "new", source, *BROKER)
    with serving(tmp_path / "new") as broker:
        found = values(broker.bootstrap_servers, "plain", 1)
        assert found == payloads_in(record[2], "plain-1")
        assert values(broker.bootstrap_servers, "empty", 1) == [b""]
        packed = values(broker.bootstrap_servers, "packed", 0)
    for number in range(30):
        assert packed[2 * number : 2 * number + 2] == [b"first %d" % number, b"of 0.6: %d" % number]
    assert packed[60:260] == [b"a line that is packed: %d" % number for number in range(200)]
    assert packed[-5:] == [b"", b"", b"", b"", b"last"]


def test_retention_and_moved_starts_keep_the_addresses(tmp_path, capsys, source, record):
    """Records are deleted up to a message inside a wrapper; original segments go with theirs."""
    data, answers = tmp_path / "new", record[2]
    import_to(capsys, data, source, *BROKER)
    originals = sorted((data / "packed-0").glob("*.kafka"))
    assert len(originals) > 2
    with serving(data) as broker, connect(broker) as client:
        delete_before(broker, 70)  # in the first wrapper of the console producer
        earliest = client.offsets("packed", EARLIEST)[1][0]
        data_at = client.fetch("packed", earliest)[1]
        whole = base64.b64decode(answers["packed-0"]["fetches"][str(earliest)])
        assert data_at == whole[: len(data_at)] and data_at[5] == 1  # the wrapper itself
        assert client.fetch("packed", first_of(answers, "packed-0"))[0] == 1
        end = end_of(answers, "packed-0")
        client.produce("packed", messages([b"new 1", b"new 2"]))
        while client.offsets("packed", LATEST)[1] == [end]:
            pass
        delete_before(broker, -1)
        assert client.offsets("packed", EARLIEST)[1] == client.offsets("packed", LATEST)[1]
        assert client.offsets("packed", LATEST)[1] == [end + len(messages([b"new 1", b"new 2"]))]
        client.produce("packed", messages([b"new 3"]))
        delete_before(broker, -1)
    assert not list((data / "packed-0").glob("*.kafka"))


# -- several brokers


def second_broker(source, folder):
    """Makes the directory of a broker without partitions 1 of the first one. Returns it."""
    other = shutil.copytree(source, folder)
    for path in other.glob("*-1"):
        shutil.rmtree(path)
    return other


# The partitions of broker 7 follow those of broker 3. Of `empty` 3 has two, the first one without
# messages, and 7 has none.
OF_7 = {"plain-0": "plain-2", "old-0": "old-1", "packed-0": "packed-1"}


def records_of(found):
    """Returns the number of records of each partition."""
    return {f"{row['topic']}-{row['partition']}": row["records"] for row in found["partitions"]}


def test_partitions_of_several_brokers_are_counted_on(tmp_path, capsys, source, record):
    """The order is that of the brokers' ids, whichever directory is named first."""
    other, answers = second_broker(source, tmp_path / "k=7"), record[2]
    before = content(source), content(other)
    named = (f"{other}=7", f"{source}=3")
    found = import_to(capsys, tmp_path / "new", *named)
    assert (content(source), content(other)) == before and found["nodeId"] == 7
    rows = records_of(found)
    counts = records_of(import_to(capsys, tmp_path / "alone", source, *BROKER))
    assert rows == counts | {new: counts[name] for name, new in OF_7.items()}
    assert {note for note in found["notes"] if "becomes" in note} == {
        f"{other / name} becomes {new}" for name, new in OF_7.items()
    }
    with serving(tmp_path / "new") as broker, connect(broker) as client:
        for name, new in [*OF_7.items(), ("plain-1", "plain-1"), ("old-0", "old-0")]:
            topic, partition = split(new)
            whole, first = everything_in(answers, name), first_of(answers, name)
            for time_ms, expected in answers[name]["offsets"].items():
                assert client.offsets(topic, int(time_ms), 100, partition) == (0, expected)
            for address in map(int, answers[name]["fetches"]):
                error, data = client.fetch(topic, address, 1 << 20, partition)
                assert (error, data) == (0, whole[address - first :][: len(data)])


def test_positions_in_partitions_of_several_brokers(tmp_path, source, record):
    """Positions are those of the same messages in the partitions' new numbers."""
    other = second_broker(source, tmp_path / "other")
    first = {name: first_of(record[2], name) for name in ("packed-0", "plain-0")}
    positions = {"packed/3-0": "packed-0", "packed/7-0": "packed-0", "plain/7-0": "plain-0"}
    sources = [open_source(source, 3), open_source(other, 7)]
    tree = EmbeddedTree(tmp_path / "tree", clock_ms=lambda: 0)
    nodes = {f"/consumers/g/offsets/{path}": b"%d" % first[at] for path, at in positions.items()}
    nodes["/consumers/g/offsets/plain/7-1"] = nodes["/consumers/g/offsets/packed/9-0"] = b"0"
    for node in with_parents(nodes):
        with suppress(NodeExists):
            tree.create(node.path, node.data)
    plan, facts = plan_import_07(sources, 3, tree, False, lambda *_counts: None)
    tree.close()
    for row in sources:
        row.close()
    assert (facts.groups, facts.offsets) == (1, 3)
    found = {row.path: row.data for row in plan.nodes if row.path.startswith("/consumers/g/offs")}
    assert {path: data for path, data in found.items() if data} == {
        f"/consumers/g/offsets/{place}": b"0" for place in ("packed/0", "packed/1", "plain/2")
    }
    assert {note for note in plan.notes if "group" in note} == {
        "not imported: positions of groups in partitions of broker 9",
        "not imported: group 'g' in plain-1, address 0: there is no such partition",
    }


# -- groups


@pytest.mark.java
def test_positions_of_groups_become_offsets(tmp_path, capsys, source, record):
    """The console consumer of 0.7.2 stored an address; the offset is that of the same message."""
    if reason := missing():
        pytest.skip(reason)
    words = (*BROKER, "--zookeeper", record[1])
    found = import_to(capsys, tmp_path / "new", source, *words)
    assert [found[name] for name in ("groups", "groupOffsets")] == [1, 1]
    tree = EmbeddedTree(tmp_path / "new" / "metadata", clock_ms=lambda: 0)
    offset = int(tree.get(f"/consumers/{READERS}/offsets/packed/0")[0])
    tree.close()
    assert offset == READ


@pytest.fixture
def zookeeper(tmp_path):
    if reason := missing():
        pytest.skip(reason)
    with ZooKeeperServer(tmp_path / "zookeeper") as running:
        yield running


@pytest.mark.java
def test_a_position_at_no_message_is_named(tmp_path, capsys, source, record, zookeeper):
    first = first_of(record[2], "plain-1")
    positions = {
        "plain/3-1": first,
        "plain/3-0": 1,
        "old/3-7": 0,
        "packed/4-0": 0,
    }
    client = KazooClient(zookeeper.address)
    client.start(30)
    client.ensure_path("/brokers/topics")
    for path, address in positions.items():
        client.create(f"/consumers/g/offsets/{path}", b"%d" % address, makepath=True)
    client.stop()
    client.close()
    words = (*BROKER, "--zookeeper", zookeeper.address)
    found = import_to(capsys, tmp_path / "new", source, *words, "--dry-run")
    assert [found[name] for name in ("groups", "groupOffsets")] == [1, 1]
    assert {row for row in found["notes"] if "group" in row} == {
        "not imported: positions of groups in partitions of broker 4",
        "not imported: group 'g' in old-7, address 0: there is no such partition",
        "not imported: group 'g' in plain-0, address 1: no message begins there",
    }


# -- refusals, and what a dry run says


def test_a_dry_run_changes_nothing(tmp_path, capsys, source):
    before = content(source)
    found = import_to(capsys, tmp_path / "new", source, *BROKER, "--dry-run")
    assert content(source) == before and not (tmp_path / "new").exists()
    rows = {f"{row['topic']}-{row['partition']}" for row in found["partitions"]}
    assert rows == {f"{name}-{index}" for name, all_ in PARTITIONS.items() for index in all_} - {
        "empty-0"
    }
    assert any("0.7 has them in ZooKeeper" in note for note in found["notes"])


def test_without_the_id_of_the_broker_it_is_refused(tmp_path, capsys, source):
    (line,) = import_to(capsys, tmp_path / "new", source, status=1)
    assert str(source) in line and "--set node.id=ID" in line


def test_in_place_and_two_directories_of_one_broker_are_refused(tmp_path, capsys, source):
    (line,) = import_to(capsys, tmp_path / "new", source, *BROKER, "--in-place", status=1)
    assert str(source) in line and "converted" in line
    other = shutil.copytree(source, tmp_path / "other")
    (line,) = import_to(capsys, tmp_path / "new", source, other, *BROKER, status=1)
    assert f"{source} and {other} are of broker 3" in line and "DIR=ID" in line
    later = later_kafka("4.3.1", tmp_path / "later")
    (line,) = import_to(capsys, tmp_path / "new", source, later, *BROKER, status=1)
    assert f"{later} is not of Kafka 0.7" in line
    (line,) = import_to(capsys, tmp_path / "new", f"{later}=2", status=1)
    assert f"{later} is of broker 1, and not of 2" in line


@pytest.mark.parametrize("name", ["plain-1", "packed-0"])
def test_a_damaged_message_is_refused_with_file_and_position(tmp_path, capsys, source, name):
    first, *_rest = sorted((source / name).glob("*.kafka"))
    data = bytearray(first.read_bytes())
    size = 4 + int.from_bytes(data[:4], "big")
    data[2 * size - 1] ^= 1 if name == "packed-0" else 0
    data[size + 12] ^= 1
    first.write_bytes(data)
    (line,) = import_to(capsys, tmp_path / "new", source, *BROKER, status=1)
    assert line.startswith(f"barnabas: {first}: damaged at byte {size} (the CRC")
    assert not (tmp_path / "new").exists()
    found = import_to(capsys, tmp_path / "new", source, *BROKER, "--allow-loss")
    assert sum(note.startswith("lost: ") for note in found["notes"]) == 1
    with serving(tmp_path / "new") as broker, connect(broker) as client:
        topic, partition = split(name)
        (start,) = client.offsets(topic, EARLIEST, partition=partition)[1]
        assert client.fetch(topic, start, partition=partition) == (0, bytes(data[:size]))
        assert client.fetch(topic, start + size, partition=partition)[0] == 1
        second = int(sorted((source / name).glob("*.kafka"))[1].stem)
        error, answer = client.fetch(topic, second, partition=partition)
        assert error == 0 and answer


def test_a_missing_segment_is_refused(tmp_path, capsys, source):
    _first, second, third, *_rest = sorted((source / "plain-1").glob("*.kafka"))
    second.unlink()
    (line,) = import_to(capsys, tmp_path / "new", source, *BROKER, status=1)
    assert line.startswith(f"barnabas: {third}: the segment before it ends at address")


def test_a_torn_message_at_the_end_is_cut_off_as_07_does(tmp_path, capsys, source, record):
    """Only after an unclean stop: otherwise Kafka 0.7 does not look."""
    last = sorted((source / "plain-1").glob("*.kafka"))[-1]
    end = end_of(record[2], "plain-1")
    last.write_bytes(last.read_bytes() + message(b"torn")[:-1])
    (line,) = import_to(capsys, tmp_path / "new", source, *BROKER, status=1)
    assert str(last) in line and "damaged at byte" in line
    (source / ".kafka_cleanshutdown").unlink()
    found = import_to(capsys, tmp_path / "new", source, *BROKER)
    assert any(note.startswith(f"left out: {last}: the 13 bytes") for note in found["notes"])
    with serving(tmp_path / "new") as broker, connect(broker) as client:
        assert client.offsets("plain", LATEST, partition=1)[1] == [end]


def test_a_broker_that_starts_during_the_import_is_noticed(tmp_path, capsys, source, monkeypatch):
    from barnabas.takeover import copied_import

    def appended(path):
        sync(path)
        last = sorted((source / "old-0").glob("*.kafka"))[-1]
        with open(last, "ab") as file:
            file.write(message(b"later", magic=0))

    sync = copied_import.bring_to_disk
    monkeypatch.setattr(copied_import, "bring_to_disk", appended)
    (line,) = import_to(capsys, tmp_path / "new", source, *BROKER, status=1)
    assert "has started on" in line


@pytest.mark.timeout(pick(short=300, long=3600))
def test_a_kill_leaves_the_source_as_it_was_and_the_next_run_imports_all(tmp_path, capsys, source):
    before, data = content(source), tmp_path / "killed"
    whole = import_to(capsys, tmp_path / "whole", source, *BROKER)
    words = ["import", source, *BROKER, "--set", f"log.dirs={data}"]
    for call in kills(calls_of(data, *words), 137, last=3):
        shutil.rmtree(data)
        killed_before(call, data, *words)
        assert content(source) == before
        again = import_to(capsys, data, source, *BROKER)
        assert [row["crc32c"] for row in again["partitions"]] == [
            row["crc32c"] for row in whole["partitions"]
        ]
        for path in (tmp_path / "whole").glob("*-[0-9]"):
            assert files(data / path.name) == files(path)


def test_large_messages_and_wrappers(tmp_path, capsys):
    """Messages larger than a window or a batch, and an empty wrapper."""
    source = tmp_path / "kafka"
    (source / "big-0").mkdir(parents=True)
    plain = [os.urandom(size) for size in (3_000_000, 1, 70_000, 0, 65_526, 5)]
    parts = [*(message(row) for row in plain), wrapped([]), wrapped([b"a", plain[2]])]
    (source / "big-0" / f"{77:020d}.kafka").write_bytes(b"".join(parts))
    import_to(capsys, tmp_path / "new", source, *BROKER)
    with serving(tmp_path / "new") as broker, connect(broker) as client:
        at = 77
        for part in parts:
            error, data = client.fetch("big", at, 4_000_000)
            assert (error, data[: len(part)]) == (0, part)
            at += len(part)
        assert client.fetch("big", at) == (0, b"")
        assert client.fetch("big", 77, 1000) == (0, parts[0][:1000])
        found = values(broker.bootstrap_servers, "big", 0, **{"fetch.max.bytes": 10_000_000})
        assert found == [*plain, b"a", plain[2]]


def test_verify_finds_a_changed_segment_of_07_and_a_wrong_entry(tmp_path, capsys, source):
    data = tmp_path / "new"
    import_to(capsys, data, source, *BROKER)
    with serving(data):
        pass
    assert main(["storage", "verify", str(data)]) == 0
    path = sorted((data / "packed-0").glob("*.kafka"))[1]
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    capsys.readouterr()
    assert main(["storage", "verify", str(data)]) == 1
    assert f"{path} is damaged at byte" in capsys.readouterr().out
    path.write_bytes(whole)
    index = data / "packed-0" / "addresses07"
    found, _whole = AddressIndex.parse(index, index.read_bytes())
    found.offsets[1] += 1
    found.write()
    assert main(["storage", "verify", str(data)]) == 1
    assert f"gives offset {found.offsets[1]} the address" in capsys.readouterr().out
