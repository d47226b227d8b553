"""Three brokers of Apache Kafka that die one after the other, so that their replicas differ.

    with ThreeKafkas("4.3.1", tmp_path) as before:
        before.run()
        ... import before.log_dirs; before.acknowledged has what a client must read ...

    1    all are in sync, and 3 leads partition 0 of both topics
    2    1 and 2 stand still; 3 appends records that only acks=1 acknowledges, and is killed
    3    1 and 2 go on with new leader epochs; then 2 stops, and 1 leads alone
    4    1 stops. 2 is the only replica of pairs-2 that was in sync

Of KRaft, 1 is the controller too, or all three are (`controllers=3`): then 1, alone in the last
steps, has no quorum, and leads on. `python -m takeover.three_kafkas VERSION` (in tests/) writes
recorded/three-VERSION.tar.xz: the three log directories, and what was acknowledged.
"""

import json
import os
import signal
import sys
import tarfile
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from compat.support import QUICK_HEAP, rival
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from takeover.kafka_before import READERS, RECORDED, TIMEOUT_S, commit, done
from waiting import pause

NEWS, PAIRS = "news", "pairs"
REPLICAS = {NEWS: [[3, 1, 2], [1, 2, 3], [2, 3, 1]], PAIRS: [[3, 1], [1, 2], [2, 3]]}
BATCHES, BATCH = 4, 10  # requests to each partition in each step, and records in one
LOST = b"only broker 3 had it"
SETTINGS = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "min.insync.replicas": "1",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "log.index.size.max.bytes": "4096",  # preallocated, and so in the log directory of a killed one
}
KRAFT = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
ZOOKEEPER = {"zookeeper.session.timeout.ms": "4000"}
Place = tuple[str, int]  # topic and partition


class ThreeKafkas:
    """`acknowledged`: values that were acknowledged by all in sync, by topic and partition;
    `committed`: the group's offsets in NEWS."""

    def __init__(self, version, folder, mode="kraft", controllers=1):
        self.version, self.mode, self._controllers = version, mode, controllers
        self.zookeeper = None
        self.brokers = {
            number: rival.Rival(version, folder / f"kafka-{number}", mode, heap=QUICK_HEAP)
            for number in (1, 2, 3)
        }
        for number, broker in self.brokers.items():
            broker.settings = SETTINGS | self._settings(number, broker)
        self._folder = folder
        self.acknowledged = {(topic, p): [] for topic in REPLICAS for p in range(3)}
        self.committed = {}
        self._stack = ExitStack()

    def _settings(self, number, broker):
        if self.mode == "zookeeper":
            return ZOOKEEPER | {"broker.id": str(number)}
        voters = ",".join(
            f"{voter}@127.0.0.1:{self.brokers[voter].side_port}"
            for voter in range(1, self._controllers + 1)
        )
        found = KRAFT | {"node.id": str(number), "controller.quorum.voters": voters}
        if number > self._controllers:
            found |= {"process.roles": "broker", "listeners": f"PLAINTEXT://{broker.address}"}
        return found

    @property
    def log_dirs(self):
        return {number: broker.log_dir for number, broker in self.brokers.items()}

    def __enter__(self):
        if self.mode == "zookeeper":
            self.zookeeper = rival.ZooKeeper(self.version, self._folder)
            self.zookeeper.start()
            self._stack.callback(self.zookeeper.stop)
        for broker in self.brokers.values():
            if self.zookeeper is not None:
                broker.settings["zookeeper.connect"] = self.zookeeper.address
            self._stack.callback(broker.stop)
        with ThreadPoolExecutor(len(self.brokers)) as pool:  # a quorum starts together
            list(pool.map(rival.Rival.start, self.brokers.values()))
        servers = ",".join(broker.address for broker in self.brokers.values())
        self._client = {"bootstrap.servers": servers, "log_level": 0}
        self._admin = AdminClient(self._client)
        return self

    def __exit__(self, *_exc):
        self._stack.close()

    def run(self):
        kept = {"retention.ms": "-1"}
        topics = [
            NewTopic(name, 3, replica_assignment=rows, config=kept)
            for name, rows in REPLICAS.items()
        ]
        done(self._admin.create_topics(topics))
        self._wait(lambda leader, isr: leader == 3 or len(isr) > 1, {(NEWS, 0), (PAIRS, 0)})
        self._step("all", self.acknowledged)
        self._diverge()
        self._wait(lambda leader, isr: leader in (1, 2) and 3 not in isr, self.acknowledged)
        self._step("without 3", self.acknowledged)
        self.brokers[2].stop()
        left = {place for place in self.acknowledged if place != (PAIRS, 2)}
        self._wait(lambda leader, isr: (leader, isr) == (1, [1]), left)
        self._step("1 alone", left)
        self.brokers[1].stop()

    def _wait(self, is_so, places):
        """Waits until the leader and the ISR of all places are as they should be."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            found = self._admin.list_topics(timeout=TIMEOUT_S).topics
            rows = {(t, p): found[t].partitions[p] for t, p in places if t in found}
            if len(rows) == len(places) and all(
                is_so(row.leader, row.isrs) for row in rows.values()
            ):
                return
            assert time.monotonic() < deadline, {k: (v.leader, v.isrs) for k, v in rows.items()}
            time.sleep(0.1)

    def _step(self, text, places):
        """Sends with acks=all to each place, and commits offsets of the group."""
        producer = Producer(self._client | {"acks": "all", "enable.idempotence": True})
        for batch in range(BATCHES):
            for topic, partition in sorted(places):
                for number in range(BATCH):
                    value = b"%s: %d" % (text.encode(), batch * BATCH + number)
                    producer.produce(topic, value, partition=partition)
                    self.acknowledged[topic, partition].append(value)
            assert producer.flush(TIMEOUT_S) == 0
        self.committed = {p: len(self.acknowledged[NEWS, p]) - 3 for p in range(3)}
        consumer = Consumer(self._client | {"group.id": READERS})
        commit(consumer, [TopicPartition(NEWS, *row) for row in self.committed.items()])
        consumer.close()

    def _diverge(self):
        """Lets the leader 3 append what its followers do not get, and kills it. Their waiting
        fetches take the first of the records, so it may be on them."""
        producer = Producer(self._client | {"acks": "1"})
        self._send_lost(producer, b"before")
        for number in (1, 2):
            pause(self.brokers[number].pid)
        try:
            for number in range(3):
                self._send_lost(producer, b"%s: %d" % (LOST, number))
            self.brokers[3].kill()
        finally:
            for number in (1, 2):
                os.kill(self.brokers[number].pid, signal.SIGCONT)

    def _send_lost(self, producer, value):
        producer.produce(NEWS, value, partition=0)
        assert producer.flush(TIMEOUT_S) == 0


def recorded(version, folder):
    """Unpacks the record. Returns the log directories by broker, what was acknowledged, and the
    group's offsets."""
    with tarfile.open(RECORDED / f"three-{version}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    said = json.loads((folder / "acknowledged.json").read_text())
    rows = {}
    for name, values in said["acknowledged"].items():
        topic, _, partition = name.rpartition("-")
        rows[topic, int(partition)] = [value.encode() for value in values]
    committed = {int(partition): offset for partition, offset in said["committed"].items()}
    return {number: folder / f"kafka-{number}" for number in (1, 2, 3)}, rows, committed


def record(version):
    with tempfile.TemporaryDirectory() as name, ThreeKafkas(version, Path(name)) as before:
        before.run()
        rows = {
            f"{topic}-{partition}": [value.decode() for value in values]
            for (topic, partition), values in before.acknowledged.items()
        }
        text = json.dumps({"acknowledged": rows, "committed": before.committed})
        (Path(name) / "acknowledged.json").write_text(text)
        with tarfile.open(RECORDED / f"three-{version}.tar.xz", "w:xz") as archive:
            for number, log_dir in before.log_dirs.items():
                archive.add(log_dir, f"kafka-{number}")
            archive.add(Path(name) / "acknowledged.json", "acknowledged.json")


if __name__ == "__main__":
    record(sys.argv[1])
