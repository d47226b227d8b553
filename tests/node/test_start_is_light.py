"""A start imports no expensive modules, and does not read the empty part of indexes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from barnabas import Broker

NEVER_AT_START = {
    "asyncio",
    "bz2",
    "concurrent.futures",
    "cramjam",
    "crc32c",
    "encodings.idna",
    "hashlib",
    "http",
    "importlib.metadata",
    "kazoo",
    "logging.handlers",
    "lz4",
    "lzma",
    "multiprocessing",
    "numpy",
    "pluggy",
    "pyarrow",
    "random",
    "rich",
    "secrets",
    "shutil",
    "snappy",
    "ssl",
    "stringprep",
    "subprocess",
    "tempfile",
    "unicodedata",
    "urllib.parse",
    "uuid",
    "xml",
    "zstandard",
}
# Modules that the finder of an editable install imports first do not count.
STARTED = """
import json, pathlib, sys
before = set(sys.modules)
import barnabas.cli.start
from barnabas import Broker
with Broker({"log.dirs": sys.argv[1], "listeners": "PLAINTEXT://127.0.0.1:0"}):
    after = set(sys.modules)
print(json.dumps([sorted(before), sorted(after)]))
"""


def test_a_started_broker_has_imported_nothing_heavy(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", STARTED, str(tmp_path)], capture_output=True, text=True, check=True
    )
    before, after = (set(names) for names in json.loads(ran.stdout))
    assert "barnabas.node" in after and "sqlite3" in after
    assert (after - before) & NEVER_AT_START == set()
    # The broker's own modules increase with its features; those of others must be few.
    assert (
        len({name for name in after - before if not name.startswith("barnabas")}) < 63
    )  # 59 with an installed wheel; dataclasses imports inspect, ast and dis
    assert len(after - before) < 320


def resident_bytes(path):
    """The bytes of a mapped file that this process has in memory; None if it has not mapped it."""
    rows = Path("/proc/self/smaps").read_text().splitlines()
    found, inside = None, False
    for row in rows:
        first = row.split(None, 1)[0]
        if "-" in first and not first.endswith(":"):
            inside = row.endswith(str(path))
        elif inside and first == "Rss:":
            found = (found or 0) + int(row.split()[1]) * 1024
    return found


@pytest.mark.skipif(not hasattr(os, "SEEK_DATA"), reason="needs sparse files")
def test_the_unused_part_of_an_index_is_not_read_after_a_crash(tmp_path):
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "num.partitions": "1"}
    with Broker(settings | {"log.dirs": str(tmp_path / "first")}) as broker:
        produce_one(broker, "t")
        shutil.copytree(tmp_path / "first", tmp_path / "crashed")  # as after kill -9: no clean mark
    index = tmp_path / "crashed" / "t-0" / f"{0:020}.index"
    if index.stat().st_blocks * 512 > 1 << 20:
        index.write_bytes(b"")  # with a copy that is not sparse the test would prove nothing
        os.truncate(index, 10 << 20)
    assert index.stat().st_size == 10 << 20
    with Broker(settings | {"log.dirs": str(tmp_path / "crashed")}) as broker:
        produce_one(broker, "t")
        touched = resident_bytes(index)
        assert touched is not None and touched <= 1 << 20


def produce_one(broker, topic):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, b"value")
    assert producer.flush(30) == 0
