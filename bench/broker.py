#!/usr/bin/env python3
"""barnabas against Apache Kafka: the same load on both, in turns, in one run.

    python bench/broker.py [--quick] [--repeats N] [--kafka VERSION] [--out DIR] [--data DIR]

Both brokers run side by side in their own processes and with the same durability. They are warmed
alike, then each row is measured `repeats` times, the two taking turns and changing who goes first,
after memory was recycled. The table has medians with (smallest-largest) and the ratio of medians.
CPU is user and system time of the broker's process. README.md says how to repeat one row.
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sides import (
    Ours,
    Side,
    SideError,
    Theirs,
    cpu_s,
    create_topic,
    drop_from_cache,
    machine_busy_s,
    recycle_memory,
    resident_mb,
    wait_for_metadata,
)

HERE = Path(__file__).resolve().parent
RECORDS = 595  # of 100 bytes: with their framing just below 64 KiB
BULK = {"records": RECORDS, "in-flight": 5}
MANY = {"connections": 50, "partitions": 10}
IDLE_S = 3
STARTS = 3
PARTITIONS_AT_START = 100


@dataclass
class Row:
    """One load: what it is called, its topic, and the words for loadgen."""

    name: str
    topic: str
    durability: str
    load: dict[str, object]
    figures: tuple[str, ...]
    mode: str = "produce"


@dataclass
class Size:
    """How much is done. `quick` shows that everything works; its figures are of a cold JVM."""

    seconds: float
    bulk_bytes: int
    warm_bytes: int
    warm_requests: int
    repeats: int

    @property
    def bulk_requests(self) -> int:
        return max(self.bulk_bytes // 65536, 1)


FULL = Size(4, 1_000_000_000, 3_000_000_000, 500_000, 5)
QUICK = Size(1, 100_000_000, 300_000_000, 50_000, 1)

REQUESTS = ("requests_per_s", "cpu_us_per_request", "p50_us", "p99_us")
BYTES = ("mb_per_s", "cpu_s_per_gb")
RATE = ("p50_us", "p99_us", "p999_us", "cpu_us_per_request")


def rows(size: Size) -> list[Row]:
    timed: dict[str, object] = {"seconds": size.seconds}
    bulk: dict[str, object] = {**BULK, "requests": size.bulk_requests}
    read: dict[str, object] = {"max-bytes": 1 << 20, "requests": 2 * size.bulk_bytes >> 20}
    rate: dict[str, object] = {"connections": 10, "partitions": 10, "rate": 5000}
    acks: dict[str, object] = {"acks": -1}
    return [
        Row("1 record, 1 connection", "small", "os", timed, REQUESTS),
        Row(
            "1 record, 1 connection, 5 in flight", "small", "os", timed | {"in-flight": 5}, REQUESTS
        ),
        Row("1 record, 50 connections", "many", "os", timed | MANY, REQUESTS),
        Row("1 record, 5,000/s on 10 connections", "many", "os", timed | rate, RATE),
        Row("64 KiB batches, 1 connection, 5 in flight", "bulk", "os", bulk, BYTES),
        Row("fetch of 1 MiB, 1 connection", "read", "os", read, BYTES, mode="fetch"),
        Row("1 record, acks=all, 1 connection", "safe", "fsync", timed | acks, REQUESTS),
        Row("1 record, acks=all, 50 connections", "safe", "fsync", timed | acks | MANY, REQUESTS),
        Row(
            "64 KiB batches, acks=all, 1 connection, 5 in flight",
            "safe",
            "fsync",
            bulk | acks | {"requests": size.bulk_requests // 8},
            BYTES,
        ),
    ]


class Bench:
    """The brokers by durability, and the figures so far."""

    def __init__(self, size: Size, data: Path, version: str, save: Callable[[], None]) -> None:
        self.size, self.data, self.version = size, data, version
        self.generator = data / "loadgen"
        self.save = save
        self.found: dict[str, dict[str, dict[str, list[float]]]] = {}
        self.runs: list[dict[str, object]] = []

    def build(self) -> None:
        compiler = os.environ.get("CC", "cc")
        source = str(HERE / "loadgen.c")
        subprocess.run([compiler, "-O2", "-o", str(self.generator), source], check=True)

    def load(self, port: int, topic: str, mode: str, words: dict[str, object]) -> dict[str, float]:
        """One run of the generator. Raises SideError when an answer was an error."""
        flags = [word for key, value in words.items() for word in (f"--{key}", str(value))]
        command = [str(self.generator), mode, "--port", str(port), "--topic", topic, *flags]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SideError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
        return dict(json.loads(done.stdout))

    def note(self, row: str, side: str, figures: dict[str, float]) -> None:
        for figure, value in figures.items():
            of_row = self.found.setdefault(row, {})
            of_row.setdefault(figure, {}).setdefault(side, []).append(value)

    # ---- warm-up and rows ----
    def prepare(self, side: Side, durability: str) -> None:
        """Topics and warm-up. Kafka's JIT is not done before some GB and 500,000 requests."""
        flush = {"flush.messages": "1"} if isinstance(side, Theirs) else {}
        if durability == "fsync":
            create_topic(side.port, "safe", 10, flush)
            self.load(side.port, "safe", "produce", {"acks": -1, "requests": 5000, **MANY})
            return
        for topic, partitions in {"small": 1, "many": 10, "bulk": 1, "read": 1}.items():
            create_topic(side.port, topic, partitions)
        requests = self.size.warm_requests
        self.load(side.port, "small", "produce", {"requests": requests // 5})
        self.load(side.port, "many", "produce", {"requests": requests - requests // 5, **MANY})
        self.load(side.port, "read", "produce", {**BULK, "requests": self.size.bulk_requests})
        for _ in range(3):
            count = self.size.warm_bytes // 3 >> 16
            self.load(side.port, "bulk", "produce", {**BULK, "requests": count})
            drop_from_cache(side.data_dir, "bulk")
            self.load(side.port, "read", "fetch", {"max-bytes": 1 << 20, "requests": count >> 4})

    def measure(self, row: Row, side: Side) -> None:
        """One run of one row on one side."""
        recycle_memory(self.size.bulk_bytes + (256 << 20))
        load_average = os.getloadavg()[0]
        busy, cpu = machine_busy_s(), cpu_s(side.pid)
        answer = self.load(side.port, row.topic, row.mode, row.load)
        cpu = cpu_s(side.pid) - cpu
        answer["broker_cpu_s"] = cpu
        answer["cpu_us_per_request"] = cpu * 1e6 / answer["requests"]
        answer["cpu_s_per_gb"] = cpu * 1e9 / answer["bytes"]
        other = machine_busy_s() - busy - cpu - answer["generator_cpu_s"]
        answer["other_cores"] = max(other, 0) / answer["seconds"]
        answer["load_average"] = load_average
        side.check_alive()
        if row.topic == "bulk":
            drop_from_cache(side.data_dir, row.topic)
        self.note(row.name, side.name, {name: answer[name] for name in row.figures})
        self.runs.append({"row": row.name, "broker": side.name, **answer})

    def compare(self, durability: str, ours: Side, theirs: Side) -> None:
        """The rows of one durability, the two sides in turns."""
        for turn in range(self.size.repeats):
            order = (ours, theirs) if turn % 2 == 0 else (theirs, ours)
            for row in rows(self.size):
                if row.durability == durability:
                    for side in order:
                        self.measure(row, side)
            print(f"{clock()} {durability}: round {turn + 1} of {self.size.repeats}", flush=True)
            self.save()

    # ---- start and memory ----
    def sides(self, name: str, durability: str) -> tuple[Ours, Theirs]:
        ours = Ours(self.data / f"{name}-barnabas", durability)
        return ours, Theirs(self.version, self.data / f"{name}-kafka")

    def start_up(self) -> None:
        """From spawn to the first Metadata answer that names every partition and its leader."""
        pair = self.sides("start", "os")
        for side in pair:
            side.start()
            side.stop()
        for partitions in (0, PARTITIONS_AT_START):
            if partitions:
                for side in pair:
                    side.start()
                    create_topic(side.port, "start", partitions)
                    self.load(
                        side.port,
                        "start",
                        "produce",
                        {
                            "requests": 10 * partitions,
                            "connections": partitions,
                            "partitions": partitions,
                        },
                    )
                    side.stop()
            for _ in range(min(self.size.repeats, STARTS)):
                for side in pair:
                    self.one_start(side, partitions)
        print(f"{clock()} start-up measured", flush=True)
        self.save()

    def one_start(self, side: Side, partitions: int) -> None:
        load_average = os.getloadavg()[0]
        began = time.monotonic()
        side.spawn()
        wait_for_metadata(side.port, partitions)
        figures = {"start_s": time.monotonic() - began, "start_cpu_s": cpu_s(side.pid)}
        row = f"start with {partitions} partitions"
        self.note(row, side.name, figures)
        self.runs.append({"row": row, "broker": side.name, **figures, "load_average": load_average})
        if not partitions:
            time.sleep(IDLE_S)
            self.note("resident memory", side.name, {"idle_mb": resident_mb(side.pid)})
        side.stop()

    def run(self) -> None:
        self.build()
        for durability in ("os", "fsync"):
            ours, theirs = self.sides(durability, durability)
            try:
                for side in (ours, theirs):
                    side.start()
                    self.prepare(side, durability)
                    if durability == "fsync" and isinstance(side, Theirs):
                        self.warm_elsewhere(side)
                os.sync()
                print(f"{clock()} {durability}: both are warm", flush=True)
                self.compare(durability, ours, theirs)
                if durability == "os":
                    for side in (ours, theirs):
                        self.note(
                            "resident memory", side.name, {"loaded_mb": resident_mb(side.pid)}
                        )
            finally:
                ours.stop()
                theirs.stop()

        self.start_up()

    def warm_elsewhere(self, side: Side) -> None:
        """The request path of a flushing Kafka, warmed on a topic that does not flush."""
        create_topic(side.port, "warm", 10)
        self.load(side.port, "warm", "produce", {"requests": self.size.warm_requests, **MANY})


# ---- what is written ----
UNITS: dict[str, tuple[str, Callable[[float], str]]] = {
    "requests_per_s": ("requests/s", lambda value: f"{value:,.0f}"),
    "cpu_us_per_request": ("CPU us a request", lambda value: f"{value:.1f}"),
    "p50_us": ("p50 us", lambda value: f"{value:,.0f}"),
    "p99_us": ("p99 us", lambda value: f"{value:,.0f}"),
    "p999_us": ("p99.9 us", lambda value: f"{value:,.0f}"),
    "mb_per_s": ("MB/s", lambda value: f"{value:,.0f}"),
    "cpu_s_per_gb": ("CPU s/GB", lambda value: f"{value:.2f}"),
    "start_s": ("spawn to Metadata, s", lambda value: f"{value:.3f}"),
    "start_cpu_s": ("CPU s of it", lambda value: f"{value:.2f}"),
    "idle_mb": ("after start, MB", lambda value: f"{value:.0f}"),
    "loaded_mb": ("after the load, MB", lambda value: f"{value:.0f}"),
}


def clock() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%H:%M:%S")


def cell(values: list[float], show: Callable[[float], str]) -> str:
    middle = show(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({show(min(values))}-{show(max(values))})"


def ratio(ours: list[float], theirs: list[float]) -> str:
    below = statistics.median(theirs)
    return f"{statistics.median(ours) / below:.2g}" if below else "-"


def table(found: dict[str, dict[str, dict[str, list[float]]]], size: Size) -> str:
    durability = {row.name: row.durability for row in rows(size)}
    lines = [
        "| load | durability | figure | barnabas | Kafka | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for row, figures in found.items():
        for figure, by_side in figures.items():
            name, show = UNITS[figure]
            ours, theirs = by_side.get("barnabas"), by_side.get("kafka")
            if not ours or not theirs:
                continue  # the run was stopped between the two
            cells = [row, durability.get(row, "os"), name, cell(ours, show), cell(theirs, show)]
            lines.append(f"| {' | '.join(cells)} | {ratio(ours, theirs)} |")
    return "\n".join(lines)


def about(arguments: argparse.Namespace, size: Size) -> dict[str, object]:
    from barnabas import __version__

    info = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(": ")[2] for line in info if line.startswith("model name")), "?")
    memory_kb = int(Path("/proc/meminfo").read_text().split()[1])
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=HERE, capture_output=True, text=True, check=False,
    ).stdout.strip()  # fmt: skip
    return {
        "command": " ".join(["python", "bench/broker.py", *sys.argv[1:]]),
        "quick": arguments.quick,
        "barnabas": f"{__version__} ({commit or 'no git'})",
        "kafka": arguments.kafka,
        "python": platform.python_version(),
        "java": said.splitlines()[0] if said else "?",
        "kernel": platform.release(),
        "machine": f"{os.cpu_count()} cores ({model}), {memory_kb / 1e6:.0f} GB",
        "repeats": size.repeats,
        "warm_up": f"{size.warm_bytes / 1e9:g} GB and {size.warm_requests:,} requests",
    }


def written(bench: Bench, header: dict[str, object]) -> str:
    lines = [f"- {key}: {value}" for key, value in header.items()]
    if header["quick"]:
        lines.insert(
            0, "**Quick run: Kafka's JIT is cold, one round; no basis for a comparison.**\n"
        )
    return "\n".join([*lines, "", table(bench.found, bench.size), ""])


def write(bench: Bench, header: dict[str, object], folder: Path | None) -> None:
    """What there is so far: a run that is stopped has left its rounds."""
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "broker.md").write_text(written(bench, header))
        result = {"about": header, "figures": bench.found, "runs": bench.runs}
        (folder / "broker.json").write_text(json.dumps(result, indent=1) + "\n")


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a short run; Kafka stays cold")
    parser.add_argument("--repeats", type=int, help="rounds (5, quick: 1)")
    parser.add_argument("--kafka", default="4.3.1", metavar="VERSION")
    parser.add_argument("--out", type=Path, help="a folder for broker.md and broker.json")
    parser.add_argument("--data", type=Path, help="where the brokers keep their data")
    arguments = parser.parse_args(words)
    size = QUICK if arguments.quick else FULL
    if arguments.repeats:
        size.repeats = arguments.repeats
    header = about(arguments, size) | {"load_average_at_start": os.getloadavg()}
    data = Path(tempfile.mkdtemp(prefix="barnabas-bench-", dir=arguments.data))

    def save() -> None:
        header["load_average_at_end"] = os.getloadavg()
        write(bench, header, arguments.out)

    bench = Bench(size, data, arguments.kafka, save)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the brokers are stopped then, too
    try:
        bench.run()
    finally:
        shutil.rmtree(data, ignore_errors=True)
    print(written(bench, header))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
