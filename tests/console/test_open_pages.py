"""With 20 open pages a produce request takes no longer: the broker is a process, the pages are
another, and rounds with and without pages take turns, so that other load counts in both."""

import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from console.open_pages import COUNT, REFRESH_S

from barnabas.client import Cluster, NewTopic, create_topics
from barnabas.client.connection import Connection
from barnabas.wire import Struct, request
from barnabas.wire.batches import encode_batch

ROUNDS = 24
SHARE_MAX = 1.1
PRODUCE = 0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.only_long,
    pytest.mark.alone(reason="measures milliseconds"),
    pytest.mark.takes(seconds=120),
]


@pytest.fixture
def served(tmp_path):
    """(address of the broker, address of the console)."""
    settings = {
        "log.dirs": str(tmp_path),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "console.port": "0",
        "metrics.port": "-1",
    }
    command = [sys.executable, "-m", "barnabas", "start"]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    ran = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert ran.stderr is not None
    console = ""
    for line in ran.stderr:
        if line.startswith("console: "):
            console = line.split("//")[1].strip()
        if line.startswith("ready: "):
            yield line.split("//")[1].split()[0], console
            break
    ran.terminate()
    ran.wait(20)


def produce_request() -> Struct:
    message = request(PRODUCE)
    rows = [
        message.struct("topicData.partitionData")(index=0, records=encode_batch([b"x" * 100] * 10))
    ]
    topic = message.struct("topicData")(name="load", partitionData=rows)
    return message.cls(acks=1, timeoutMs=30_000, topicData=[topic])


def times_ms(connection: Connection, body: Struct) -> list[float]:
    """The times of produce requests, one after the other, for REFRESH_S seconds."""
    times = []
    end = time.monotonic() + REFRESH_S
    while (began := time.monotonic()) < end:
        connection.call(PRODUCE, body)
        times.append(1000 * (time.monotonic() - began))
        time.sleep(0.002)
    return times


def p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100)[98]


def test_produce_is_as_fast_beside_twenty_open_pages(served):
    address, console = served
    with Cluster(address) as cluster:
        create_topics(cluster, [NewTopic(f"t{i}", 4, 1) for i in range(50)] + [NewTopic("load")])
    host, port = address.split(":")
    connection = Connection(host, int(port))
    body = produce_request()
    found: dict[bool, list[float]] = {False: [], True: []}
    pages = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("open_pages.py")), console],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert pages.stdin is not None and pages.stdout is not None
    times_ms(connection, body)  # warms up
    for number in range(ROUNDS):
        has_pages = number % 2 == 1
        if has_pages:
            pages.stdin.write("go\n")
            pages.stdin.flush()
        found[has_pages] += times_ms(connection, body)
        if has_pages:
            assert pages.stdout.readline() == f"{COUNT}\n"
    pages.communicate("")
    without, beside = p99(found[False]), p99(found[True])
    counts = [len(times) for times in found.values()]
    print(f"p99 {without:.2f} ms without, {beside:.2f} ms beside {COUNT} pages; {counts} requests")
    assert beside <= SHARE_MAX * without
