"""Snapshots of a running broker: consistent at one instant, started as a second broker, and neither
side changes a file of the other."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from durability.broker_process import BrokerProcess, free_port

from barnabas import Broker
from barnabas.cli import main, output
from barnabas.storage.snapshot import SNAPSHOTS

QUIET = {"log_level": 0}
SEGMENTS = {"segment.bytes": 20_000}
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": 5000, "min.cleanable.dirty.ratio": 0.01}
FAST_CLEANER = {"log.cleaner.backoff.ms": 20, "log.segment.delete.delay.ms": 0}


def storage(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict, str]:
    """(exit status, facts, errors)"""
    capsys.readouterr()
    status = main(["storage", *map(str, words), "--json"])
    said = capsys.readouterr()
    return status, json.loads(said.out) if status == 0 else {}, said.err


def sound(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    capsys.readouterr()
    assert main(["storage", "verify", str(data)]) == 0, capsys.readouterr().out


def content_of(top: Path) -> dict[str, tuple[int, bytes]]:
    """Of all files but the locks: their times and bytes."""
    return {
        str(path.relative_to(top)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in top.rglob("*")
        if path.is_file() and not path.name.endswith("lock")
    }


def fill(address: str, topic: str, count: int, keys: int = 0) -> None:
    producer = Producer({"bootstrap.servers": address, "batch.num.messages": 10, **QUIET})
    for number in range(count):
        producer.produce(topic, b"%100d" % number, b"%d" % (number % keys) if keys else None)
    assert producer.flush(30) == 0


def committed(address: str, topic: str) -> list[bytes]:
    """The values that a read_committed consumer reads from partition 0."""
    settings = {"bootstrap.servers": address, "group.id": "check", **QUIET}
    consumer = Consumer({**settings, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(20)) is not None and not message.error():
        found.append(message.value())
    consumer.close()
    return found


class Copier:
    """Copies numbers in transactions to two topics, with an offset of a group in each."""

    def __init__(self, address: str) -> None:
        self.count = 0
        self.ending = False
        self._address = address
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        producer = sender(self._address)
        consumer = Consumer({"bootstrap.servers": self._address, "group.id": "g", **QUIET})
        group = consumer.consumer_group_metadata()
        while not self.ending:
            producer.begin_transaction()
            for topic in ("left", "right"):
                producer.produce(topic, b"%d" % self.count, partition=0)
            place = TopicPartition("left", 0, self.count + 1)
            producer.send_offsets_to_transaction([place], group)
            producer.commit_transaction(20)
            self.count += 1
        consumer.close()

    def end(self) -> None:
        self.ending = True
        self._thread.join(30)


def sender(address: str) -> Producer:
    settings = {"bootstrap.servers": address, "transactional.id": "copier", **QUIET}
    producer = Producer(settings)
    producer.init_transactions(20)
    return producer


def test_a_snapshot_under_load_is_consistent_across_topics_and_offsets(tmp_path, capsys):
    data = tmp_path / "data"
    with Broker({"log.dirs": data}) as broker:
        for topic in ("left", "right"):
            broker.create_topic(topic, 1, configs={"segment.bytes": 2000})
        copier = Copier(broker.bootstrap_servers)
        forks, pauses_ms = [], []
        try:
            for number in range(3):
                wanted = copier.count + 20
                while copier.count < wanted:
                    time.sleep(0.01)
                before = copier.count
                status, facts, said = storage(capsys, "fork", data, tmp_path / f"fork-{number}")
                assert status == 0, said
                pauses_ms.append(facts["pauseMs"])
                forks.append((tmp_path / f"fork-{number}", before, copier.count))
        finally:
            copier.end()
    assert min(pauses_ms) < 100, pauses_ms  # a busy machine makes some longer
    for fork, before, after in forks:
        sound(capsys, fork)
        with Broker({"log.dirs": fork}) as second:
            sender(second.bootstrap_servers)  # ends the transaction that was open
            left, right = (
                committed(second.bootstrap_servers, topic) for topic in ("left", "right")
            )
            assert left == right == [b"%d" % number for number in range(len(left))]
            assert before <= len(left) <= after + 1
            group = Consumer(
                {"bootstrap.servers": second.bootstrap_servers, "group.id": "g", **QUIET}
            )
            assert group.committed([TopicPartition("left", 0)], 20)[0].offset == len(left)
            group.close()


def test_a_fork_runs_beside_its_origin_as_another_cluster(tmp_path, capsys):
    data, fork = tmp_path / "data", tmp_path / "fork"
    with Broker({"log.dirs": data}) as broker:
        broker.create_topic("news", 1, configs=SEGMENTS)
        fill(broker.bootstrap_servers, "news", 1000)
        status, facts, _ = storage(capsys, "fork", data, fork)
        assert status == 0 and facts["linkedFiles"] >= 15 and facts["copiedBytes"] < 5000
        sealed = sorted((data / "news-0").glob("*.log"))[0]
        assert os.stat(fork / "news-0" / sealed.name).st_ino == sealed.stat().st_ino
        with Broker({"log.dirs": fork}) as second:
            fill(second.bootstrap_servers, "news", 10)
            fill(broker.bootstrap_servers, "news", 5)
            assert len(committed(second.bootstrap_servers, "news")) == 1010
            assert len(committed(broker.bootstrap_servers, "news")) == 1005
    own, other = (
        dict(
            line.split("=")
            for line in (top / "meta.properties").read_text().splitlines()
            if "=" in line
        )
        for top in (data, fork)
    )
    assert own["broker.id"] == other["broker.id"] and own["cluster.id"] != other["cluster.id"]
    assert other["cluster.id"] == facts["clusterId"]


def test_the_origin_leaves_a_snapshot_as_it_is(tmp_path, capsys):
    """It appends, compacts, deletes, is killed and recovers."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    with BrokerProcess(data, port := free_port(), FAST_CLEANER) as broker:
        create(broker.address, "news", SEGMENTS)
        create(broker.address, "keys", COMPACTED)
        create(broker.address, "gone", SEGMENTS)
        for topic in ("news", "gone"):
            fill(broker.address, topic, 500)
        fill(broker.address, "keys", 500, keys=10)
        assert storage(capsys, "snapshot", data, copy)[0] == 0
        before = content_of(copy)
        sound(capsys, copy)
        work(broker.address, data)
        broker.kill()
    recover_all(data)
    with BrokerProcess(data, port, FAST_CLEANER) as broker:
        fill(broker.address, "news", 50)
        assert content_of(copy) == before
        assert broker.stop() == 0
    assert content_of(copy) == before
    sound(capsys, data)


def test_a_fork_leaves_its_origin_as_it_is(tmp_path, capsys):
    data, fork = tmp_path / "data", tmp_path / "fork"
    with Broker({"log.dirs": data}) as broker:
        broker.create_topic("news", 1, configs=SEGMENTS)
        broker.create_topic("keys", 1, configs=COMPACTED)
        broker.create_topic("gone", 1, configs=SEGMENTS)
        for topic in ("news", "gone"):
            fill(broker.bootstrap_servers, topic, 500)
        fill(broker.bootstrap_servers, "keys", 500, keys=10)
        assert storage(capsys, "fork", data, fork)[0] == 0
    before = content_of(data)
    with BrokerProcess(fork, port := free_port(), FAST_CLEANER) as second:
        work(second.address, fork)
        second.kill()
    recover_all(fork)
    with BrokerProcess(fork, port, FAST_CLEANER) as second:
        fill(second.address, "news", 50)
        assert second.stop() == 0
    assert content_of(data) == before
    sound(capsys, fork)
    with Broker({"log.dirs": data}) as broker:
        assert len(committed(broker.bootstrap_servers, "news")) == 500


def create(address: str, topic: str, configs: dict[str, object]) -> None:
    words = [word for name, value in configs.items() for word in ("--config", f"{name}={value}")]
    assert main(["topics", "create", topic, "--bootstrap-server", address, *words]) == 0


def recover_all(data: Path) -> None:
    """The next start reads every segment again, and writes its indexes."""
    (data / "recovery-point-offset-checkpoint").unlink()


def work(address: str, data: Path) -> None:
    """Appends to all, compacts `keys`, and deletes segments of `news` and the topic `gone`."""
    fill(address, "news", 300)
    segments = sorted((data / "keys-0").glob("*.log"))
    fill(address, "keys", 500, keys=10)
    server = ["--bootstrap-server", address]
    assert main(["topics", "alter", "news", "--config", "retention.bytes=1", *server]) == 0
    assert main(["topics", "delete", "gone", *server]) == 0
    until = time.monotonic() + 20
    while all(path.exists() and path.stat().st_nlink > 1 for path in segments):
        assert time.monotonic() < until, "nothing was compacted"
        time.sleep(0.05)


def test_the_parts_of_two_log_directories_become_one(tmp_path, capsys):
    dirs = [tmp_path / "one", tmp_path / "two"]
    with Broker({"log.dirs": ",".join(map(str, dirs))}) as broker:
        broker.create_topic("news", 4)
        fill(broker.bootstrap_servers, "news", 100)
        assert storage(capsys, "fork", dirs[0], tmp_path / "fork")[0] == 0
    assert all(len(list(path.glob("news-*"))) == 2 for path in dirs)
    sound(capsys, tmp_path / "fork")
    with Broker({"log.dirs": tmp_path / "fork"}) as second:
        assert len(second.records("news")) == 100


def test_on_another_file_system_the_files_are_copied(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(output, "PROGRESS_AFTER_S", 0.0)
    monkeypatch.setattr(output, "PROGRESS_EVERY_S", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    if os.stat("/dev/shm").st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is only one file system")
    copy = Path("/dev/shm") / f"barnabas-test-{os.getpid()}"
    try:
        with Broker({"log.dirs": tmp_path / "data"}) as broker:
            broker.create_topic("news", 1, configs=SEGMENTS)
            fill(broker.bootstrap_servers, "news", 300)
            status, facts, said = storage(capsys, "snapshot", tmp_path / "data", copy)
            assert (status, facts["linkedFiles"]) == (0, 0)
            files = sum(path.is_file() for path in copy.rglob("*"))
            assert files > 10 and f"copied to another file system {files} files, " in said
            assert not (tmp_path / "data" / SNAPSHOTS).exists()
        sound(capsys, copy)
    finally:
        subprocess.run(["rm", "-rf", copy], check=True)


def test_refusals_are_one_line(tmp_path, capsys):
    def refused(*words: object) -> str:
        status, _, said = storage(capsys, "snapshot", *words)
        assert status == 1 and said.count("\n") == 1
        return said

    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    assert "there is no directory" in refused(tmp_path / "none", tmp_path / "copy")
    assert "not an empty directory" in refused(tmp_path, tmp_path / "full")
    assert "Make it first" in refused(tmp_path, tmp_path / "none" / "copy")
    assert "no broker runs" in refused(tmp_path, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_each_broker_on_a_directory_is_asked(tmp_path, capsys, caplog):
    """The name of the socket is free when the broker before has stopped."""
    for number in range(3):
        with Broker({"log.dirs": tmp_path / "data"}):
            copy = tmp_path / f"copy-{number}"
            assert storage(capsys, "snapshot", tmp_path / "data", copy)[0] == 0
    assert "another process has the socket" not in caplog.text.lower()


def test_what_an_interrupted_snapshot_left_is_removed(tmp_path, capsys):
    data = tmp_path / "data"
    with Broker({"log.dirs": data}) as broker:
        broker.create_topic("news")
        left = data / SNAPSHOTS / "left"
        left.mkdir(parents=True)
        (left / "x").touch()
        sound(capsys, data)
        assert storage(capsys, "snapshot", data, tmp_path / "copy")[0] == 0
        assert not left.exists()


ASKING = """
import os, sys
from pathlib import Path
from barnabas.server.local_requests import NoLocalBroker, ask
os.setgid(65534)
os.setuid(65534)
try:
    ask(Path(sys.argv[1]), "snapshot", 10)
except NoLocalBroker as error:
    print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_gets_no_snapshot(tmp_path):
    data = tmp_path / "data"
    with Broker({"log.dirs": data}):
        data.chmod(0o755)
        for parent in (tmp_path, *tmp_path.parents):
            if parent.owner() == "root" and parent != Path("/"):
                parent.chmod(parent.stat().st_mode | 0o055)
        ran = subprocess.run(
            [sys.executable, "-c", ASKING, data], capture_output=True, text=True, check=False
        )
        assert "did not answer" in ran.stdout, ran
        assert not (data / SNAPSHOTS).exists()
