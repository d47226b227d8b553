#!/usr/bin/env python3
"""Compares a stream of barnabas.clients' ConsumerConnector with the consumers of other packages:
records of 100 bytes, one broker, one run.

    python bench/consumers_old.py [--rounds N] [--records N] [--codec NAME] [--out DIR]

Each consumer is a separate process that reads the topic from its beginning, in its own group, which
commits nothing, and reads every record's value in a loop. The time counts from its first record to
its last. The consumers take turns, and the order changes each round. All settings have their
defaults, with two exceptions: fetches ask for up to 1 MiB a partition, and confluent-kafka, which
by default pauses for a second when its queue is full, pauses for 5 ms. The topic has four
partitions. Slower consumers read fewer records, but enough to run for seconds. A row is the median
of the rounds.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from in_turns import Figures, in_turns, report
from sides import Ours, create_topic

TOPIC = "load"
PARTITIONS = 4
RECORD_BYTES = 100
FETCH_BYTES = 1024 * 1024
BARS = {"kafka-python": 2.0}
SHARE = {"kafka-python": 0.25, "aiokafka": 0.25}  # of the records


def ours(address: str) -> Iterator[bytes]:
    from barnabas.clients import Consumer

    connector = Consumer.create(
        {
            "group.id": str(uuid.uuid4()),
            "bootstrap.servers": address,
            "auto.offset.reset": "smallest",
            "auto.commit.enable": "false",
            "fetch.message.max.bytes": FETCH_BYTES,
        }
    )
    (stream,) = connector.create_message_streams({TOPIC: 1})[TOPIC]
    for message in stream:
        yield message.message


def kafka_python(address: str) -> Iterator[bytes]:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        TOPIC,
        bootstrap_servers=address,
        group_id=str(uuid.uuid4()),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=FETCH_BYTES,
    )
    for message in consumer:
        yield message.value


def confluent(address: str) -> Iterator[bytes]:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": str(uuid.uuid4()),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "max.partition.fetch.bytes": FETCH_BYTES,
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.subscribe([TOPIC])
    while True:
        for message in consumer.consume(1000, timeout=0.1):
            yield message.value()


async def aio(address: str, count: int) -> tuple[float, float]:
    """Measures an asynchronous consumer, which needs its own loop to count records."""
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=address,
        group_id=str(uuid.uuid4()),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=FETCH_BYTES,
    )
    await consumer.start()
    await consumer.getone()
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(count - 1):
        assert len((await consumer.getone()).value) == RECORD_BYTES
    seconds, spent = time.perf_counter() - began, time.process_time() - cpu
    await consumer.stop()
    return seconds, spent


CONSUMERS: dict[str, Callable[[str], Iterator[bytes]] | None] = {
    "barnabas": ours,
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": None,
}


def timed(values: Iterator[bytes], count: int) -> tuple[float, float]:
    next(values)
    began, cpu = time.perf_counter(), time.process_time()
    left = count - 1
    for value in values:
        assert len(value) == RECORD_BYTES
        left -= 1
        if left == 0:
            break
    return time.perf_counter() - began, time.process_time() - cpu


def run_one(name: str, address: str, count: int) -> None:
    """Measures one consumer in its own process, and prints the result."""
    made = CONSUMERS[name]
    found = asyncio.run(aio(address, count)) if made is None else timed(made(address), count)
    seconds, spent = found
    print(json.dumps({"per_s": count / seconds, "cpu_us": 1e6 * spent / count}), flush=True)


def fill(address: str, records: int, codec: str) -> None:
    from barnabas.client import Cluster, Producer
    from barnabas.client.load import payloads

    values = payloads(RECORD_BYTES)
    with Cluster(address) as cluster, Producer(cluster, TOPIC, codec=codec) as producer:
        for i in range(records):
            producer.send(values[i % len(values)], partition=i // 1000 % PARTITIONS)


def compare(rounds: int, records: int, codec: str) -> Figures:
    with tempfile.TemporaryDirectory() as scratch:
        side = Ours(Path(scratch), "os")
        side.start()
        try:
            address = f"127.0.0.1:{side.port}"
            create_topic(side.port, TOPIC, partitions=PARTITIONS)
            fill(address, records, codec)
            return in_turns(__file__, list(CONSUMERS), address, records, rounds, SHARE)
        finally:
            side.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        run_one(given.one, given.address, given.records)
        return 0
    figures = compare(given.rounds, given.records, given.codec)
    return report("consumer", figures, BARS, given.out, "consumers_old")


if __name__ == "__main__":
    sys.exit(main())
