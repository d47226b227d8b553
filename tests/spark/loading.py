"""Loads in the test's process, and functions that read the loaded files."""

import io
import json

import pyarrow.dataset as ds
import pyarrow.parquet as pq
from confluent_kafka import Producer

from barnabas.spark.files import files_at
from barnabas.spark.load.batches import Publisher
from barnabas.spark.load.loader import Loader, LoadSettings
from barnabas.spark.load.task import load_range
from barnabas.spark.options import parse_options

HOUR_MS = 3_600_000
HOURS = 490_000 * HOUR_MS  # 2025-11-24T16:00Z
# For topics: without this, retention would delete these records with their old timestamps.
KEPT = {"retention.ms": -1}
KEPT_TEXT = {"retention.ms": "-1"}
COLUMNS = ["key", "value", "headers", "topic", "partition", "offset", "timestamp", "timestampType"]


def in_process(tasks):
    return [load_range(task) for task in tasks]


def loader_of(
    broker, topics, place, *, run=in_process, publisher=Publisher, now=None, to="lake", **options
):
    kept = {name: options.pop(name) for name in ("file_bytes", "lateness_ms") if name in options}
    given = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": topics if isinstance(topics, str) else ",".join(topics),
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        **{name: str(value) for name, value in options.items()},
    }
    settings = LoadSettings(
        parse_options(given, stream=True), to=f"{place}/{to}", checkpoint=f"{place}/cp", **kept
    )
    return Loader(settings, run, publisher=publisher, **({"now_ms": now} if now else {}))


def load(*words, **settings):
    return list(loader_of(*words, **settings).batches())


def send(broker, topic, count, *, partition=0, at_ms=HOURS, step_ms=0, size=10, start=0):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20})
    for i in range(start, start + count):
        producer.produce(
            topic,
            (b"%d " % i).ljust(size, b"."),
            key=b"k%d" % (i % 7),
            partition=partition,
            timestamp=at_ms + i * step_ms,
        )
    assert producer.flush(30) == 0


def tree(url, directory, files=None):
    """All files below a directory, as relative paths."""
    files, found = files or files_at(url), []
    for name in files.names(directory):
        path = f"{directory}/{name}" if directory else name
        below = tree(url, path, files) if "." not in name else []
        found += below or [path]
    return found


def published(url, topic):
    """Rows of all published batches, as (partition, offset, value), and the audits."""
    files = files_at(url)
    rows, audits = [], []
    for batch in files.names(topic):
        if batch.startswith("batch=") and "_SUCCESS" in files.names(f"{topic}/{batch}"):
            audit = json.loads(files.read(f"{topic}/{batch}/_SUCCESS"))
            there = {
                path.removeprefix(f"{topic}/{batch}/")
                for path in tree(url, f"{topic}/{batch}")
                if path.endswith(".parquet")
            }
            assert there == set(audit["files"])
            audits.append(audit)
            for name in sorted(there):
                table = pq.read_table(io.BytesIO(files.read(f"{topic}/{batch}/{name}")))
                rows += [
                    (row["partition"], row["offset"], row["value"]) for row in table.to_pylist()
                ]
    return rows, audits


def dataset(folder):
    return ds.dataset(str(folder), format="parquet", partitioning="hive")
