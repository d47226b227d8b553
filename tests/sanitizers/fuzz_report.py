"""Makes docs/evidence/fuzz.md of docs/evidence/fuzz.jsonl, the lines that fuzz.py wrote.

cd tests && python -m sanitizers.fuzz_report
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sanitizers.parsers import GOAL_NATIVE, GOAL_PYTHON, NAMES, is_native

EVIDENCE = Path(__file__).parents[2] / "docs" / "evidence"
LINES, PAGE = EVIDENCE / "fuzz.jsonl", EVIDENCE / "fuzz.md"
BEGIN, END = "<!-- the table begins -->", "<!-- the table ends -->"
HEAD = (
    "| parser | code | runs | of the goal | runs for each s of CPU | slowest case | peak memory"
    " | findings | last seed, commit |\n|---|---|---|---|---|---|---|---|---|"
)

Row = Mapping[str, Any]


def table(lines: Iterable[str]) -> str:
    """Returns the table of all parsers; of one that has no line too."""
    found: dict[str, list[Row]] = {name: [] for name in NAMES}
    for line in lines:
        row = json.loads(line)
        found[row["parser"]].append(row)
    return "\n".join([HEAD, *(_line(name, rows) for name, rows in found.items())])


def _line(name: str, rows: list[Row]) -> str:
    code, goal = ("native", GOAL_NATIVE) if is_native(name) else ("Python", GOAL_PYTHON)
    if not rows:
        return f"| {name} | {code} | 0 | no | | | | | |"
    runs = sum(row["runs"] for row in rows)
    cpu_s = sum(row["cpu_s"] for row in rows)
    slowest_ms = max(row["slowest_s"] for row in rows) * 1000
    share = "reached" if runs >= goal else f"{100 * runs / goal:.1f} %"
    cells = (
        name, code, f"{runs:,}", share, f"{runs / max(cpu_s, 0.1):,.0f}", f"{slowest_ms:.0f} ms",
        f"{max(row['peak_rss_mb'] for row in rows)} MB", sum(row["findings"] for row in rows),
        f"{rows[-1]['seed']}, {rows[-1]['commit']}",
    )  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def page(text: str, lines: Iterable[str]) -> str:
    """Returns the text of the page with a new table."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(lines)}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(), LINES.read_text().splitlines()))
