"""Reads records into one Arrow table: compares barnabas.scan with the consumers for Python.

    python bench/scan.py [--records N] [--repeats N] [--size BYTES] [--codec C] [--out DIR]

There is one barnabas broker with one topic of four partitions; records have no keys. Each reader
runs in its own process, which imports everything before its clock starts, and ends with a
pyarrow.Table of partition, offset, timestamp, key and value. The consumers read their records in
large portions. CPU is user and system time of all threads of the reader's process; for `wire` and
the consumers the broker works in addition. Slow readers read a part of the topic; rates are per
record. Readers take turns; the table has medians.

`files` fills memory that the process has never touched: the kernel must clear a page for each 4
KiB, and the time for this depends on the machine (`fresh memory` measures it, for as many bytes).
`files again` is the second table of a process that has released the first one; `batches` reads one
batch at a time.

Bars: at least 10 times the records/s of the best consumer, at most 40 ns of CPU a record; the bars
apply to each of the three, which differ in where the bytes end: in the cache, in kept memory, or in
fresh memory.
"""

import argparse
import asyncio
import json
import mmap
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sides import recycle_memory

PARTITIONS = 4
TOPIC = "scanned"
OURS = ("files", "files again", "batches", "wire")
BARRED = ("files", "files again", "batches")
READERS = (*OURS, "confluent-kafka", "aiokafka", "kafka-python")
SHARE = {"confluent-kafka": 0.4, "aiokafka": 0.1, "kafka-python": 0.04}
RATE_BAR, CPU_BAR_NS = 10.0, 40.0
PORTION = 10_000


# ---- readers: each returns a table of at least `count` records, or of all records ----
def table_of(rows: list[tuple[int, int, int, bytes | None, bytes | None]]) -> Any:
    import pyarrow

    names = ["partition", "offset", "timestamp", "key", "value"]
    types = [
        pyarrow.int32(),
        pyarrow.int64(),
        pyarrow.int64(),
        pyarrow.binary(),
        pyarrow.binary(),
    ]
    columns = zip(*rows, strict=True)
    arrays = [pyarrow.array(c, type=t) for c, t in zip(columns, types, strict=True)]
    return pyarrow.table(dict(zip(names, arrays, strict=True)))


def read_scan(source: str) -> Callable[[str, int], Any]:
    def read(servers: str, count: int) -> Any:
        from barnabas.scan import scan

        return scan(TOPIC, bootstrap_servers=servers, source=source).to_arrow()  # type: ignore[arg-type]

    return read


def read_batches(servers: str, count: int) -> Any:
    """Reads as the consumer of a stream does: it releases each batch before the next one comes."""
    from barnabas.scan import scan

    class Counted:
        num_rows = sum(len(columns) for columns in scan(TOPIC, bootstrap_servers=servers))

    return Counted


def read_again(servers: str, count: int) -> Any:
    return read_scan("files")(servers, count)


def fresh_memory(servers: str, count: int) -> Any:
    """Touches as many bytes as the table of `files` has."""
    mmap.mmap(-1, 140 * count, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()

    class Counted:
        num_rows = count

    return Counted


def read_confluent(servers: str, count: int) -> Any:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 16 << 20,
            "queued.max.messages.kbytes": 1 << 18,
        }
    )
    consumer.assign([TopicPartition(TOPIC, i, OFFSET_BEGINNING) for i in range(PARTITIONS)])
    rows: list[Any] = []
    while len(rows) < count:
        for m in consumer.consume(PORTION, 1.0):
            rows.append((m.partition(), m.offset(), m.timestamp()[1], m.key(), m.value()))
    found = table_of(rows)
    consumer.close()
    return found


def read_kafka_python(servers: str, count: int) -> Any:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        group_id=None,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=16 << 20,
        max_poll_records=PORTION,
    )
    consumer.assign([TopicPartition(TOPIC, i) for i in range(PARTITIONS)])
    rows: list[Any] = []
    while len(rows) < count:
        for found in consumer.poll(1000).values():
            rows += [(r.partition, r.offset, r.timestamp, r.key, r.value) for r in found]
    consumer.close()
    return table_of(rows)


def read_aiokafka(servers: str, count: int) -> Any:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def read() -> list[Any]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=servers,
            group_id=None,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=16 << 20,
        )
        consumer.assign([TopicPartition(TOPIC, i) for i in range(PARTITIONS)])
        await consumer.start()
        rows: list[Any] = []
        while len(rows) < count:
            for found in (await consumer.getmany(timeout_ms=1000, max_records=PORTION)).values():
                rows += [(r.partition, r.offset, r.timestamp, r.key, r.value) for r in found]
        await consumer.stop()
        return rows

    return table_of(asyncio.run(read()))


READ: dict[str, Callable[[str, int], Any]] = {
    "files": read_scan("files"),
    "files again": read_again,
    "batches": read_batches,
    "fresh memory": fresh_memory,
    "wire": read_scan("wire"),
    "confluent-kafka": read_confluent,
    "aiokafka": read_aiokafka,
    "kafka-python": read_kafka_python,
}


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def one_run(reader: str, servers: str, count: int) -> dict[str, float]:
    """Runs one reader once in this process, after all imports."""
    import pyarrow  # noqa: F401

    import barnabas.scan

    packages = {"confluent-kafka": "confluent_kafka", "kafka-python": "kafka"}
    if reader not in (*OURS, "fresh memory"):
        __import__(packages.get(reader, reader))
    assert barnabas.scan
    recycle_memory(2 * count * 150)
    if reader == "files again":
        READ[reader](servers, count)
    began, used = time.perf_counter(), cpu_s()
    table = READ[reader](servers, count)
    wall, cpu = time.perf_counter() - began, cpu_s() - used
    rows = table.num_rows
    assert rows >= count, f"{reader} gave {rows} records of {count}"
    return {"records": rows, "wall_s": wall, "cpu_s": cpu}


# ---- the broker and its records ----
def fill(servers: str, count: int, size: int, codec: str) -> None:
    from confluent_kafka import Producer

    from barnabas.client import Cluster, NewTopic, create_topics

    with Cluster(servers) as cluster:
        create_topics(cluster, [NewTopic(TOPIC, partition_count=PARTITIONS)])
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": codec,
            "batch.size": 65536,
            "linger.ms": 20,
            "queue.buffering.max.messages": 500_000,
            "acks": 1,
        }
    )
    value = os.urandom(size // 2).hex().encode()[:size]
    for i in range(count):
        while True:
            try:
                producer.produce(TOPIC, value, partition=i % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if not i & 0xFFF:
            producer.poll(0)
    assert producer.flush(60) == 0


def measured(reader: str, servers: str, count: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--run", reader, servers, str(count)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def report(runs: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    rows = {}
    for reader, found in runs.items():
        rates = [run["records"] / run["wall_s"] for run in found]
        cpus = [1e9 * run["cpu_s"] / run["records"] for run in found]
        rows[reader] = {
            "records_per_s": statistics.median(rates),
            "rates": rates,
            "cpu_ns_a_record": statistics.median(cpus),
            "cpus": cpus,
        }
    consumers = [r["records_per_s"] for n, r in rows.items() if n in SHARE]
    best = max(consumers, default=0.0)
    for name, row in rows.items():
        ratio = f"{row['records_per_s'] / best:6.1f}x" if best else ""
        print(
            f"{name:16}{row['records_per_s']:14,.0f} records/s {ratio}"
            f"{row['cpu_ns_a_record']:10.1f} ns of CPU a record"
            f"   ({min(row['cpus']):.1f} to {max(row['cpus']):.1f})"
        )
    for name in BARRED:
        if best and name in rows:
            rate, cpu = rows[name]["records_per_s"] / best, rows[name]["cpu_ns_a_record"]
            print(
                f"{name:16}records/s at least {RATE_BAR:g}x: {said(rate >= RATE_BAR)};"
                f" CPU at most {CPU_BAR_NS:g} ns: {said(cpu <= CPU_BAR_NS)}"
            )
    return rows


def said(reached: bool) -> str:
    return "reached" if reached else "MISSED"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--readers", default=",".join((*READERS, "fresh memory")))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        reader, servers, count = arguments.run
        print(json.dumps(one_run(reader, servers, int(count))))
        return 0

    from barnabas import Broker

    readers = arguments.readers.split(",")
    with tempfile.TemporaryDirectory() as directory:
        settings = {"log.dirs": directory, "log.durability": "os"}
        with Broker(settings) as broker:
            servers = broker.bootstrap_servers
            fill(servers, arguments.records, arguments.size, arguments.codec)
            runs: dict[str, list[dict[str, float]]] = {reader: [] for reader in readers}
            for _ in range(arguments.repeats):
                for reader in readers:
                    count = int(arguments.records * SHARE.get(reader, 1.0))
                    runs[reader].append(measured(reader, servers, count))
    rows = report(runs)
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        facts = {k: v for k, v in vars(arguments).items() if k not in ("out", "run")}
        (arguments.out / "scan.json").write_text(json.dumps({**facts, "rows": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
