"""Each kind of client produces to, and reads from, topics that do not exist yet."""

import asyncio
import subprocess
import time

import pytest
from compat.support import KAFKA, QUICK_HEAP, Broker, cannot_run, rival

VALUE = b"the first record"


@pytest.fixture(scope="module")
def creating(tmp_path_factory, request):
    kind = request.config.getoption("--broker")
    reason = cannot_run(kind)
    if reason:
        pytest.skip(reason)
    data = tmp_path_factory.mktemp("creating")
    running = Broker(kind, data, {"auto.create.topics.enable": "true"})
    yield running
    running.stop()


def test_librdkafka(creating):
    from confluent_kafka import Consumer, Producer

    producer = Producer({"bootstrap.servers": creating.address})
    producer.produce("by-librdkafka", VALUE)
    assert producer.flush(30) == 0
    settings = {
        "bootstrap.servers": creating.address,
        "group.id": "librdkafka",
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": True,
    }
    consumer = Consumer(settings)
    consumer.subscribe(["by-librdkafka", "subscribed-by-librdkafka"])
    assert first_of(lambda: consumer.poll(1), lambda row: row.value()) == VALUE
    consumer.close()


def test_kafka_python(creating):
    from kafka import KafkaConsumer, KafkaProducer

    producer = KafkaProducer(bootstrap_servers=creating.address)
    assert producer.send("by-kafka-python", VALUE).get(30).offset == 0
    producer.close()
    consumer = KafkaConsumer(
        "by-kafka-python", bootstrap_servers=creating.address, auto_offset_reset="earliest"
    )
    assert next(consumer).value == VALUE
    consumer.close()


def test_aiokafka(creating):
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async def run():
        producer = AIOKafkaProducer(bootstrap_servers=creating.address)
        await producer.start()
        sent = await producer.send_and_wait("by-aiokafka", VALUE)
        await producer.stop()
        consumer = AIOKafkaConsumer(
            "by-aiokafka", bootstrap_servers=creating.address, auto_offset_reset="earliest"
        )
        await consumer.start()
        row = await asyncio.wait_for(consumer.getone(), 30)
        await consumer.stop()
        return sent.offset, row.value

    assert asyncio.run(run()) == (0, VALUE)


@pytest.mark.java
def test_java(creating, tmp_path):
    command = rival.tool(KAFKA, "console-producer", tmp_path / "log", heap=QUICK_HEAP)
    command += ["--bootstrap-server", creating.address, "--topic", "by-java"]
    done = subprocess.run(command, input=VALUE + b"\n", timeout=90, check=False)
    assert done.returncode == 0
    command = rival.tool(KAFKA, "console-consumer", tmp_path / "log", heap=QUICK_HEAP)
    command += ["--bootstrap-server", creating.address, "--topic", "by-java"]
    command += ["--from-beginning", "--max-messages", "1", "--timeout-ms", "60000"]
    done = subprocess.run(command, capture_output=True, timeout=90, check=False)
    assert done.stdout.strip() == VALUE


def first_of(step, value):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        row = step()
        if row is not None and row.error() is None:
            return value(row)
    raise AssertionError("no record came")
