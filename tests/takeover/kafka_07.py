"""A log directory of Apache Kafka 0.7.2, and what that broker answered when it served it.

`unshare -n python -m takeover.kafka_07 CLASSPATH` (in tests/, as root, because 0.7 listens on all
addresses of its network namespace) runs ZooKeeper 3.3 and Kafka 0.7.2 and writes
recorded/kafka-0.7.2.tar.xz:

    data/          the log directory after a clean stop
    zookeeper/     ZooKeeper's data directory, with the offsets of a consumer group
    answers.json   for each partition the offsets that Kafka knew, and for each address that its own
                   fetches returned the bytes of a fetch from there, as base64

No package registry has 0.7. The classes were compiled from the sources of release 0.7.2 with Scala
2.10.7; only names that Scala's library and Java have changed since 2.8 were changed in them.

    plain    messages of magic 1; retention (log.retention.size) has deleted the first segments
    old      messages of magic 0, as producers of 0.6 sent them
    packed   plain messages, gzip wrappers of the console producer, snappy wrappers, magic 0
    empty    one empty message; partition 0 has none
"""

import base64
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from oracle.kafka07 import EARLIEST, GZIP, LATEST, SNAPPY, Client07, message, messages, wrapped

PORT, ZOOKEEPER_PORT = 29092, 22181
RECORDED = Path(__file__).with_name("recorded") / "kafka-0.7.2.tar.xz"
READERS, READ = "readers", 25  # a group, and how many messages it read
PARTITIONS = {"plain": (0, 1), "old": (0,), "packed": (0,), "empty": (0, 1)}
SETTINGS = f"""\
brokerid=3
hostname=127.0.0.1
port={PORT}
log.dir=data
num.partitions=1
topic.partition.count.map=plain:2,empty:2
log.file.size=2000
log.flush.interval=1
log.default.flush.scheduler.interval.ms=100
log.retention.size=9000
log.cleanup.interval.mins=1
zk.connect=127.0.0.1:{ZOOKEEPER_PORT}
"""
ZOOKEEPER_SETTINGS = f"""\
dataDir=zookeeper
clientPort={ZOOKEEPER_PORT}
clientPortAddress=127.0.0.1
"""
LOGGING = """\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.SimpleLayout
"""


class Java:
    """Runs classes of 0.7.2 in a folder."""

    def __init__(self, classpath, folder):
        self._command = ["java", "-Xmx256M", "-Dlog4j.configuration=file:log4j.properties"]
        self._command += ["-Dzookeeper.jmx.log4j.disable=true"]
        self._command += ["--add-opens=java.base/java.lang=ALL-UNNAMED", "-cp", classpath]  # snappy
        self._folder = folder

    def start(self, name, *arguments, stdin=None):
        command = [*self._command, name, *arguments]
        return subprocess.Popen(command, cwd=self._folder, stdin=stdin)

    def run(self, name, *arguments, lines=b""):
        """Runs a console tool, which does not end by itself."""
        running = self.start(name, *arguments, stdin=subprocess.PIPE)
        running.stdin.write(lines)
        running.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            running.wait(15)
        running.terminate()
        running.wait(30)


def connect():
    for _ in range(200):
        try:
            return Client07(PORT)
        except OSError:
            time.sleep(0.1)
    raise AssertionError("Kafka 0.7.2 does not answer")


def fill(java):
    at = f"127.0.0.1:{ZOOKEEPER_PORT}"
    with connect() as client:
        for number in range(0, 400, 5):
            values = [b"plain %d " % value * (value % 7) for value in range(number, number + 5)]
            client.produce("plain", messages(values), partition=1)
        client.produce("plain", messages([b"of partition 0"]), partition=0)
        for number in range(60):
            client.produce("old", messages([b"old %d" % number * (number % 30)], magic=0))
        for number in range(30):
            client.produce("packed", messages([b"first %d" % number]))
            client.produce("packed", message(b"of 0.6: %d" % number, magic=0))
    lines = "".join(f"a line that is packed: {number}\n" for number in range(200)).encode()
    words = ("--zookeeper", at, "--topic", "packed", "--compress", "--batch-size", "20")
    java.run("kafka.producer.ConsoleProducer", *words, lines=lines)
    with connect() as client:
        for number in range(20):
            values = [b"snappy %d" % number * value for value in range(number)]
            client.produce("packed", wrapped(values or [b"one"], SNAPPY))
            client.produce("packed", messages([b"between %d" % number]))
        client.produce("packed", wrapped([b""] * 3, GZIP) + messages([b"", b"last"]))
        client.produce("empty", messages([b""]), partition=1)
    words = ("--zookeeper", at, "--from-beginning", "--group", READERS, "--topic", "packed")
    java.run("kafka.consumer.ConsoleConsumer", *words, "--max-messages", str(READ))
    time.sleep(80)  # retention runs each minute


def borders(data):
    """Returns where each message begins, and where the last whole one ends."""
    found, at = [], 0
    while at + 4 <= len(data):
        found.append(at)
        at += 4 + int.from_bytes(data[at : at + 4], "big")
        if at > len(data):
            return found
    return [*found, at]


def answers():
    """Returns what the broker answers for each partition."""
    found = {}
    with connect() as client:
        for topic, partitions in PARTITIONS.items():
            for partition in partitions:
                offsets = {
                    str(time_ms): client.offsets(topic, time_ms, 100, partition)[1]
                    for time_ms in (EARLIEST, LATEST)
                }
                fetches, wanted = {}, [offsets[str(EARLIEST)][0]]
                while wanted:
                    at = wanted.pop()
                    if at in fetches:
                        continue
                    error, data = client.fetch(topic, at, 1 << 20, partition)
                    assert error == 0
                    fetches[at] = base64.b64encode(data).decode()
                    wanted += [at + border for border in borders(data)[1:]]
                found[f"{topic}-{partition}"] = {"offsets": offsets, "fetches": fetches}
    return found


def record(classpath):
    classpath = ":".join(str(Path(row).absolute()) for row in classpath.split(":"))
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "server.properties").write_text(SETTINGS)
        (folder / "zookeeper.properties").write_text(ZOOKEEPER_SETTINGS)
        (folder / "log4j.properties").write_text(LOGGING)
        java = Java(classpath, folder)
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        zookeeper = java.start(main, "zookeeper.properties")
        time.sleep(3)
        kafka = java.start("kafka.Kafka", "server.properties")
        try:
            fill(java)
            text = json.dumps(answers())
        finally:
            kafka.terminate()
            kafka.wait(30)
            zookeeper.terminate()
            zookeeper.wait(30)
        (folder / "answers.json").write_text(text)
        for path in (folder / "zookeeper").rglob("log.*"):
            path.write_bytes(path.read_bytes().rstrip(b"\0") + bytes(16))  # preallocated
        with tarfile.open(RECORDED, "w:xz") as archive:
            for part in ("data", "zookeeper", "answers.json"):
                archive.add(folder / part, part)


def recorded(folder):
    """Unpacks the record. Returns the log directory, ZooKeeper's directory and the answers."""
    with tarfile.open(RECORDED) as archive:
        archive.extractall(folder, filter="data")
    return folder / "data", folder / "zookeeper", json.loads((folder / "answers.json").read_text())


if __name__ == "__main__":
    record(sys.argv[1])
