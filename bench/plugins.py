#!/usr/bin/env python3
"""Measures the cost of plugins: for a topic without interceptors on a broker with plugins, beside
the same on a broker without plugins; and for a topic whose batches a plugin opens.

    python bench/plugins.py [--rounds N] [--seconds S]

Two barnabas brokers run at the same time and take turns; the order changes each round. Rows: one
record a request, one connection; 595 records of 100 bytes a request, five in flight. The plugin
`bench-look` opens each batch and reads all of it; the script installs it for the run in a separate
directory, as pip would.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from sides import Ours, cpu_s, create_topic

HERE = Path(__file__).resolve().parent
PLUGIN = '''
from barnabas import hookimpl
from barnabas.hooks import Option, Reject


class Look:
    """Opens batches."""

    OPTIONS = {"as": Option("text", "how", choices=("nothing", "columns", "records"))}

    def __init__(self, options):
        self.how = options["as"]

    @hookimpl
    def intercept_produce(self, batch):
        if self.how == "columns":
            if b"\\xff\\xfe" in bytes(batch.columns.buffers()["values"]):
                return Reject("no")
        elif self.how == "records":
            if any(record.value == b"\\xff\\xfe" for record in batch.records):
                return Reject("no")
        return None
'''
WAYS = ("nothing", "columns", "records")
ROWS: dict[str, list[str]] = {
    "one record": [],
    "595 records": ["--records", "595", "--in-flight", "5"],
}


def install(site: Path) -> None:
    site.mkdir()
    (site / "bench_look.py").write_text(PLUGIN)
    info = site / "bench_look-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bench-look\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[barnabas.plugins]\nbench-look = bench_look:Look\n")


def load(generator: Path, side: Ours, topic: str, words: list[str], seconds: float) -> dict:
    command = [str(generator), "produce", "--port", str(side.port), "--topic", topic]
    before = cpu_s(side.pid)
    ran = subprocess.run(
        [*command, *words, "--seconds", str(seconds)], check=True, capture_output=True, text=True
    )
    found = json.loads(ran.stdout)
    assert not found["errors"], found
    spent = cpu_s(side.pid) - before
    return {
        "p50_us": found["p50_us"],
        "per_s": found["requests"] / seconds,
        "cpu_us": 1e6 * spent / found["requests"],
    }


def started(data: Path, name: str, settings: dict[str, str]) -> Ours:
    side = Ours(data / name, "os")
    side.settings = settings
    side.start()
    return side


def measure(data: Path, rounds: int, seconds: float) -> dict[tuple[str, str], list[dict]]:
    generator = data / "loadgen"
    source = str(HERE / "loadgen.c")
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-o", str(generator), source], check=True)
    install(data / "site")
    os.environ["PYTHONPATH"] = str(data / "site")
    with_plugins = {"plugins": ",".join(f"look-{how}" for how in WAYS)}
    for how in WAYS:
        with_plugins[f"plugin.look-{how}.use"] = "bench-look"
        with_plugins[f"plugin.look-{how}.as"] = how
    plain, full = started(data, "plain", {}), started(data, "plugins", with_plugins)
    found: dict[tuple[str, str], list[dict]] = {}
    try:
        create_topic(plain.port, "plain", 1)
        create_topic(full.port, "plain", 1)
        for how in WAYS:
            create_topic(full.port, how, 1, {"produce.interceptors": f"look-{how}"})
        runs = [("none installed", plain, "plain"), ("plain topic", full, "plain")]
        runs += [(f"opened as {how}", full, how) for how in WAYS]
        for number in range(rounds + 1):  # the first round warms up
            for row, words in ROWS.items():
                for name, side, topic in runs if number % 2 else reversed(runs):
                    figures = load(generator, side, topic, words, seconds if number else 0.5)
                    if number:
                        found.setdefault((row, name), []).append(figures)
    finally:
        plain.stop()
        full.stop()
    return found


def told(found: dict[tuple[str, str], list[dict]]) -> None:
    print("| row | topic | p50 us | ratio | requests/s | CPU us a request | ratio |")
    print("|---|---|---|---|---|---|---|")
    for (row, name), runs in found.items():
        middle = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        base = found[row, "none installed"]
        below = {key: statistics.median(run[key] for run in base) for key in base[0]}
        low = min(run["p50_us"] for run in runs)
        high = max(run["p50_us"] for run in runs)
        print(
            f"| {row} | {name} | {middle['p50_us']:.1f} ({low:.1f}-{high:.1f})"
            f" | {middle['p50_us'] / below['p50_us']:.3f} | {middle['per_s']:.0f}"
            f" | {middle['cpu_us']:.2f} | {middle['cpu_us'] / below['cpu_us']:.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as data:
        told(measure(Path(data), given.rounds, given.seconds))


if __name__ == "__main__":
    sys.exit(main())
