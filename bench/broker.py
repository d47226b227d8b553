#!/usr/bin/env python3
"""Compares barnabas with Apache Kafka: both get the same load in turns, in one run.

    python bench/broker.py [--quick] [--rows one,fetch,...] [--repeats N] [--kafka VERSION]
                           [--out DIR] [--data DIR] [--list] [--draw broker.json]

Both brokers run at the same time in their own processes, with the same durability and warm-up. Then
the script measures each row of rows.py `repeats` times on each broker in turn; the order
alternates, and memory is recycled before each run. The table has medians with (smallest-largest),
the ratio of medians, and the bar that the row must reach. CPU is user and system time of the
broker's process. README.md explains how to repeat one row.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import report
from rows import BULK, FULL, MANY, MEMORY, QUICK, TOPICS, Figures, Row, Size, all_rows
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
)

sys.path.insert(0, str(Path(__file__).resolve().parent / "kafka"))
from rival import RivalError

HERE = Path(__file__).resolve().parent
FAILURES = (SideError, RivalError, OSError, subprocess.SubprocessError)


class Bench:
    """Holds the brokers by durability, and the results so far."""

    def __init__(
        self, size: Size, data: Path, version: str, rows: list[Row], save: Callable[[], None]
    ) -> None:
        self.size, self.data, self.version, self.rows = size, data, version, rows
        self.generator, self.echo = data / "loadgen", data / "echo"
        self.joinload, self.joinecho = data / "joinload", data / "joinecho"
        self.forgotten = 0
        self.save = save
        self.found: report.Found = {}
        self.failed: dict[str, str] = {}
        self.runs: list[dict[str, object]] = []
        self.parts: list[dict[str, float]] = []  # output of the generator for this row

    def build(self) -> None:
        compiler = os.environ.get("CC", "cc")
        for made in (self.generator, self.echo, self.joinload, self.joinecho):
            source = str(HERE / f"{made.name}.c")
            subprocess.run([compiler, "-O2", "-o", str(made), source], check=True)

    # ---- the generator ----
    def words(self, port: int, topic: str, mode: str, given: dict[str, object]) -> list[str]:
        flags = [word for key, value in given.items() for word in (f"--{key}", str(value))]
        return [str(self.generator), mode, "--port", str(port), "--topic", topic, *flags]

    def load(self, port: int, topic: str, mode: str, given: dict[str, object]) -> Figures:
        """Runs the generator once. Raises SideError when an answer was an error."""
        command = self.words(port, topic, mode, given)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SideError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
        return dict(json.loads(done.stdout))

    def background(
        self, port: int, topic: str, mode: str, given: dict[str, object]
    ) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(self.words(port, topic, mode, given), stdout=subprocess.DEVNULL)

    def cpu_s(self, side: Side) -> float:
        """Returns the user and system seconds of the side so far."""
        return cpu_s(side.pid)

    def counted(self, side: Side, topic: str, mode: str, given: dict[str, object]) -> Figures:
        """Runs the generator once and adds the broker's CPU time to its output."""
        recycle_memory(self.size.bulk_bytes + (256 << 20))
        load_average = os.getloadavg()[0]
        busy, cpu = machine_busy_s(), self.cpu_s(side)
        answer = self.load(side.port, topic, mode, given)
        cpu = self.cpu_s(side) - cpu
        answer["broker_cpu_s"] = cpu
        answer["cpu_us_per_request"] = cpu * 1e6 / max(answer["requests"], 1)
        answer["cpu_s_per_gb"] = cpu * 1e9 / max(answer["bytes"], 1)
        other = machine_busy_s() - busy - cpu - answer["generator_cpu_s"]
        answer["other_cores"] = max(other, 0) / answer["seconds"]
        answer["load_average"] = load_average
        self.parts.append(answer)
        return answer

    # ---- warm-up and rows ----
    def prepare(self, side: Side, durability: str) -> None:
        """Creates topics and warms the broker. Kafka's JIT needs some GB and 500,000 requests."""
        flush = durability == "fsync" and isinstance(side, Theirs)
        for topic, partitions in TOPICS[durability].items():
            create_topic(side.port, topic, partitions, {"flush.messages": "1"} if flush else {})
        requests = self.size.warm_requests
        if durability == "fsync":
            if flush:  # warms the request path on a topic that does not flush
                create_topic(side.port, "warm", 10)
                self.load(side.port, "warm", "produce", {"requests": requests, **MANY})
            for topic, partitions in {"safe": 1, "safe100": 100}.items():
                given = {"acks": -1, "requests": 5000, "connections": 50, "partitions": partitions}
                self.load(side.port, topic, "produce", given)
            return
        self.load(side.port, "small", "produce", {"requests": requests // 5})
        self.load(side.port, "many", "produce", {"requests": requests - requests // 5, **MANY})
        self.load(side.port, "read", "produce", {**BULK, "requests": self.size.bulk_requests})
        for _ in range(3):
            count = max(self.size.warm_bytes // 3 >> 16, 1)
            self.load(side.port, "bulk", "produce", {**BULK, "requests": count})
            drop_from_cache(side.data_dir, "bulk")
            given = {"max-bytes": 1 << 20, "requests": max(count >> 4, 1)}
            self.load(side.port, "read", "fetch", given)

    def measure(self, row: Row, side: Side) -> None:
        """Runs one row once on one side. A failure is printed, and the run continues."""
        if f"{row.key}, {side.name}" in self.failed:
            return
        self.parts = []
        try:
            answer = row.measure(self, side)
            side.check_alive()
        except FAILURES as error:
            self.failed[f"{row.key}, {side.name}"] = str(error)[-600:]
            print(f"{report.clock()} {row.key}, {side.name}: {error}", file=sys.stderr, flush=True)
            if row.group == "own":
                side.stop()
            return
        for figure in row.figures:
            of_row = self.found.setdefault(row.key, {})
            of_row.setdefault(figure, {}).setdefault(side.name, []).append(answer[figure])
        self.runs.append(
            {"row": row.key, "broker": side.name, "answer": answer, "parts": self.parts}
        )

    def rounds(self, row: Row) -> int:
        return min(self.size.repeats, row.rounds or self.size.repeats)

    def compare(self, rows: list[Row], ours: Side, theirs: Side) -> None:
        """Runs the rows of one durability on both sides in turns."""
        for turn in range(self.size.repeats):
            order = (ours, theirs) if turn % 2 == 0 else (theirs, ours)
            for row in rows:
                for side in order:
                    if turn < self.rounds(row) and not (row.ours_only and side is theirs):
                        self.measure(row, side)
            print(f"{report.clock()} round {turn + 1} of {self.size.repeats}", flush=True)
            self.save()

    # ---- brokers ----
    def sides(self, name: str, durability: str) -> tuple[Ours, Side]:
        ours = Ours(self.data / f"{name}-barnabas", durability)
        return ours, Theirs(self.version, self.data / f"{name}-kafka")

    def forget(self, side: Side) -> None:
        """Sets aside the directory of a side that starts without data in the next round.

        The directory stays on the disk until the end: for half a minute after many files were
        deleted, ext4 looks at each free inode before it creates a file, and 15,000 files took ten
        times as long.
        """
        self.forgotten += 1
        side.data_dir.rename(self.data / f"forgotten-{self.forgotten}")
        side.data_dir.mkdir(parents=True)

    def run_pair(self, durability: str, rows: list[Row]) -> None:
        ours, theirs = self.sides(durability, durability)
        try:
            for side in (ours, theirs):
                side.start()
                self.prepare(side, durability)
            os.sync()
            print(f"{report.clock()} {durability}: both are warm", flush=True)
            self.compare([row for row in rows if row is not MEMORY], ours, theirs)
            if MEMORY in rows:
                for side in (ours, theirs):
                    self.measure(MEMORY, side)
        finally:
            ours.stop()
            theirs.stop()
            for side in (ours, theirs):
                shutil.rmtree(side.data_dir, ignore_errors=True)

    def run_own(self, row: Row) -> None:
        ours, theirs = self.sides(row.key, "os")
        try:
            self.compare([row], ours, theirs)
        finally:
            ours.stop()
            theirs.stop()
            for side in (ours, theirs):
                shutil.rmtree(side.data_dir, ignore_errors=True)

    def run(self) -> None:
        self.build()
        for durability in ("os", "fsync"):
            rows = [row for row in self.rows if row.group == durability]
            if rows:
                self.run_pair(durability, rows)
        for row in self.rows:
            if row.group == "own":
                self.run_own(row)
                print(f"{report.clock()} {row.key} measured", flush=True)
        self.save()


def chosen(words: str | None, rows: list[Row]) -> list[Row]:
    if words is None:
        return rows
    known = {row.key: row for row in rows}
    wrong = [word for word in words.split(",") if word not in known]
    if wrong:
        raise SystemExit(f"no row {', '.join(wrong)}; there are {', '.join(known)}")
    return [known[word] for word in words.split(",")]


def parsed(words: list[str], description: str, kafka: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="a short run; Kafka stays cold")
    parser.add_argument("--rows", help="only these, by their keys (see --list)")
    parser.add_argument("--list", action="store_true", help="the rows and their bars")
    parser.add_argument("--repeats", type=int, help="rounds (5, quick: 1)")
    parser.add_argument("--kafka", default=kafka, metavar="VERSION")
    parser.add_argument("--out", type=Path, help="a folder for the table, .json and .svg")
    parser.add_argument("--data", type=Path, help="where the brokers keep their data")
    parser.add_argument("--draw", type=Path, help="no run: table and plot of such a .json")
    return parser.parse_args(words)


def compared(
    words: list[str],
    description: str,
    program: str,
    rows: list[Row],
    sizes: tuple[Any, Any],
    kind: "type[Bench]",
    kafka: str = "4.3.1",
) -> int:
    """Runs a benchmark with its own rows: reads arguments, measures in turns, writes table and
    plot. `sizes`: the size of a full run and of a quick one; `kafka`: the release of Apache Kafka
    to compare with."""
    arguments = parsed(words, description, kafka)
    asked = chosen(arguments.rows, rows)
    if arguments.list:
        for row in asked:
            bars = ", ".join(f"{bar.figure} {bar.text()}" for bar in row.bars)
            print(f"{row.key:18} {row.group:6} {row.name}{': ' + bars if bars else ''}")
        return 0
    if arguments.draw:
        report.redraw(arguments.draw, arguments.out or arguments.draw.parent, rows, program)
        return 0
    size = sizes[arguments.quick]
    size.repeats = arguments.repeats or size.repeats
    header = report.about(words, arguments.kafka, size, program) | {"quick": arguments.quick}
    data = Path(tempfile.mkdtemp(prefix="barnabas-bench-", dir=arguments.data))

    def save() -> None:
        header["load_average_at_end"] = os.getloadavg()
        out, found = arguments.out, bench.found
        report.write(out, found, bench.failed, bench.runs, header, rows, program)

    bench = kind(size, data, arguments.kafka, asked, save)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stops the brokers too
    try:
        bench.run()
    finally:
        shutil.rmtree(data, ignore_errors=True)
    if arguments.out:
        report.plot(bench.found, header, arguments.out / f"{program}.svg", rows)
    print(report.written(bench.found, bench.failed, header, rows))
    return 0


def main(words: list[str]) -> int:
    rows = [*all_rows(), MEMORY]
    return compared(words, __doc__.partition("\n")[0], "broker", rows, (FULL, QUICK), Bench)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
