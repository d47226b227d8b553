"""Writes Kafka's answers into the data files beside this one, and docs/answers.md.

    python tests/compat/answers/record.py          starts each Kafka in turn (about a minute)
    python tests/compat/answers/record.py table    the page alone, from the data files

A version is answered by the first of KAFKAS that serves it.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parents[1]))

from compat.answers.asking import HANGS_UP, served  # noqa: E402
from compat.answers.scenarios import SCENARIOS, answers_to  # noqa: E402
from compat.support import ROOT, Broker  # noqa: E402

from barnabas.wire.api_keys import api_key  # noqa: E402

KAFKAS = ("kafka:4.3.1", "kafka:4.4.0", "kafka:3.9.2:zookeeper")
PAGE = ROOT / "docs" / "answers.md"
Answers = dict[tuple[int, int], dict[str, Any]]
# What Barnabas says otherwise, on purpose: (key, version or None for all, case or None) -> why.
ALLOWED: dict[tuple[int, int | None, str | None], str] = {
    (9, 0, "a group without a name"): "INVALID_GROUP_ID; Kafka fails on the path of its node",
}


def file_of(kind: str) -> Path:
    return HERE / (kind.replace(":", "-") + ".json")


def recorded(kind: str) -> Answers:
    told = json.loads(file_of(kind).read_text())
    found = {
        (int(key), int(version)): cases
        for key, versions in told.items()
        for version, cases in versions.items()
    }
    return dict(sorted(found.items()))


def all_recorded() -> dict[tuple[int, int], tuple[str, dict[str, Any]]]:
    """For each key and version: which Kafka answered, and the answers by case."""
    found: dict[tuple[int, int], tuple[str, dict[str, Any]]] = {}
    for kind in KAFKAS:
        for pair, cases in recorded(kind).items():
            found.setdefault(pair, (kind, cases))
    return found


def pairs_of(address: str) -> list[tuple[int, int]]:
    ranges = served(address)
    return [(key, version) for key in SCENARIOS for version in ranges.get(key, ())]


def record(kinds: tuple[str, ...] = KAFKAS) -> None:
    taken: set[tuple[int, int]] = set()
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            broker = Broker(kind, Path(folder))
            try:
                pairs = [pair for pair in pairs_of(broker.address) if pair not in taken]
                told: dict[str, dict[str, Any]] = {}
                for key, version in pairs:
                    answers = answers_to(broker.address, key, version)
                    told.setdefault(str(key), {})[str(version)] = answers
            finally:
                broker.stop()
        taken |= set(pairs)
        file_of(kind).write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")
        print(kind, len(pairs))


def page() -> str:
    """docs/answers.md: which Kafka's answers each key and version is held to."""
    lines = [
        "# The answers that Barnabas is held to",
        "",
        "For each API key and version the same questions were put to Apache Kafka and its answers",
        "were recorded; the tests put them to Barnabas and compare field by field. A cell names",
        "the release that answered and the number of questions. Left out of the comparison: ids,",
        "addresses, folders, disk sizes, times of the broker's clock, the wording of messages,",
        "the order of arrays, and the list of keys in ApiVersions. An x means that Kafka",
        "answers by closing the connection.",
        "",
        "This page is made by `python tests/compat/answers/record.py table`.",
        "",
        "| key | name | version: release, questions |",
        "|---|---|---|",
    ]
    rows: dict[int, list[str]] = {}
    for (key, version), (kind, cases) in sorted(all_recorded().items()):
        closed = all(answer == HANGS_UP for answer in cases.values())
        text = "x" if closed else str(len(cases))
        rows.setdefault(key, []).append(f"{version}: {kind.split(':')[1]}, {text}")
    lines += [f"| {key} | {api_key(key).name} | {'; '.join(row)} |" for key, row in rows.items()]
    lines += ["", "## Differences on purpose", ""]
    for (key, version_or_all, case), why in ALLOWED.items():
        which = "all versions" if version_or_all is None else f"version {version_or_all}"
        lines.append(f"- {api_key(key).name}, {which}, {case or 'every question'}: {why}")
    if not ALLOWED:
        lines.append("None.")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] != ["table"]:
        record()
    PAGE.write_text(page())
