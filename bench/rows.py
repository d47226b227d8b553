"""The rows of bench/broker.py: the load of each, its measurements, and the bar that it must reach.

A row measures one side and returns its numbers. For rows of "os" and "fsync" both brokers already
run, warm and with the topics of TOPICS; rows of "own" start and stop brokers themselves. A bar
applies to the ratio of the medians (ours / Kafka's), or to our own number if it says `own`.
"""

import contextlib
import os
import re
import resource
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sides import (
    Ours,
    Side,
    SideError,
    cpu_s,
    create_topic,
    drop_from_cache,
    end_offset,
    recycle_memory,
    resident_mb,
    text,
    wait_for_metadata,
    wait_until_usable,
)

if TYPE_CHECKING:
    from broker import Bench

HERE = Path(__file__).resolve().parent
RECORDS, RECORD_BYTES = 595, 100  # with their framing just below 64 KiB
BULK: dict[str, object] = {"records": RECORDS, "in-flight": 5}
MANY: dict[str, object] = {"connections": 50, "partitions": 10}
RATE: dict[str, object] = {"connections": 10, "partitions": 10, "rate": 5000}
ALL: dict[str, object] = {"acks": -1}
THROUGH_RATE = 1000
METADATA_TOPICS = 10
IDLE_S = 3
STARTS = 3
STARTED_WITH = 100  # partitions
CONNECTIONS_PER_PROCESS = 5000

Figures = dict[str, float]
Measure = Callable[["Bench", Side], Figures]

# durability -> topic -> partitions
TOPICS: dict[str, dict[str, int]] = {
    "os": {"small": 1, "many": 10, "bulk": 1, "read": 1, "packed": 1, "through": 1, "cold": 1}
    | {f"asked-{i}": 1 for i in range(METADATA_TOPICS)},
    "fsync": {"safe": 1, "safe100": 100, "through": 1},
}


@dataclass(frozen=True)
class Bar:
    """A target for `figure`: at most `most`, or at least `least`, times Kafka's value. `own`: the
    target is for the value of barnabas alone."""

    figure: str
    most: float | None = None
    least: float | None = None
    own: bool = False

    def text(self) -> str:
        sign, value = ("<=", self.most) if self.most is not None else (">=", self.least)
        return f"{sign} {value:.3g}" + (" absolute" if self.own else "")

    def met(self, ours: list[float], theirs: list[float]) -> bool | None:
        """Returns whether the target is met, or None when there is nothing to compare."""
        if not ours or not (theirs or self.own):
            return None
        found = statistics.median(ours)
        if not self.own:
            below = statistics.median(theirs)
            if not below:
                return None
            found /= below
        return found <= self.most if self.most is not None else found >= (self.least or 0)


@dataclass(frozen=True)
class Row:
    key: str  # the name for --rows
    name: str
    group: str  # os, fsync or own
    measure: Measure
    figures: tuple[str, ...]
    bars: tuple[Bar, ...] = ()
    ours_only: bool = False
    rounds: int | None = None  # fewer than the other rows


@dataclass
class Size:
    """The size of a run. `quick` shows that everything works; its results are of a cold JVM."""

    seconds: float
    bulk_bytes: int
    warm_bytes: int
    warm_requests: int
    repeats: int
    cold_bytes: int
    dirty_bytes: int
    unflushed_bytes: int
    partitions: int
    connections: int
    tool_records: int
    extra: dict[str, int] = field(default_factory=dict)

    @property
    def bulk_requests(self) -> int:
        return max(self.bulk_bytes // 65536, 1)


GB = 1_000_000_000
FULL = Size(4, GB, 3 * GB, 500_000, 5, 4 * GB, GB, 2 * GB, 5000, 5000, 3_000_000)
QUICK = Size(1, GB // 10, 3 * GB // 10, 50_000, 1, GB // 5, GB // 10, GB // 5, 200, 500, 100_000)


# ---- loads ----
def load(topic: str, words: dict[str, object], mode: str = "produce") -> Measure:
    def measure(bench: "Bench", side: Side) -> Figures:
        answer = bench.counted(side, topic, mode, words)
        if topic == "bulk":
            drop_from_cache(side.data_dir, topic)
        return answer

    return measure


def timed(topic: str, **words: object) -> Measure:
    """Returns a load that runs for the seconds of the run's size."""

    def measure(bench: "Bench", side: Side) -> Figures:
        given = {key.replace("_", "-"): value for key, value in words.items()}
        return load(topic, {"seconds": bench.size.seconds, **given})(bench, side)

    return measure


def bulk(bench: "Bench", side: Side) -> Figures:
    return load("bulk", {**BULK, "requests": bench.size.bulk_requests})(bench, side)


def bulk_safe(bench: "Bench", side: Side) -> Figures:
    words = BULK | ALL | {"requests": max(bench.size.bulk_requests // 8, 1)}
    return load("safe", words)(bench, side)


def fetch(max_bytes: int, topic: str) -> Measure:
    def measure(bench: "Bench", side: Side) -> Figures:
        work = 2 * bench.size.bulk_bytes // max_bytes
        if max_bytes < 1 << 16:
            work = bench.size.warm_requests // 5
        words: dict[str, object] = {"max-bytes": max_bytes, "requests": work}
        return load(topic, words, "fetch")(bench, side)

    return measure


def packed(bench: "Bench", side: Side) -> Figures:
    """Produces 64 KiB of records in lz4; CPU is for a GB of records before compression."""
    from barnabas.cext.record.records import Record
    from barnabas.wire.batches import encode_batch
    from barnabas.wire.compression import LZ4

    path = bench.data / "packed.batch"
    if not path.exists():
        line = '{"id": %08d, "kind": "click", "user": "u%05d", "page": "/item/%06d", "ms": %05d}'
        values = [
            (line % (i * 7919, i * 31 % 99991, i * 6151 % 999983, i * 37 % 60000)).encode()
            for i in range(RECORDS)
        ]
        values = [value.ljust(RECORD_BYTES) for value in values]
        path.write_bytes(encode_batch([Record(v, timestamp=0) for v in values], codec=LZ4))
    words: dict[str, object] = {"batch": path, "in-flight": 5, "requests": bench.size.bulk_requests}
    answer = bench.counted(side, "packed", "produce", words)
    plain = answer["requests"] * RECORDS * RECORD_BYTES
    return answer | {
        "cpu_s_per_gb": answer["broker_cpu_s"] * GB / plain,
        "mb_per_s": plain / answer["seconds"] / 1e6,
    }


def asked(bench: "Bench", side: Side) -> Figures:
    """Asks Metadata 1 of ten topics: Python answers the first request, network threads the
    others."""
    names = [text(f"asked-{i}") for i in range(METADATA_TOPICS)]
    body = struct.pack(">i", len(names)) + b"".join(names)
    path = bench.data / "metadata.request"
    path.write_bytes(struct.pack(">hhih", 3, 1, 0, 5) + b"bench" + body)
    words = {"request": path, "seconds": bench.size.seconds}
    return bench.counted(side, "-", "ask", words)


def loopback(bench: "Bench", side: Side) -> Figures:
    """Measures a program without a broker that answers requests as long as those of one record."""
    path = bench.data / "echo.request"
    path.write_bytes(struct.pack(">hhih", 0, 7, 0, 5) + b"bench" + bytes(RECORD_BYTES + 100))
    return echoed(bench, [], {"request": path, "seconds": bench.size.seconds})


def echoed(
    bench: "Bench",
    arguments: list[str],
    words: dict[str, object],
    placed: Callable[[int], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> Figures:
    """Sends the generator's requests to echo.c and measures its CPU; `placed` chooses the cores."""
    with serving([str(bench.echo), *arguments]) as (port, pid), placed(pid):
        cpu = cpu_s(pid)
        found = bench.load(port, "-", "ask", words)
        used = cpu_s(pid) - cpu
    return found | {"cpu_us_per_request": used * 1e6 / found["requests"]}


@contextlib.contextmanager
def serving(command: list[str]) -> Iterator[tuple[int, int]]:
    """Runs a program that prints its port. Yields this port and the process id."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield int(server.stdout.readline()), server.pid
        finally:
            server.kill()


def through(acks: int) -> Measure:
    def measure(bench: "Bench", side: Side) -> Figures:
        words = {"rate": THROUGH_RATE, "seconds": bench.size.seconds, "acks": acks}
        words["start"] = end_offset(side.port, "through")
        return bench.counted(side, "through", "through", words)

    return measure


# ---- produce of other clients beside heavy reading and writing ----
def beside(what: Callable[["Bench", Side], "subprocess.Popen[bytes]"]) -> Measure:
    """Measures produce at a fixed rate, first alone and then beside a program that uses the
    disk."""

    def measure(bench: "Bench", side: Side) -> Figures:
        words: dict[str, object] = {"seconds": bench.size.seconds, **RATE}
        alone = bench.counted(side, "many", "produce", words)
        other = what(bench, side)
        try:
            found = bench.counted(side, "many", "produce", words)
        finally:
            other.terminate()
            other.wait()
        ratio = found["p99_us"] / alone["p99_us"]
        return found | {"idle_p99_us": alone["p99_us"], "p99_to_idle": ratio}

    return measure


def cold_reader(bench: "Bench", side: Side) -> "subprocess.Popen[bytes]":
    size, have = bench.size.cold_bytes, end_offset(side.port, "cold") * RECORD_BYTES
    if have < size * 9 // 10:
        count = (size - have) // (RECORDS * RECORD_BYTES)
        bench.load(side.port, "cold", "produce", {**BULK, "requests": count})
    os.sync()
    drop_from_cache(side.data_dir, "cold")
    words = {"max-bytes": 1 << 20, "requests": size >> 20}
    return bench.background(side.port, "cold", "fetch", words)


def dirty_pages(bench: "Bench", side: Side) -> "subprocess.Popen[bytes]":
    count = bench.size.dirty_bytes // 65536
    bench.load(side.port, "bulk", "produce", {**BULK, "requests": count})
    return subprocess.Popen(["sync"])


# ---- Kafka's own tools ----
def run_tool(bench: "Bench", side: Side, verb: str, words: list[str]) -> tuple[str, float]:
    """Runs a command of Kafka. Returns its output and the broker's CPU seconds during the run."""
    from rival import tool

    cpu = cpu_s(side.pid)
    command = [*tool(bench.version, verb, heap=("-Xmx512M",)), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise SideError(f"{verb}: {(done.stdout + done.stderr)[-800:]}")
    return done.stdout, cpu_s(side.pid) - cpu


def tool_produce(bench: "Bench", side: Side) -> Figures:
    count = bench.size.tool_records
    words = ["--topic", "bulk", "--num-records", str(count), "--record-size", str(RECORD_BYTES)]
    words += ["--throughput", "-1", "--producer-props", f"bootstrap.servers=127.0.0.1:{side.port}"]
    words += ["acks=1", "batch.size=65536", "linger.ms=5"]
    said, cpu = run_tool(bench, side, "producer-perf-test", words)
    found = re.search(rf"{count} records sent, ([\d.,]+) records/sec", said)
    if not found:
        raise SideError(f"producer-perf-test said {said[-500:]}")
    rate = float(found[1].replace(",", ""))
    return {"records_per_s": rate, "cpu_s_per_gb": cpu * GB / (count * RECORD_BYTES)}


def tool_consume(bench: "Bench", side: Side) -> Figures:
    count = min(bench.size.tool_records, end_offset(side.port, "read"))
    words = ["--topic", "read", "--bootstrap-server", f"127.0.0.1:{side.port}"]
    words += ["--messages", str(count), "--timeout", "60000"]
    said, cpu = run_tool(bench, side, "consumer-perf-test", words)
    last = [line for line in said.splitlines() if line.count(",") >= 8][-1:]
    if not last or "data.consumed" in last[0]:
        raise SideError(f"consumer-perf-test said {said[-500:]}")
    cells = last[0].split(",")
    if int(cells[4]) < count:
        raise SideError(f"consumer-perf-test read {cells[4]} of {count} records: {said[-300:]}")
    rate = float(cells[9])
    return {"records_per_s": rate, "cpu_s_per_gb": cpu * GB / (count * RECORD_BYTES)}


# ---- rows that start brokers themselves ----
def busy_python(bench: "Bench", side: Side) -> Figures:
    """Compares our broker with one Python thread that always computes, and without this thread."""
    assert isinstance(side, Ours)
    side.command = [sys.executable, str(HERE / "busy.py")]
    side.start()
    try:
        create_topic(side.port, "many", 10)
        words: dict[str, object] = {"seconds": bench.size.seconds, **RATE}
        bench.load(side.port, "many", "produce", words)
        idle = bench.counted(side, "many", "produce", words)
        os.kill(side.pid, signal.SIGUSR1)
        busy = bench.counted(side, "many", "produce", words)
    finally:
        side.stop()
        bench.forget(side)
    ratio = busy["p50_us"] / idle["p50_us"]
    return {"idle_p50_us": idle["p50_us"], "p50_us": busy["p50_us"], "p50_to_idle": ratio}


def one_start(side: Side, partitions: int) -> Figures:
    began = time.monotonic()
    side.spawn()
    wait_for_metadata(side.port, partitions)
    return {"start_s": time.monotonic() - began, "start_cpu_s": cpu_s(side.pid)}


def first_start(bench: "Bench", side: Side) -> Figures:
    """Starts in a directory that was used once and has no topic."""
    side.start()
    side.stop()
    found = one_start(side, 0)
    time.sleep(IDLE_S)
    found["idle_mb"] = resident_mb(side.pid)
    side.stop()
    return found


def start_with_partitions(bench: "Bench", side: Side) -> Figures:
    if not (side.data_dir / "data").exists():
        side.start()
        create_topic(side.port, "start", STARTED_WITH)
        words = {"requests": 10 * STARTED_WITH, "connections": 50, "partitions": STARTED_WITH}
        bench.load(side.port, "start", "produce", words)
        side.stop()
    found = one_start(side, STARTED_WITH)
    side.stop()
    return found


def many_partitions(bench: "Bench", side: Side) -> Figures:
    count = bench.size.partitions
    side.start()
    before = resident_mb(side.pid)
    began, cpu = time.monotonic(), cpu_s(side.pid)
    create_topic(side.port, "wide", count, timeout_ms=280_000)
    found = {"create_s": time.monotonic() - began, "create_cpu_s": cpu_s(side.pid) - cpu}
    time.sleep(IDLE_S)
    found["idle_mb"], found["grown_mb"] = resident_mb(side.pid), resident_mb(side.pid) - before
    side.stop()
    found |= one_start(side, count)
    wait_until_usable(side.port, "wide", count)
    side.stop()
    bench.forget(side)
    return found


def after_kill(bench: "Bench", side: Side) -> Figures:
    """Kills the broker with so many unflushed bytes; measures from spawn until all can be read."""
    side.start()
    create_topic(side.port, "lost", 1)
    count = bench.size.unflushed_bytes // 65536
    recycle_memory(bench.size.unflushed_bytes)
    bench.load(side.port, "lost", "produce", {**BULK, "requests": count})
    side.kill()
    began = time.monotonic()
    side.spawn()
    wait_for_metadata(side.port, 1)
    wait_until_usable(side.port, "lost", 1)
    seconds, cpu = time.monotonic() - began, cpu_s(side.pid)
    kept = end_offset(side.port, "lost")
    side.stop()
    bench.forget(side)
    if kept != count * RECORDS:
        raise SideError(f"{kept} of {count * RECORDS} records are there after the kill")
    return {"start_s": seconds, "cpu_s_per_gb": cpu * GB / (count * 65536)}


def idle_connections(bench: "Bench", side: Side) -> Figures:
    """Measures the memory that so many idle connections add, each after one request."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
    count = min(bench.size.connections, CONNECTIONS_PER_PROCESS, limit[1] - 200)
    ask = struct.pack(">hhih", 18, 0, 1, 5) + b"bench"
    ask = struct.pack(">i", len(ask)) + ask
    side.start()
    held: list[socket.socket] = []
    try:
        wait_for_metadata(side.port, 0)
        before = resident_mb(side.pid)
        for _ in range(count):
            held.append(socket.create_connection(("127.0.0.1", side.port), timeout=30))
            held[-1].sendall(ask)
            if not held[-1].recv(65536):
                raise SideError(f"connection {len(held)} was closed")
        time.sleep(IDLE_S)
        grown = (resident_mb(side.pid) - before) * 1e6
    finally:
        for one in held:
            one.close()
        side.stop()
    return {"kb_per_connection": grown / 1024 / count, "connections": count}


# ---- the table ----
REQUESTS = ("requests_per_s", "cpu_us_per_request", "p50_us", "p99_us")
BYTES = ("mb_per_s", "cpu_s_per_gb")
PERCENTILES = ("p50_us", "p99_us", "p999_us", "cpu_us_per_request")
BESIDE = ("p99_us", "idle_p99_us", "p99_to_idle")
STARTED = ("start_s", "start_cpu_s")


def all_rows() -> list[Row]:
    return [*_loads(), *_durable(), *_own()]


def _loads() -> list[Row]:
    fast = (Bar("requests_per_s", least=8),)
    lean = (Bar("cpu_us_per_request", most=1 / 5),)
    return [
        Row("loopback", "no broker: a bare echo of such requests, 1 connection", "os", loopback,
            REQUESTS, ours_only=True),
        Row("one", "1 record, 1 connection", "os", timed("small"), REQUESTS, fast),
        Row("five", "1 record, 1 connection, 5 in flight", "os", timed("small", in_flight=5),
            REQUESTS),
        Row("fifty", "1 record, 50 connections", "os", timed("many", **MANY), REQUESTS, lean),
        Row("rate", "1 record, 5,000/s on 10 connections", "os", timed("many", **RATE), PERCENTILES,
            (Bar("p50_us", most=0.6), Bar("p99_us", most=0.4))),
        Row("bulk", "64 KiB batches, 1 connection, 5 in flight", "os", bulk, BYTES,
            (Bar("cpu_s_per_gb", most=1 / 4), Bar("mb_per_s", least=3))),
        Row("lz4", "64 KiB of records in lz4 batches", "os", packed, BYTES,
            (Bar("cpu_s_per_gb", most=1 / 2),)),
        Row("fetch", "fetch of 1 MiB, 1 connection", "os", fetch(1 << 20, "read"), BYTES,
            (Bar("cpu_s_per_gb", most=0.6),)),
        Row("fetch4k", "fetch of 4 KiB, 1 connection", "os", fetch(4096, "small"), REQUESTS, lean),
        Row("metadata", "Metadata of 10 topics, 1 connection", "os", asked,
            ("p50_us", "p99_us", "requests_per_s"), (Bar("p50_us", most=1 / 3),)),
        Row("through", "produce to consume, 1,000/s, acks=all", "os", through(-1),
            ("p50_us", "p99_us"), (Bar("p50_us", most=0.7), Bar("p99_us", most=0.7))),
        Row("cold", "5,000/s beside a reader of data that is not in memory", "os",
            beside(cold_reader), BESIDE, (Bar("p99_to_idle", most=2, own=True),)),
        Row("dirty", "5,000/s while dirty pages are written back", "os", beside(dirty_pages),
            BESIDE, (Bar("p99_to_idle", most=2, own=True),)),
        Row("perf-producer", "kafka-producer-perf-test, 100 bytes, batch.size=65536", "os",
            tool_produce, ("records_per_s", "cpu_s_per_gb")),
        Row("perf-consumer", "kafka-consumer-perf-test", "os", tool_consume,
            ("records_per_s", "cpu_s_per_gb")),
    ]  # fmt: skip


def _durable() -> list[Row]:
    return [
        Row("all", "1 record, acks=all, 1 connection", "fsync", timed("safe", **ALL), REQUESTS),
        Row("all50", "1 record, acks=all, 50 connections, 1 partition", "fsync",
            timed("safe", **ALL, connections=50), REQUESTS, (Bar("requests_per_s", least=5),)),
        Row("all50x100", "1 record, acks=all, 50 connections, 100 partitions", "fsync",
            timed("safe100", **ALL, connections=50, partitions=100), REQUESTS,
            (Bar("requests_per_s", least=3),)),
        Row("all-bulk", "64 KiB batches, acks=all, 1 connection, 5 in flight", "fsync", bulk_safe,
            BYTES),
        Row("through-fsync", "produce to consume, 1,000/s, acks=all, flushed", "fsync", through(-1),
            ("p50_us", "p99_us"), (Bar("p50_us", most=0.5), Bar("p99_us", most=0.5))),
    ]  # fmt: skip


def _own() -> list[Row]:
    third = 1 / 3
    return [
        Row("busy", "5,000/s with a Python thread busy inside the broker", "own", busy_python,
            ("idle_p50_us", "p50_us", "p50_to_idle"), (Bar("p50_to_idle", most=1.1, own=True),),
            ours_only=True),
        Row("start", "start, no topics", "own", first_start, (*STARTED, "idle_mb"),
            (Bar("idle_mb", most=1 / 8), Bar("idle_mb", most=50, own=True)), rounds=STARTS),
        Row("start100", f"start with {STARTED_WITH} partitions", "own", start_with_partitions,
            STARTED, (Bar("start_s", most=1 / 15), Bar("start_s", most=0.2, own=True)),
            rounds=STARTS),
        Row("wide", "5,000 partitions in one topic", "own", many_partitions,
            ("create_s", "create_cpu_s", "idle_mb", "grown_mb", "start_s", "start_cpu_s"),
            (Bar("create_s", most=third), Bar("idle_mb", most=third), Bar("start_s", most=third)),
            rounds=STARTS),
        Row("kill", "start after kill -9, 2 GB unflushed", "own", after_kill,
            ("start_s", "cpu_s_per_gb"),
            (Bar("start_s", most=third), Bar("cpu_s_per_gb", most=third)), rounds=STARTS),
        Row("connections", "idle connections", "own", idle_connections, ("kb_per_connection",),
            (Bar("kb_per_connection", most=2, own=True),), rounds=STARTS),
    ]  # fmt: skip


MEMORY = Row(
    "memory", "resident memory after the loads", "os",
    lambda bench, side: {"loaded_mb": resident_mb(side.pid)}, ("loaded_mb",),
    (Bar("loaded_mb", most=1 / 8), Bar("loaded_mb", most=50, own=True)), rounds=1,
)  # fmt: skip
