"""A mirror, its source and its target are killed with -9 while it copies: nothing is lost."""

import signal
import time

import pytest
from durability.broker_process import BrokerProcess, free_port
from mirror_process import MirrorProcess, figure
from waiting import soon

from barnabas.client import LATEST, Cluster, NewTopic, Reader, create_topics, list_offsets
from barnabas.client.failures import ClientError
from barnabas.clients import KeyedMessage, Producer
from barnabas.errors import KafkaError

pytestmark = pytest.mark.takes(seconds=15)

PARTITIONS = 3


class Rig:
    """Two brokers, a producer that retries without end, and a mirror."""

    def __init__(self, folder):
        self.folder = folder
        self.source = BrokerProcess(folder / "source", free_port())
        self.target = BrokerProcess(folder / "target", free_port())
        self.port = free_port()
        self.sent = 0
        config = folder / "source.properties"
        # A short session timeout, so that the next member need not wait long.
        config.write_text(
            f"bootstrap.servers={self.source.address}\nsession.timeout.ms=6000\n"
            "heartbeat.interval.ms=500\ntopic.metadata.refresh.interval.ms=500\n"
        )
        self.words = ("--source-config", config, "--target", self.target.address)
        self.words += ("--whitelist", "t", "--commit-interval", 20, "--metrics-port", self.port)
        self.mirror = None
        with Cluster(self.source.address) as cluster:
            create_topics(cluster, [NewTopic("t", PARTITIONS, 1)])
        self.producer = Producer(
            {
                "metadata.broker.list": self.source.address,
                "serializer.class": "string",
                "producer.type": "async",
                "queue.time": 5,
                "batch.size": 50,
                "message.send.max.retries": -1,
            }
        )

    def start_mirror(self):
        self.mirror = MirrorProcess(*self.words)

    def kill_mirror(self):
        self.mirror.end(signal.SIGKILL)

    def again(self, name):
        """Kills a broker and starts it again."""
        broker = getattr(self, name)
        if broker.process.poll() is None:
            broker.kill()
        setattr(self, name, BrokerProcess(self.folder / name, broker.port))

    def send(self, count):
        for _ in range(count):
            text = str(self.sent)
            self.producer.send(KeyedMessage("t", text, partition=self.sent % PARTITIONS))
            self.sent += 1
            if self.sent % 20 == 0:
                time.sleep(0.001)

    def wait_for_more(self, before):
        """Waits until more records have arrived than `before`."""
        soon(lambda: self.arrived() > before, "nothing came through")

    def arrived(self):
        """The number of records in the target, duplicates included."""
        try:
            with Cluster(self.target.address, timeout_s=2) as cluster:
                asked = dict.fromkeys(cluster.topic("t").partitions, LATEST)
                return sum(row.offset for row in list_offsets(cluster, "t", asked).values())
        except (ClientError, KafkaError):
            return 0

    def values(self, broker):
        with Cluster(broker.address) as cluster:
            reader = Reader(cluster, "t", dict.fromkeys(range(PARTITIONS), 0), to_end=True)
            found = {index: [] for index in range(PARTITIONS)}
            for partition, record in reader:
                found[partition].append(int(record.value))
            return found

    def end(self):
        if self.mirror is not None and self.mirror.process.poll() is None:
            self.kill_mirror()
        for broker in (self.source, self.target):
            if broker.process.poll() is None:
                broker.kill()


@pytest.fixture
def rig(tmp_path):
    made = Rig(tmp_path)
    yield made
    made.end()


@pytest.mark.alone("two brokers that flush each batch: beside writers its waits take minutes")
def test_kill_9_loses_nothing(rig):
    rig.start_mirror()
    rig.send(1500)
    rig.wait_for_more(0)
    rig.send(500)
    rig.kill_mirror()  # in the middle of it

    before = rig.arrived()
    rig.start_mirror()
    rig.send(500)
    rig.wait_for_more(before)
    rig.target.kill()
    rig.send(1500)
    what = "nothing was read while the target is away"
    soon(lambda: (figure(rig.port, "barnabas_mirror_pending_bytes") or 0) > 5000, what)
    rig.kill_mirror()  # with records that it has read and the target has not acknowledged
    rig.again("target")

    before = rig.arrived()
    rig.start_mirror()
    rig.wait_for_more(before)
    rig.again("source")
    rig.again("target")
    before = rig.arrived()
    rig.send(1000)
    rig.wait_for_more(before)
    rig.kill_mirror()

    rig.producer.close()
    assert rig.producer.metrics["dropped"] == 0
    rig.start_mirror()
    soon(
        lambda: len({v for rows in rig.values(rig.target).values() for v in rows}) == rig.sent,
        "something was lost",
    )
    original, copied = rig.values(rig.source), rig.values(rig.target)
    for partition in range(PARTITIONS):
        # The first copies of the messages are also in order.
        firsts = list(dict.fromkeys(copied[partition]))
        assert firsts == original[partition] == list(range(partition, rig.sent, PARTITIONS))
