"""Looks for bytes that break one parser, guided by the coverage of the code that reads them.

    tests/sanitizers/run fuzz [--parser NAME,...] [--runs N|goal] [--seconds N]

`run` builds what this needs. Each parser (parsers/__init__.py; all of them unless told otherwise)
is fuzzed by a process of its own, one after another, until it has had `--runs` inputs or its share
of `--seconds` is over (120 without both). `goal` means GOAL_NATIVE or GOAL_PYTHON runs, less those
that RUNS has for the parser. The corpus of a parser is kept, and its seeds are among it.

An input that ends in a sanitizer's report, in an error that is not the parser's own, or that takes
more than SLOW_S of CPU is kept as a file, and ends the runs of its parser with a finding; so does
one that does not end within HANGS_S. An input that is slower than all before is read once more, and
the shorter of the two times counts, because caches were cold or another program had them. A line of
JSON for each parser is added to RUNS; fuzz_report.py makes a page of such lines.
"""

import argparse
import contextlib
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sanitizers.parsers import GOAL_NATIVE, GOAL_PYTHON, NAMES, is_native

SLOW_S, HANGS_S = 1, 120
RSS_MB_MAX = 2048  # of the process, with what the sanitizer keeps
INPUT_BYTES_MAX = 4096
SEED_BYTES_MAX = 16384
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None  # parsers of files do not wait for disks
RUNS = "runs.jsonl"
SECONDS = 120  # for all parsers together


class SlowCase(Exception):
    """An input takes more than SLOW_S of CPU."""


def timed(parse: Callable[[bytes], object], clock: Callable[[], float]) -> Callable[[bytes], None]:
    """Reports the time of each input that is slower than all before. Raises SlowCase.
    `clock`: the CPU time of this process, because others may run beside it."""
    slowest_s = 0.001

    def one_input(data: bytes) -> None:
        nonlocal slowest_s
        began_s = clock()
        parse(data)
        took_s = clock() - began_s
        if took_s > slowest_s:
            began_s = clock()
            parse(data)
            took_s = min(took_s, clock() - began_s)
            if took_s > slowest_s:
                slowest_s = took_s
                print(f"slowest: {took_s:.4f} s, {len(data)} bytes", file=sys.stderr, flush=True)
            if took_s > SLOW_S:
                raise SlowCase(f"{took_s:.1f} s of CPU")

    return one_input


def fuzz(name: str, folder: Path, options: list[str]) -> None:
    """Fuzzes in this process, which libFuzzer ends."""
    import atheris

    with (
        contextlib.nullcontext()
        if is_native(name)
        else atheris.instrument_imports(include=["barnabas"])
    ):
        from sanitizers.parsers import parser

        found = parser(name)
    corpus = folder / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    size_max = INPUT_BYTES_MAX
    for number, data in enumerate(found.seeds()):
        (corpus / f"seed-{number}").write_bytes(data)
        if len(data) <= SEED_BYTES_MAX and not is_native(name):
            size_max = max(size_max, len(data))
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(dir=MEMORY))
        parse = timed(found.make(Path(place), stack), time.process_time)
        arguments = [sys.argv[0], str(corpus), f"-max_len={size_max}", *options]
        atheris.Setup(arguments, parse)
        atheris.Fuzz()  # ends the process


def measured(name: str, folder: Path, runs: int, seconds: int, seed: int) -> dict[str, object]:
    """Fuzzes a parser in a process of its own, and returns what it counted."""
    findings = folder / "findings" / name
    findings.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable, __file__, "--one", name, str(folder), f"-runs={runs}", f"-seed={seed}",
        f"-max_total_time={seconds}", f"-artifact_prefix={findings}/", f"-timeout={HANGS_S}",
        f"-rss_limit_mb={RSS_MB_MAX}", "-print_final_stats=1", "-reload=0",
    ]  # fmt: skip
    began_s, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    output = folder / f"{name}.log"
    with open(output, "w", encoding="utf-8") as log:
        status = subprocess.run(command, stdout=log, stderr=log, check=False).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    text = output.read_text(encoding="utf-8", errors="replace")
    counted = dict(re.findall(r"^stat::(\w+):\s+(\d+)", text, re.MULTILINE))
    slowest = re.findall(r"^slowest: ([\d.]+) s", text, re.MULTILINE)
    coverage = re.findall(r"cov: (\d+)", text)
    return {
        "parser": name,
        "native": is_native(name),
        "runs": int(counted.get("number_of_executed_units", 0)),
        "seconds": round(time.monotonic() - began_s, 1),
        "cpu_s": round(cpu_s, 1),
        "slowest_s": float(slowest[-1]) if slowest else 0.001,
        "peak_rss_mb": int(counted.get("peak_rss_mb", 0)),
        "edges": int(coverage[-1]) if coverage else 0,
        "findings": int(status != 0),
        "seed": seed,
        "commit": os.environ.get("FUZZ_COMMIT", ""),
        "ended_s": int(time.time()),
    }


def runs_left(name: str, results: Path) -> int:
    """Returns how many runs a parser lacks, by a file of results."""
    left = GOAL_NATIVE if is_native(name) else GOAL_PYTHON
    with contextlib.suppress(FileNotFoundError):
        rows = map(json.loads, results.read_text().splitlines())
        left -= sum(row["runs"] for row in rows if row["parser"] == name)
    return left


def main() -> int:
    if sys.argv[1:2] == ["--one"]:
        name, folder = sys.argv[2], Path(sys.argv[3])
        fuzz(name, folder, sys.argv[4:])
        return 0
    options = argparse.ArgumentParser()
    options.add_argument("folder", type=Path)
    options.add_argument("--parser", default=",".join(NAMES))
    options.add_argument("--runs", default="0")
    options.add_argument("--seconds", type=int)
    given = options.parse_args()
    names, results = given.parser.split(","), given.folder / RUNS
    if unknown := [name for name in names if name not in NAMES]:
        options.error(f"no parser {unknown[0]}; there are {', '.join(NAMES)}")
    seconds = given.seconds if given.seconds or given.runs != "0" else SECONDS
    failed = 0
    for name in names:
        runs = int(given.runs) if given.runs != "goal" else runs_left(name, results)
        if given.runs == "goal" and runs <= 0:
            continue
        share_s = max(seconds // len(names), 1) if seconds else 0
        seed = random.SystemRandom().getrandbits(31)
        row = measured(name, given.folder, runs or -1, share_s, seed)
        with open(results, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(
            f"{name:18} {row['runs']:>10,} runs in {row['seconds']} s ({row['cpu_s']} s of CPU),"
            f" slowest {row['slowest_s']} s, {row['peak_rss_mb']} MB, {row['edges']} edges,"
            f" {row['findings']} findings",
            flush=True,
        )
        if row["findings"]:
            failed = 1
            print(f"  see {given.folder}/{name}.log and {given.folder}/findings/{name}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
