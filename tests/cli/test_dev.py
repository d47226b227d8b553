"""`barnabas dev`: a broker, its console and sample records, from one command."""

import json
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

ANY_PORTS = ("listeners=PLAINTEXT://127.0.0.1:0", "console.port=0", "metrics.port=-1")
PAST = 600


class Dev:
    """One `barnabas dev`; `lines` is what it has said."""

    def __init__(self, process):
        self.process, self.lines = process, []

    def wait_for(self, start):
        """Returns the rest of the first line that begins with `start`."""
        for line in self.process.stderr:
            self.lines.append(line.rstrip())
            if line.startswith(start):
                return line.removeprefix(start).strip()
        raise AssertionError(f"no line {start!r}: {self.lines}")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.lines += self.process.stderr.read().splitlines()
        return self.process.wait(20)


@contextmanager
def started(*words):
    settings = [word for text in ANY_PORTS for word in ("--set", text)]
    process = subprocess.Popen(
        [sys.executable, "-m", "barnabas", "dev", "--quiet", *settings, *words],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Dev(process)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def orders_at(servers, count):
    """The first `count` records of all partitions, in the order of their numbers."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader"})
    consumer.assign([TopicPartition("orders", index, 0) for index in range(3)])
    found, deadline = [], time.monotonic() + 20
    while len(found) < count and time.monotonic() < deadline:
        found += [row for row in consumer.consume(1000, 0.2) if row.error() is None]
    consumer.close()
    return sorted(found, key=lambda row: json.loads(row.value())["order"])


def test_it_serves_sample_records_and_a_console_and_leaves_nothing():
    pytest.importorskip("jinja2")
    with started("--rate", "20") as dev:
        console = dev.wait_for("console: ")
        servers = dev.wait_for("ready: PLAINTEXT://").split()[0]
        dev.wait_for(f"samples: topic orders has {PAST} records, then 20 a second")
        found = orders_at(servers, PAST + 5)
        page = urllib.request.urlopen(f"{console}/topics", timeout=20).read().decode()
        assert dev.stop() == 0
    data = Path(dev.lines[0].removeprefix("data: "))
    assert data.name.startswith("barnabas-") and not data.exists()
    numbers = [json.loads(row.value())["order"] for row in found]
    assert numbers == list(range(1, len(found) + 1)) and len(found) >= PAST + 5
    assert all(json.loads(row.value())["customer"].encode() == row.key() for row in found)
    assert {row.partition() for row in found} == {0, 1, 2}
    age_ms = [time.time() * 1000 - row.timestamp()[1] for row in found]
    assert age_ms[0] > 3_500_000 and age_ms[-1] < 60_000
    assert "orders" in page


def test_kept_data_goes_on_at_the_next_start(tmp_path):
    with started("--data", str(tmp_path / "kept"), "--rate", "0") as dev:
        dev.wait_for(f"samples: topic orders has {PAST} records, and no more")
        assert dev.stop() == 0
    with started("--data", str(tmp_path / "kept"), "--rate", "50") as dev:
        servers = dev.wait_for("ready: PLAINTEXT://").split()[0]
        dev.wait_for(f"samples: topic orders goes on at order {PAST + 1}, then 50 a second")
        found = orders_at(servers, PAST + 3)
        assert dev.stop() == 0
    numbers = [json.loads(row.value())["order"] for row in found]
    assert numbers == list(range(1, len(found) + 1)) and len(found) > PAST


@pytest.mark.parametrize("value", ["-1", "1001", "many"])
def test_a_bad_rate_is_one_line(value):
    ended = subprocess.run(
        [sys.executable, "-m", "barnabas", "dev", "--rate", value],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1 and "--rate" in ended.stderr
