#!/usr/bin/env python3
"""Compares this build of barnabas with an older one: both run loads of broker.py in turns.

    python bench/before.py COMMAND [--quick] [--rows one,fifty,...] [--repeats N] [--data DIR]

COMMAND is the `barnabas` command of the older build in its own environment, for example
/work/v0.1.0/.venv/bin/barnabas. Ratios are now / before. A change of a hot path is within the noise
when its ratio lies between the ratios of two runs in which both sides are the same build.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import report
from rows import FULL, MEMORY, QUICK, Row, all_rows
from sides import Ours, Side

from broker import Bench, chosen

ROWS = "one,five,fifty,bulk,lz4,fetch,fetch4k,metadata,through,all50"


class Older(Ours):
    """An older barnabas, installed in another environment."""

    name = "before"


class Both(Bench):
    """Runs two builds of barnabas in place of barnabas and Kafka."""

    older: list[str]

    def sides(self, name: str, durability: str) -> tuple[Ours, Side]:
        older = Older(self.data / f"{name}-before", durability)
        older.command = self.older
        return Ours(self.data / f"{name}-now", durability), older


def table(found: report.Found, rows: list[Row]) -> str:
    lines = ["| load | metric | now | before | now / before |", "|---|---|---|---|---|"]
    for row in report.rows_of(found, rows):
        for figure in row.figures:
            name, show = report.UNITS[figure]
            by_side = found[row.key].get(figure, {})
            now, before = by_side.get(Ours.name, []), by_side.get(Older.name, [])
            both = report.ratio(now, before)
            cells = [row.name, name, report.cell(now, show), report.cell(before, show)]
            lines.append(f"| {' | '.join(cells)} | {f'{both:.2f}' if both else '-'} |")
    return "\n".join(lines)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("older", help="the command `barnabas` of the older build")
    parser.add_argument("--quick", action="store_true", help="a short run")
    parser.add_argument("--rows", default=ROWS, help="of bench/broker.py --list")
    parser.add_argument("--repeats", type=int, help="rounds (5, quick: 1)")
    parser.add_argument("--data", type=Path, help="where the brokers keep their data")
    given = parser.parse_args(words)
    rows, size = chosen(given.rows, [*all_rows(), MEMORY]), QUICK if given.quick else FULL
    if given.repeats:
        size.repeats = given.repeats
    data = Path(tempfile.mkdtemp(prefix="barnabas-bench-", dir=given.data))
    bench = Both(size, data, "", rows, lambda: None)
    bench.older = [given.older]
    try:
        bench.run()
    finally:
        shutil.rmtree(data, ignore_errors=True)
    print(table(bench.found, rows))
    for key, why in bench.failed.items():
        print(f"- {key}: not measured: {why}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
