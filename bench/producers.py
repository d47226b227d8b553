#!/usr/bin/env python3
"""Compares the asynchronous producer of barnabas.clients with those of confluent-kafka,
kafka-python and aiokafka: records of 100 bytes, one broker, one run.

    python bench/producers.py [--rounds N] [--records N] [--durability os|fsync] [--out DIR]

Each producer is a separate process that creates its records, one call for each record, and ends
when all are acknowledged with acks=all. The time counts from its first record. The producers take
turns, and the order changes each round. Each has batches of up to 512 KiB a partition, 5 ms to fill
them, and five requests in flight; all other settings have their defaults. Nothing is compressed.
The topic has four partitions and keys are null. The two slower producers send fewer records, but
enough to run for seconds. A row is the median of the rounds.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from in_turns import Figures, in_turns, report
from sides import Ours, create_topic

TOPIC = "load"
PARTITIONS = 4
RECORD_BYTES = 100
BATCH_BYTES = 512 * 1024
LINGER_MS = 5
BARS = {"kafka-python": 3.0, "aiokafka": 3.0, "confluent-kafka": 0.5}
SHARE = {"kafka-python": 0.1, "aiokafka": 0.1}  # of the records


def ours(address: str, values: list[bytes], count: int) -> None:
    from barnabas.clients import Producer, ProducerData

    producer = Producer(
        {
            "metadata.broker.list": address,
            "producer.type": "async",
            "queue.buffering.max.ms": LINGER_MS,
            "queue.buffering.max.messages": 20_000,
            "batch.num.messages": 2_000,
            "queue.enqueue.timeout.ms": -1,
            "request.required.acks": "-1",
        }
    )
    send = producer.send
    pool = len(values)
    for i in range(count):
        send(ProducerData(TOPIC, values[i % pool]))
    producer.close()
    metrics = producer.metrics
    assert metrics["acknowledged"] == count, metrics


def ours_by_default(address: str, values: list[bytes], count: int) -> None:
    """Sets nothing but the address of the broker."""
    from barnabas.clients import Producer, ProducerData

    producer = Producer({"metadata.broker.list": address, "producer.type": "async"})
    send = producer.send
    pool = len(values)
    for i in range(count):
        send(ProducerData(TOPIC, values[i % pool]))
    producer.close()
    assert producer.metrics["acknowledged"] == count, producer.metrics


def confluent(address: str, values: list[bytes], count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": address,
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "acks": "all",
            "max.in.flight": 5,
            "queue.buffering.max.messages": 100_000,
        }
    )
    produce, poll = producer.produce, producer.poll
    pool = len(values)
    for i in range(count):
        while True:
            try:
                produce(TOPIC, values[i % pool])
                break
            except BufferError:
                poll(0.01)
    assert producer.flush(60) == 0


def kafka_python(address: str, values: list[bytes], count: int) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=address,
        linger_ms=LINGER_MS,
        batch_size=BATCH_BYTES,
        acks="all",
        max_in_flight_requests_per_connection=5,
    )
    pool = len(values)
    last = None
    for i in range(count):
        last = producer.send(TOPIC, values[i % pool])
    producer.flush()
    last.get(60)
    producer.close()


def aio(address: str, values: list[bytes], count: int) -> None:
    from aiokafka import AIOKafkaProducer

    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=address,
            linger_ms=LINGER_MS,
            max_batch_size=BATCH_BYTES,
            acks="all",
        )
        await producer.start()
        pool = len(values)
        for i in range(count):
            await producer.send(TOPIC, values[i % pool])
        await producer.flush()
        await producer.stop()

    asyncio.run(run())


PRODUCERS: dict[str, Callable[[str, list[bytes], int], None]] = {
    "barnabas": ours,
    "barnabas, defaults": ours_by_default,
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aio,
}


def run_one(name: str, address: str, count: int) -> None:
    """Measures one producer in its own process, and prints the result."""
    from barnabas.client.load import payloads

    values = payloads(RECORD_BYTES)
    PRODUCERS[name](address, values, 1000)  # imports, connections, the topic's metadata
    began = time.perf_counter()
    cpu = time.process_time()
    PRODUCERS[name](address, values, count)
    seconds = time.perf_counter() - began
    spent = time.process_time() - cpu
    print(json.dumps({"per_s": count / seconds, "cpu_us": 1e6 * spent / count}))


def compare(rounds: int, records: int, durability: str) -> Figures:
    with tempfile.TemporaryDirectory() as scratch:
        side = Ours(Path(scratch), durability)
        side.start()
        try:
            create_topic(side.port, TOPIC, partitions=PARTITIONS)
            address = f"127.0.0.1:{side.port}"
            return in_turns(__file__, list(PRODUCERS), address, records, rounds, SHARE)
        finally:
            side.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--durability", choices=("os", "fsync"), default="os")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        run_one(given.one, given.address, given.records)
        return 0
    figures = compare(given.rounds, given.records, given.durability)
    return report("producer", figures, BARS, given.out, "producers")


if __name__ == "__main__":
    sys.exit(main())
