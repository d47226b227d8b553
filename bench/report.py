"""Writes the results of bench/broker.py and other benchmarks: a table, every run as JSON, and a
plot if matplotlib is installed. Rows are those of bench/broker.py unless the caller passes
others."""

import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rows import MEMORY, Bar, Row, all_rows

HERE = Path(__file__).resolve().parent
Found = dict[str, dict[str, dict[str, list[float]]]]  # row -> figure -> side -> values

UNITS: dict[str, tuple[str, Callable[[float], str]]] = {
    "requests_per_s": ("requests/s", lambda value: f"{value:,.0f}"),
    "records_per_s": ("records/s", lambda value: f"{value:,.0f}"),
    "cpu_us_per_request": ("CPU µs/request", lambda value: f"{value:.1f}"),
    "open_cpu_us": ("CPU µs/request without authorizer", lambda value: f"{value:.1f}"),
    "cpu_to_open": ("CPU relative to no authorizer", lambda value: f"{value:.3f}"),
    "p50_us": ("p50 µs", lambda value: f"{value:,.0f}"),
    "p99_us": ("p99 µs", lambda value: f"{value:,.0f}"),
    "p999_us": ("p99.9 µs", lambda value: f"{value:,.0f}"),
    "idle_p50_us": ("p50 µs when idle", lambda value: f"{value:,.0f}"),
    "idle_p99_us": ("p99 µs when idle", lambda value: f"{value:,.0f}"),
    "p50_to_idle": ("p50 / p50 when idle", lambda value: f"{value:.2f}"),
    "p99_to_idle": ("p99 / p99 when idle", lambda value: f"{value:.2f}"),
    "mb_per_s": ("MB/s", lambda value: f"{value:,.0f}"),
    "cpu_s_per_gb": ("CPU s/GB", lambda value: f"{value:.2f}"),
    "start_s": ("start until usable, s", lambda value: f"{value:.3f}"),
    "start_cpu_s": ("CPU s of the start", lambda value: f"{value:.2f}"),
    "create_s": ("CreateTopics until usable, s", lambda value: f"{value:.2f}"),
    "create_cpu_s": ("CPU s of CreateTopics", lambda value: f"{value:.2f}"),
    "idle_mb": ("resident memory, MB", lambda value: f"{value:.0f}"),
    "grown_mb": ("resident memory added, MB", lambda value: f"{value:.0f}"),
    "loaded_mb": ("resident memory, MB", lambda value: f"{value:.0f}"),
    "kb_per_connection": ("resident KiB/connection", lambda value: f"{value:.2f}"),
    "all_assigned_s": ("first join to all assigned, s", lambda value: f"{value:.3f}"),
    "cpu_s": ("CPU s", lambda value: f"{value:.2f}"),
    "transactions_per_s": ("transactions/s", lambda value: f"{value:,.0f}"),
    "cpu_us_per_transaction": ("CPU µs/transaction", lambda value: f"{value:,.0f}"),
    "bytes_after": ("bytes after compaction", lambda value: f"{value / 1e6:,.0f} M"),
    "bytes_each": ("bytes each", lambda value: f"{value:,.0f}"),
    "failover_s": ("s until clients continue", lambda value: f"{value:.3f}"),
    "gap_s": ("longest client pause, s", lambda value: f"{value:.3f}"),
    "stop_s": ("SIGTERM until exit, s", lambda value: f"{value:.2f}"),
    "load_s": ("start until all are served, s", lambda value: f"{value:.2f}"),
}


def clock() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%H:%M:%S")


def cell(values: list[float], show: Callable[[float], str]) -> str:
    if not values:
        return "-"
    middle = show(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({show(min(values))}-{show(max(values))})"


def ratio(ours: list[float], theirs: list[float]) -> float | None:
    below = statistics.median(theirs) if theirs else 0
    return statistics.median(ours) / below if ours and below else None


def verdict(bars: list[Bar], ours: list[float], theirs: list[float]) -> str:
    """Returns the targets of one measurement as text, and which of them are missed."""
    said = []
    for bar in bars:
        met = bar.met(ours, theirs)
        said.append(bar.text() + {True: " met", False: " **missed**", None: ""}[met])
    return ", ".join(said)


def rows_of(found: Found, rows: Sequence[Row] = ()) -> list[Row]:
    return [row for row in rows or [*all_rows(), MEMORY] if row.key in found]


def table(found: Found, failed: dict[str, str], rows: Sequence[Row] = ()) -> str:
    lines = [
        "| load | durability | metric | barnabas | Kafka | ratio | target |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows_of(found, rows):
        for figure in row.figures:
            by_side = found[row.key].get(figure, {})
            name, show = UNITS[figure]
            ours, theirs = by_side.get("barnabas", []), by_side.get("kafka", [])
            both = ratio(ours, theirs)
            cells = [row.name, "fsync" if row.group == "fsync" else "os", name]
            cells += [cell(ours, show), cell(theirs, show), f"{both:.2g}" if both else "-"]
            cells.append(verdict([bar for bar in row.bars if bar.figure == figure], ours, theirs))
            lines.append(f"| {' | '.join(cells)} |")
    lines += [f"\n- {key}: not measured: {why}" for key, why in failed.items()]
    return "\n".join(lines)


def missed(found: Found, rows: Sequence[Row] = ()) -> list[str]:
    """Returns the targets that were missed, for the last line and the exit status of --check."""
    said = []
    for row in rows_of(found, rows):
        for bar in row.bars:
            by_side = found[row.key].get(bar.figure, {})
            if bar.met(by_side.get("barnabas", []), by_side.get("kafka", [])) is False:
                said.append(f"{row.key} {bar.figure} {bar.text()}")
    return said


def about(words: list[str], kafka: str, size: object, program: str = "broker") -> dict[str, object]:
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
        "command": " ".join(["python", f"bench/{program}.py", *words]),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "barnabas": f"{__version__} ({commit or 'no git'})",
        "kafka": kafka,
        "python": platform.python_version(),
        "java": said.splitlines()[0] if said else "?",
        "kernel": platform.release(),
        "machine": f"{os.cpu_count()} cores ({model}), {memory_kb / 1e6:.0f} GB",
        "size": vars(size),
        "load_average_at_start": os.getloadavg(),
    }


def written(
    found: Found, failed: dict[str, str], header: dict[str, object], rows: Sequence[Row] = ()
) -> str:
    lines = [f"- {key}: {value}" for key, value in header.items()]
    if header.get("quick"):
        lines.insert(0, "**Quick run: one round with a cold JVM. Do not compare its values.**\n")
    bars = missed(found, rows)
    tail = [
        "",
        "Targets missed: " + "; ".join(bars) if bars else "All measured targets are met.",
    ]
    return "\n".join([*lines, "", table(found, failed, rows), *tail, ""])


def save_svg(drawn: Any, path: Path) -> None:
    """Saves a plot of matplotlib as SVG with text as text, because outlines of letters are 20 times
    as large. The same plot gives the same bytes, and a shape is one line."""
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "barnabas"}):
        drawn.savefig(path, metadata={"Date": None})
    path.write_text(re.sub(r" *\n(?=[MLCQHVz\"])", " ", path.read_text()))


def plot(found: Found, header: dict[str, object], path: Path, rows: Sequence[Row] = ()) -> bool:
    """Draws ratios as bars on a logarithmic axis, with a mark at each target; shorter is
    always better for barnabas. Returns False without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    entries = []
    for row in rows_of(found, rows):
        for figure in row.figures:
            by_side = found[row.key].get(figure, {})
            both = ratio(by_side.get("barnabas", []), by_side.get("kafka", []))
            if not both:
                continue
            more_is_better = figure.endswith("_per_s")
            goal = next(
                (b.most or b.least for b in row.bars if b.figure == figure and not b.own), None
            )
            entries.append(
                (
                    f"{row.name}: {UNITS[figure][0]}",
                    1 / both if more_is_better else both,
                    (1 / goal if more_is_better else goal) if goal else None,
                )
            )
    if not entries:
        return False
    entries.reverse()
    height = 0.24 * len(entries) + 1.4
    drawn, axes = pyplot.subplots(figsize=(10, height))
    colours = ["#1b7f5c" if value <= (goal or 1) else "#c8553d" for _, value, goal in entries]
    axes.barh([name for name, *_ in entries], [value for _, value, _ in entries], color=colours)
    for place, (_, value, goal) in enumerate(entries):
        axes.text(value * 1.04, place, f"{value:.2g}", va="center", fontsize=7)
        if goal:
            axes.plot([goal, goal], [place - 0.4, place + 0.4], color="black", linewidth=1.5)
    axes.axvline(1, color="gray", linewidth=0.8)
    axes.set_xscale("log")
    axes.tick_params(axis="y", labelsize=7)
    axes.set_xlabel(
        "cost relative to Apache Kafka (Kafka = 1; shorter is better; black line: target)"
    )
    axes.set_title(f"barnabas {header['barnabas']}, Kafka {header['kafka']}", fontsize=9)
    drawn.tight_layout()
    save_svg(drawn, path)
    pyplot.close(drawn)
    return True


def write(
    folder: Path | None, found: Found, failed: dict[str, str], runs: list[dict[str, object]],
    header: dict[str, object], rows: Sequence[Row] = (), name: str = "broker",
) -> None:  # fmt: skip
    """Writes the results so far, so that a run that is stopped leaves its rounds."""
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(written(found, failed, header, rows))
    result = {"about": header, "figures": found, "failed": failed, "runs": runs}
    (folder / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")


def redraw(source: Path, folder: Path, rows: Sequence[Row] = (), program: str = "broker") -> None:
    """Writes the table and the plot again from the files of `write`."""
    result = json.loads(source.read_text())
    found, failed, header = result["figures"], result["failed"], result["about"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{program}.md").write_text(written(found, failed, header, rows))
    if not plot(found, header, folder / f"{program}.svg", rows):
        print("no plot: pip install 'barnabas[bench]'", file=sys.stderr)
