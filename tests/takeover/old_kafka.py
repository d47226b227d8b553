"""Apache Kafka 0.8 to 0.10 with records in every codec, and a group.

    with OldKafka("0.8.2.2", tmp_path) as before:
        before.fill()
        before.stop()              or before.kill()
        ... import before.log_dir, start a broker on before.port ...
        before.send(more)

`python -m takeover.old_kafka VERSION` (in tests/) writes recorded/kafka-VERSION.tar.xz: the log
directory after a clean stop."""

import sys
import tarfile
import tempfile
import time
from pathlib import Path

from compat.support import QUICK_HEAP, rival
from confluent_kafka import Consumer, Producer, TopicPartition
from kazoo.client import KazooClient
from takeover.kafka_before import READERS, RECORDED, TIMEOUT_S
from zookeeper_server import ZooKeeperServer

from barnabas.metadata.znodes import consumer_offset_path

TOPIC = "t"
COMMITTED = {0: 7, 1: 11}  # of the group, at its coordinator
IN_ZOOKEEPER = 5  # of the group's partition 0, as consumers of 0.8 store it
COUNT = 30  # records of each codec
SEGMENT_BYTES = 800


def codecs_of(version):
    return ("none", "gzip", "snappy") + (() if version.startswith("0.8") else ("lz4",))


def sent(version):
    """Returns key and value of each record, by partition."""
    found = {0: [], 1: []}
    for codec in codecs_of(version):
        for number in range(COUNT):
            value = b"%s %d" % (codec.encode(), number) if number % 7 else b""
            found[number % 2].append((b"k%d" % number if number % 5 else None, value))
    return found


class OldKafka:
    """Kafka and its ZooKeeper, and a client that speaks as those of its time."""

    def __init__(self, version, folder):
        self.version = version
        self.zookeeper = ZooKeeperServer(folder / "zookeeper")
        (self.port,) = rival.free_ports(1)
        self._folder = folder
        self.settings = {
            "offsets.topic.num.partitions": "3",
            "offsets.topic.replication.factor": "1",
            "num.partitions": "2",
            "log.segment.bytes": str(SEGMENT_BYTES),
        }
        if version.startswith("0.8"):
            for name in ("host.name", "advertised.host.name"):
                self.settings[name] = "127.0.0.1"
            self.settings |= {"port": str(self.port), "advertised.port": str(self.port)}
        fallback = version if version.count(".") == 3 else version + ".0"
        self.client = {
            "bootstrap.servers": f"127.0.0.1:{self.port}",
            "api.version.request": "false",
            "broker.version.fallback": ".".join(fallback.split(".")[:3]),
            "log_level": 0,
        }

    def __enter__(self):
        self.zookeeper.__enter__()
        settings = self.settings | {"zookeeper.connect": self.zookeeper.address}
        self._kafka = rival.Rival(
            self.version,
            self._folder / "kafka",
            "zookeeper",
            settings=settings,
            port=self.port,
            heap=QUICK_HEAP,
        )
        self._kafka.start()
        return self

    def __exit__(self, *exc):
        self._kafka.stop()
        self.zookeeper.__exit__(*exc)

    @property
    def log_dir(self):
        return self._kafka.log_dir

    def stop(self):
        self._kafka.stop()

    def kill(self):
        self._kafka.kill()

    def send(self, rows, codec="none"):
        producer = Producer(self.client | {"compression.codec": codec, "linger.ms": 50})
        for partition, records in rows.items():
            for key, value in records:
                producer.produce(TOPIC, value, key, partition=partition)
        assert producer.flush(TIMEOUT_S) == 0

    def fill(self):
        rows = sent(self.version)
        each = COUNT // 2
        for number, codec in enumerate(codecs_of(self.version)):
            part = slice(number * each, (number + 1) * each)
            self.send({partition: found[part] for partition, found in rows.items()}, codec)
        consumer = Consumer(self.client | {"group.id": READERS})
        places = [TopicPartition(TOPIC, *row) for row in COMMITTED.items()]
        deadline = time.monotonic() + TIMEOUT_S
        while any(row.error for row in consumer.commit(offsets=places, asynchronous=False)):
            assert time.monotonic() < deadline  # the coordinator has just been elected
            time.sleep(0.2)
        consumer.close()
        client = KazooClient(self.zookeeper.address)
        client.start(TIMEOUT_S)
        path = consumer_offset_path(READERS, TOPIC, 0)
        client.create(path, b"%d" % IN_ZOOKEEPER, makepath=True)
        client.stop()
        client.close()


def record(version):
    with tempfile.TemporaryDirectory() as folder, OldKafka(version, Path(folder)) as before:
        before.fill()
        before.stop()
        with tarfile.open(RECORDED / f"kafka-{version}.tar.xz", "w:xz") as archive:
            archive.add(before.log_dir, "data")


if __name__ == "__main__":
    record(sys.argv[1])
