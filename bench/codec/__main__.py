"""The codec's benchmarks as one table and one JSON file.

    python bench/codec [--out DIR] [pytest's arguments, -k columns for example]

The table has medians; a column `a record` where the work is a batch of records; ratios are to the
fastest of the others, so 4 means that barnabas takes a quarter of its time.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
RECORDS = 595


def shown(seconds: float) -> str:
    for unit, size in (("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.2g} ns"


def by_group(results: dict) -> dict[str, dict[str, float]]:
    """Group -> who -> median seconds. Those of barnabas come first."""
    found: dict[str, dict[str, float]] = {}
    for one in results["benchmarks"]:
        found.setdefault(one["group"], {})[one["params"]["by"]] = one["stats"]["median"]
    return {group: dict(sorted(rows.items())) for group, rows in sorted(found.items())}


def table(groups: dict[str, dict[str, float]]) -> str:
    lines = [
        "| work | barnabas | a record | the others | times the fastest other |",
        "|---|---|---|---|---|",
    ]
    for group, rows in groups.items():
        ours = {who: s for who, s in rows.items() if who.startswith("barnabas")}
        others = {who: s for who, s in rows.items() if who not in ours}
        best = min(others.values())
        for who, seconds in ours.items():
            name = group if who == "barnabas" else f"{group} ({who.partition(', ')[2]})"
            each = f"{seconds / RECORDS * 1e9:.1f} ns" if f"batch of {RECORDS}" in group else ""
            rest = ", ".join(f"{who} {shown(s)}" for who, s in others.items())
            lines.append(f"| {name} | {shown(seconds)} | {each} | {rest} | {best / seconds:.1f} |")
    return "\n".join(lines)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="the codec beside other packages")
    parser.add_argument("--out", type=Path, help="a folder for codec.md and codec.json")
    arguments, rest = parser.parse_known_args(words)
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as folder:
        out = arguments.out or Path(folder)
        out.mkdir(parents=True, exist_ok=True)
        result = out / "codec.json"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += [str(HERE / "bench_codec.py"), "--benchmark-enable", "--benchmark-quiet"]
        done = subprocess.run([*command, f"--benchmark-json={result}", *rest], check=False)
        if done.returncode:
            return done.returncode
        written = table(by_group(json.loads(result.read_text())))
        (out / "codec.md").write_text(written + "\n")
        print(written)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
