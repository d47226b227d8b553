"""Runs clients of several packages that do the same work in turns, each in its own process.

A script that is called with `--one NAME --address A --records N` does the work of one client and
prints {"per_s": ..., "cpu_us": ...}: records a second, and CPU us a record of that process.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

Figures = dict[str, dict[str, float]]  # of each client


def _round_of(
    script: str, names: Sequence[str], address: str, records: int, share: Mapping[str, float]
) -> Figures:
    found = {}
    for name in names:
        command = [sys.executable, script, "--one", name, "--address", address]
        command += ["--records", str(int(records * share.get(name, 1)))]
        ran = subprocess.run(command, check=True, capture_output=True, text=True)
        found[name] = json.loads(ran.stdout)
    return found


def in_turns(
    script: str,
    names: Sequence[str],
    address: str,
    records: int,
    rounds: int,
    share: Mapping[str, float],
) -> Figures:
    """Returns medians of all rounds; the order of clients changes each round. `share`: the part of
    the records that a slow client handles."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for turn in range(rounds):
        first = turn % len(names)
        order = [*names[first:], *names[:first]]
        for name, row in _round_of(script, order, address, records, share).items():
            found[name].append(row)
    return {
        name: {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        for name, rows in found.items()
    }


def _table(kind: str, figures: Figures, bars: Mapping[str, float]) -> str:
    mine = figures["barnabas"]["per_s"]
    lines = [
        f"| {kind} | records/s | CPU us a record | barnabas is | at least |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, row in figures.items():
        ratio = "" if name.startswith("barnabas") else f"{mine / row['per_s']:.2f}x"
        bar = f"{bars[name]:g}x" if name in bars else ""
        lines.append(f"| {name} | {row['per_s']:,.0f} | {row['cpu_us']:.2f} | {ratio} | {bar} |")
    return "\n".join(lines)


def report(
    kind: str, figures: Figures, bars: Mapping[str, float], out: Path | None, file_name: str
) -> int:
    """Prints the table and keeps it in `out`. Returns 1 when a bar was missed. `bars`: how many
    times the throughput of a client "barnabas" must reach."""
    text = _table(kind, figures, bars)
    print(text)
    if out:
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{file_name}.json").write_text(json.dumps(figures, indent=2))
        (out / f"{file_name}.md").write_text(text + "\n")
    mine = figures["barnabas"]["per_s"]
    missed = [name for name, bar in bars.items() if mine < bar * figures[name]["per_s"]]
    for name in missed:
        print(f"missed: {name}", file=sys.stderr)
    return 1 if missed else 0
