"""`barnabas start --cluster 3`: three brokers and a ZooKeeper, from one command."""

import os
import re
import signal
import subprocess
import sys
import threading

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.cli.zookeeper_process import missing

pytestmark = pytest.mark.takes(seconds=25)
READY_S = 60
FEW = (
    "listeners=PLAINTEXT://127.0.0.1:0",
    "metrics.port=-1",
    "num.network.threads=1",
    "num.io.threads=4",
    "offsets.topic.num.partitions=1",
    "group.initial.rebalance.delay.ms=0",
)


class StartedCluster:
    """One `barnabas start --cluster`; `lines` is what it has said."""

    def __init__(self, data, *settings):
        words = [word for text in (f"log.dirs={data}", *FEW, *settings) for word in ("--set", text)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "barnabas", "start", "--cluster", "3", *words],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines = []
        self.servers = ""
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        self.wait_for("bootstrap servers: ")
        self.servers = self.lines[-1].removeprefix("bootstrap servers: ")

    def _read(self):
        for line in self.process.stderr:
            with self._news:
                self.lines.append(line.rstrip())
                self._news.notify_all()
        with self._news:
            self.lines.append("(the end)")
            self._news.notify_all()

    def wait_for(self, text):
        with self._news:
            ends = (text, "(the end)")
            self._news.wait_for(lambda: any(e in row for row in self.lines for e in ends), READY_S)
            assert any(text in row for row in self.lines), self.lines

    def stop(self, number):
        self.process.send_signal(number)
        status = self.process.wait(READY_S)
        self._thread.join()
        return status

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        if self.process.poll() is None:
            self.stop(signal.SIGTERM)


def processes_of(folder):
    """The processes whose command line names the folder."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                if os.fsencode(folder) in file.read():
                    found.append(int(name))
        except OSError:
            continue
    return found


def read_all(servers, count):
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["news"])
    found = []
    while len(found) < count:
        message = consumer.poll(30)
        assert message is not None, found
        assert message.error() is None
        found.append(message.value())
    consumer.close()
    return sorted(found)


def produce(servers, values):
    producer = Producer({"bootstrap.servers": servers})
    for value in values:
        producer.produce("news", value)
    assert producer.flush(30) == 0


@pytest.mark.java  # it needs the jars of pyspark, and Java
def test_three_brokers_serve_and_start_again_on_the_same_data(tmp_path):
    if missing():
        pytest.skip(missing())
    data = tmp_path / "cluster"
    with StartedCluster(data) as cluster:
        assert len([row for row in cluster.lines if row.startswith("broker ")]) == 3
        admin = AdminClient({"bootstrap.servers": cluster.servers})
        admin.create_topics([NewTopic("news", 3)])["news"].result(30)
        partitions = admin.list_topics("news", timeout=10).topics["news"].partitions
        assert {len(row.replicas) for row in partitions.values()} == {3}
        produce(cluster.servers, [b"first", b"second"])
        assert read_all(cluster.servers, 2) == [b"first", b"second"]
        assert cluster.stop(signal.SIGTERM) == 0
        assert cluster.lines[-3:-1] == ["stopping", "stopped"]
    assert processes_of(data) == []
    for number in (1, 2, 3):
        log = (data / f"broker-{number}.log").read_text()
        assert "stopped" in log and "still leads partitions" not in log
    with StartedCluster(data) as cluster:
        produce(cluster.servers, [b"third"])
        assert sorted(read_all(cluster.servers, 1)) == [b"third"]  # the group goes on where it was
        [pid] = [row for row in processes_of(data / "broker-2") if row != cluster.process.pid]
        os.kill(pid, signal.SIGKILL)
        cluster.wait_for("broker 2 has ended (status -9)")
        produce(cluster.servers, [b"fourth"])
        assert cluster.stop(signal.SIGINT) == 0
    assert processes_of(data) == []


def refused(*words, path=None):
    environ = os.environ if path is None else {**os.environ, "PATH": path}
    ended = subprocess.run(
        [sys.executable, "-m", "barnabas", "start", "--cluster", *words],
        capture_output=True,
        text=True,
        timeout=30,
        env=environ,
    )
    lines = [line for line in ended.stderr.splitlines() if line not in ("stopping", "stopped")]
    assert ended.returncode != 0 and len(lines) == 1, lines
    return lines[0]


def test_without_java_the_error_says_what_to_install(tmp_path):
    line = refused("3", "--set", f"log.dirs={tmp_path}", path=str(tmp_path))
    assert "java is not installed. Install Java" in line
    assert "--set zookeeper.connect=HOST:PORT" in line


def test_what_cannot_hold_for_several_brokers_is_refused(tmp_path):
    assert "node.id is set" in refused("3", "--set", f"log.dirs={tmp_path}", "--set", "node.id=1")
    assert "a number from 1 to 10" in refused("11")
    (tmp_path / "meta.properties").write_text("version=0\n")
    assert re.search("has the data of one broker", refused("2", "--set", f"log.dirs={tmp_path}"))


def test_a_broker_that_does_not_start_ends_the_others(tmp_path):
    line = refused(
        "2",
        *("--set", f"log.dirs={tmp_path}"),
        *("--set", "zookeeper.connect=127.0.0.1:1"),
        *("--set", "zookeeper.connection.timeout.ms=300"),
        *("--set", "metrics.port=-1"),
        *("--set", "listeners=PLAINTEXT://127.0.0.1:0"),
    )
    assert re.search("broker [12] does not start: .*127.0.0.1:1", line)
    assert "broker-" in line
    assert processes_of(tmp_path) == []
