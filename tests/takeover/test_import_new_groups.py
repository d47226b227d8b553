"""A group of KIP-848 goes on after `barnabas storage import` from the real Kafka."""

import time

import pytest
from confluent_kafka import Consumer
from long_form import pick
from takeover.importing import import_to
from takeover.kafka_before import BEFORE, NEWS, TIMEOUT_S, KafkaBefore, rival

from barnabas import Broker

pytestmark = [pytest.mark.java, pytest.mark.takes(seconds=25)]

GROUP = "of KIP-848"
READ = 40


def read(consumer, found, count):
    """Reads until `count` records are there, each by its partition and offset."""
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count:
        assert time.monotonic() < deadline, len(found)
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append((message.partition(), message.offset()))


@pytest.mark.parametrize("version", pick(short=["4.3.1"], long=["4.3.1", "4.4.0"]))
def test_a_running_consumer_goes_on(tmp_path, capsys, version):
    if reason := rival.missing(version):
        pytest.skip(reason)
    with KafkaBefore(version, tmp_path) as before:
        before.fill()
        settings = {"bootstrap.servers": before.address, "group.id": GROUP, "log_level": 0}
        settings |= {"group.protocol": "consumer", "auto.offset.reset": "earliest"}
        consumer = Consumer(settings | {"enable.auto.commit": False})
        consumer.subscribe([NEWS])
        found = []
        read(consumer, found, READ)
        consumer.commit(asynchronous=False)
        before.stop()
        imported = import_to(capsys, tmp_path / "data", before.log_dir)
        assert imported["groups"] == 2
        listener = f"PLAINTEXT://127.0.0.1:{before.port}"
        with Broker({"log.dirs": tmp_path / "data", "listeners": listener}):
            read(consumer, found, 2 * BEFORE)
            assert consumer.poll(2) is None
            consumer.commit(asynchronous=False)
            consumer.close()
    assert sorted(found) == sorted({(p, offset) for p in (0, 1) for offset in range(BEFORE)})
