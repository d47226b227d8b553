#!/usr/bin/env python3
"""Reads topics into Spark: compares the format `barnabas` with spark-sql-kafka, in one session.

    python bench/spark.py [--records N] [--repeats N] [--warm N] [--rows 100-noop,...] [--out DIR]

barnabas and Apache Kafka have the same records, in four partitions of each topic, without
compression and keys. One Spark session (local[2], 2 GB) reads them with each reader in turn, in an
order that changes, and writes them to nothing (`noop`) or to Parquet: first `warm` times without
measurement, then `repeats` times. CPU is the user and system time of the JVM and of all its Python
workers, per record; a column has that of the broker. The table has medians. The ratio compares CPU
with that of unmodified spark-sql-kafka 4.2.0 on barnabas; in the row `kafka` it compares the wall
time with that of the same reader on Apache Kafka. The last column compares CPU with that reader.

Needs barnabas[spark], bench/spark_sql_kafka/fetch and bench/kafka/fetch 4.3.1.
"""

import argparse
import json
import os
import platform
import random
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sides import Ours, Side, Theirs

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "barnabas"
CONNECTOR = Path(os.environ.get("BARNABAS_SPARK_HOME") or CACHE / "spark") / "4.2.0" / "libs"
PARTITIONS = 4
DISTINCT = 19_997  # values: too many for parquet's dictionaries
KAFKA = "4.3.1"
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
READERS = ("files", "wire", "kafka", "kafka on Apache Kafka")


@dataclass(frozen=True)
class Row:
    """One kind of job. `bars`: the most that each reader may take, relative to the baseline's CPU;
    for `kafka`, relative to its own wall time on Apache Kafka."""

    size: int  # bytes of a value
    sink: str
    bars: dict[str, float]

    @property
    def name(self) -> str:
        return f"{self.size}-{self.sink}"


ROWS = (
    Row(100, "noop", {"files": 0.6, "kafka": 1.0}),
    Row(100, "parquet", {"files": 0.65, "wire": 1.0, "kafka": 1.0}),
    Row(1024, "parquet", {"files": 0.85, "wire": 1.1, "kafka": 1.0}),
)


def fill(port: int, topic: str, count: int, size: int) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    servers = f"127.0.0.1:{port}"
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        future.result(30)
    producer = Producer(
        {"bootstrap.servers": servers, "linger.ms": 20, "queue.buffering.max.messages": 2_000_000}
    )
    # Random capital letters, as in Kafka's own performance tool.
    chance = random.Random(size)
    values = [bytes(chance.choices(range(65, 91), k=size)) for _ in range(DISTINCT)]
    for i in range(count):
        value = values[i % DISTINCT]
        while True:
            try:
                producer.produce(topic, value, partition=i % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(300) == 0


# ---- CPU of a tree ----
def cpu_s(pid: int) -> float:
    """Returns user and system time of a process, its descendants, and those of them that have
    ended."""
    below: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            text = Path(f"/proc/{name}/stat").read_text()
        except OSError:
            continue
        fields = text.rsplit(")", 1)[1].split()
        below.setdefault(int(fields[1]), []).append(int(name))
        ticks[int(name)] = sum(int(field) for field in fields[11:15])
    total, left = 0, [pid]
    while left:
        one = left.pop()
        total += ticks.get(one, 0)
        left += below.get(one, [])
    return total * TICK_S


# ---- one measurement ----
class Session:
    def __init__(self, scratch: Path) -> None:
        os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        from pyspark.sql import SparkSession

        from barnabas.spark import register

        self.spark: Any = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.memory", "2g")
            .config("spark.jars", ",".join(map(str, sorted(CONNECTOR.glob("*.jar")))))
            .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
            .getOrCreate()
        )
        self.spark.sparkContext.setLogLevel("ERROR")
        register(self.spark)
        self.scratch = scratch
        handle = self.spark.sparkContext._jvm.java.lang.ProcessHandle
        self.pid = int(handle.current().pid())

    def run(
        self, reader: str, row: Row, count: int, port: int, broker_pid: int, **options: str
    ) -> dict[str, float]:
        kind = "kafka" if reader.startswith("kafka") else "barnabas"
        source = self.spark.read.format(kind).option("subscribe", f"t{row.size}")
        source = source.option("kafka.bootstrap.servers", f"127.0.0.1:{port}")
        if kind == "barnabas":
            source = source.option("source", reader).options(**options)
        target = self.scratch / "out"
        shutil.rmtree(target, ignore_errors=True)
        before, broker_before, began = cpu_s(self.pid), cpu_s(broker_pid), time.monotonic()
        writer = source.load().write.mode("overwrite")
        if row.sink == "noop":
            writer.format("noop").save()
        else:
            writer.parquet(str(target))
        wall = time.monotonic() - began
        used, broker = cpu_s(self.pid) - before, cpu_s(broker_pid) - broker_before
        if row.sink != "noop":
            landed = self.spark.read.parquet(str(target)).count()
            assert landed == count, f"{landed} of {count} records came"
        return {
            "cpu_us": used / count * 1e6,
            "wall_s": wall,
            "broker_cpu_us": broker / count * 1e6,
        }


def measure(
    session: Session, row: Row, count: int, sides: dict[str, Side], warm: int, repeats: int
) -> dict[str, list[dict[str, float]]]:
    found: dict[str, list[dict[str, float]]] = {reader: [] for reader in READERS}
    for turn in range(warm + repeats):
        at = turn % len(READERS)
        for reader in READERS[at:] + READERS[:at]:
            side = sides["kafka" if reader == READERS[3] else "barnabas"]
            figures = session.run(reader, row, count, side.port, side.pid)
            print(row.name, reader, turn, figures, flush=True)
            if turn >= warm:
                found[reader].append(figures)
    return found


# ---- what is written ----
def median(runs: list[dict[str, float]], name: str) -> float:
    return statistics.median(run[name] for run in runs)


def lines(found: dict[str, Any]) -> list[str]:
    made = [
        "| job | reader | CPU µs/record | wall s | broker's CPU µs/record | ratio | target |"
        " | CPU to Kafka's |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        runs = found.get(row.name)
        if runs is None:
            continue
        ours, apache = runs["kafka"], runs[READERS[3]]
        for reader in READERS:
            cpu, wall = median(runs[reader], "cpu_us"), median(runs[reader], "wall_s")
            what = "wall" if reader.startswith("kafka") else "CPU"
            ratio = (
                wall / median(apache, "wall_s") if what == "wall" else cpu / median(ours, "cpu_us")
            )
            far = cpu / median(apache, "cpu_us")
            bar = row.bars.get(reader)
            verdict = "" if bar is None else "met" if ratio <= bar else "missed"
            spread = [run["cpu_us"] for run in runs[reader]]
            made.append(
                f"| {row.size} B to {row.sink} | {reader} |"
                f" {cpu:.2f} ({min(spread):.2f}-{max(spread):.2f}) | {wall:.1f} |"
                f" {median(runs[reader], 'broker_cpu_us'):.2f} | {what} {ratio:.2f}x |"
                f" {'' if bar is None else f'{bar:.2f}x'} | {verdict} | {far:.2f}x |"
            )
    return made


def write(out: Path, found: dict[str, Any], about: dict[str, Any]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / "spark.json").write_text(json.dumps({"about": about, "runs": found}, indent=1) + "\n")
    note = out / "spark_notes.md"
    words = [
        "# Reading topics into Spark",
        "",
        *(f"{line}" for line in (__doc__ or "").split("\n\n")[2].splitlines()),
        "",
        f"{about['machine']}; {about['records']:,} records of 100 bytes and"
        f" {about['records'] // 5:,} of 1 KiB; {about['repeats']} runs after {about['warm']} to"
        f" warm up; {about['when']}. `files` reads the broker's segments, `wire` fetches, `kafka`"
        " is spark-sql-kafka 4.2.0.",
        "",
        *lines(found),
    ]
    if note.exists():
        words += ["", note.read_text().strip()]
    (out / "spark.md").write_text("\n".join(words) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--records", type=int, default=5_000_000, help="of 100 bytes; a fifth of 1 KiB"
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--warm", type=int, default=5)  # C2 is busy in the 4th
    parser.add_argument("--rows", default=",".join(row.name for row in ROWS))
    parser.add_argument("--out", type=Path, default=HERE.parent / "docs" / "performance")
    given = parser.parse_args()
    counts = {100: given.records, 1024: given.records // 5}
    names = given.rows.split(",")
    if unknown := set(names) - {row.name for row in ROWS}:
        parser.error(f"no rows {', '.join(sorted(unknown))}: {', '.join(r.name for r in ROWS)}")
    wanted = [row for row in ROWS if row.name in names]
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as scratch_name:
        scratch = Path(scratch_name)
        ours, theirs = Ours(scratch / "ours", "os"), Theirs(KAFKA, scratch / "theirs")
        sides: dict[str, Side] = {"barnabas": ours, "kafka": theirs}
        try:
            for side in sides.values():
                side.start()
                for size in {row.size for row in wanted}:
                    fill(side.port, f"t{size}", counts[size], size)
            session = Session(scratch)
            found = {
                row.name: measure(session, row, counts[row.size], sides, given.warm, given.repeats)
                for row in wanted
            }
            session.spark.stop()
        finally:
            for side in sides.values():
                side.stop()
    python = platform.python_version()
    about = {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {python}",
        "records": given.records,
        "repeats": given.repeats,
        "warm": given.warm,
        "when": time.strftime("%Y-%m-%d", time.gmtime()),
    }
    write(given.out, found, about)
    print("\n".join(lines(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
