"""A broker with a metrics page, and functions that read the page."""

import http.client
import time
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from oracle.exposition import read_page

from barnabas import Broker


class Watched:
    """A running broker and its page."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.node = broker.node
        self.bootstrap = broker.bootstrap_servers
        address = self.node.metrics.address
        assert address is not None
        self.port = int(address.rpartition(":")[2])

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def page(self):
        status, text = self.get("/metrics")
        assert status == 200
        return read_page(text)

    def produce(self, topic: str, count: int = 1, size_bytes: int = 100, **settings) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, **settings})
        for _ in range(count):
            producer.produce(topic, b"x" * size_bytes)
        assert producer.flush(20) == 0

    def consume(self, topic: str, count: int) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "watched",
                "enable.auto.commit": False,
            }
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        got = 0
        end = time.monotonic() + 20
        while got < count and time.monotonic() < end:
            got += len(consumer.consume(count - got, timeout=1))
        consumer.unassign()
        consumer.close()
        assert got == count


@contextmanager
def watched(path, **settings):
    given = {
        "log.dirs": str(path),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "metrics.port": "0",
        "num.partitions": "1",
    }
    with Broker(given | {name.replace("_", "."): str(v) for name, v in settings.items()}) as broker:
        yield Watched(broker)


@pytest.fixture
def broker(tmp_path):
    with watched(tmp_path) as running:
        yield running
