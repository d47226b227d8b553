"""Writes Kafka's answers into answers.tsv beside this file, and docs/answers.md.

    python tests/compat/answers/record.py          starts each Kafka in turn (about a minute)
    python tests/compat/answers/record.py table    the page alone, from answers.tsv

A version is answered by the first of KAFKAS that serves it; Kafka 4 lists Produce 0 to 2 and closes
the connection. A line of answers.tsv is one distinct
answer: API key, the Kafka that answered, the versions ("0-2,10"), the name of the question, and the
answer as JSON, separated by tabs.
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
FILE = HERE / "answers.tsv"
Recorded = dict[tuple[int, int], tuple[str, dict[str, Any]]]
# Where Barnabas differs on purpose: (key, version or None for all, case or None) -> why.
ALLOWED: dict[tuple[int, int | None, str | None], str] = {
    (55, 2, "the metadata"): "the controller's addresses are those of the broker",
    (88, None, "and does not yet"): (
        "the member's tasks again, because an answer may have been lost; Kafka fences a member that"
        " did not hear what to revoke"
    ),
    (9, 0, "a group without a name"): "INVALID_GROUP_ID; Kafka fails on the path of its node",
}


def versions_of(text: str) -> list[int]:
    """[0, 1, 2, 10] for "0-2,10"."""
    ranges = [part.partition("-") for part in text.split(",")]
    return [v for low, _, high in ranges for v in range(int(low), int(high or low) + 1)]


def versions_text(versions: list[int]) -> str:
    """ "0-2,10" for [0, 1, 2, 10]."""
    ranges: list[list[int]] = []
    for version in sorted(versions):
        if ranges and ranges[-1][1] == version - 1:
            ranges[-1][1] = version
        else:
            ranges.append([version, version])
    return ",".join(f"{low}-{high}" if low < high else f"{low}" for low, high in ranges)


def all_recorded() -> Recorded:
    """For each key and version: which Kafka answered, and the answers by case."""
    found: Recorded = {}
    for line in FILE.read_text().splitlines():
        key, kind, versions, case, answer = line.split("\t")
        for version in versions_of(versions):
            cases = found.setdefault((int(key), version), (kind, {}))[1]
            cases[case] = json.loads(answer)
    return dict(sorted(found.items()))


def lines_of(told: Recorded) -> list[str]:
    """The lines of answers.tsv."""
    versions: dict[tuple[int, str, str, str], list[int]] = {}
    for (key, version), (kind, cases) in told.items():
        for case, answer in cases.items():
            text = json.dumps(answer, sort_keys=True, ensure_ascii=False)
            versions.setdefault((key, kind, case, text), []).append(version)
    rows = sorted(versions.items(), key=lambda row: (row[0][0], row[0][2], min(row[1])))
    return [
        f"{key}\t{kind}\t{versions_text(found)}\t{case}\t{text}"
        for (key, kind, case, text), found in rows
    ]


def covering(told: Recorded) -> list[tuple[int, int]]:
    """A small set of keys and versions (newer ones first) whose answers include every distinct
    answer."""
    left: dict[int, dict[int, set[tuple[str, str]]]] = {}  # key -> version -> case and answer
    for (key, version), (_, cases) in told.items():
        answers = {(case, json.dumps(one, sort_keys=True)) for case, one in cases.items()}
        left.setdefault(key, {})[version] = answers
    chosen = []
    for key, versions in left.items():
        while any(versions.values()):
            best = max(versions, key=lambda version: (len(versions[version]), version))
            chosen.append((key, best))
            seen = set(versions[best])
            for answers in versions.values():
                answers -= seen
    return sorted(chosen)


def pairs_of(address: str) -> list[tuple[int, int]]:
    ranges = served(address)
    return [(key, version) for key in SCENARIOS for version in ranges.get(key, ())]


def is_answered(told: Recorded, pair: tuple[int, int]) -> bool:
    return pair in told and any(answer != HANGS_UP for answer in told[pair][1].values())


def record(kinds: tuple[str, ...] = KAFKAS) -> None:
    told: Recorded = {}
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            broker = Broker(kind, Path(folder))
            try:
                pairs = [pair for pair in pairs_of(broker.address) if not is_answered(told, pair)]
                for pair in pairs:
                    told[pair] = kind, answers_to(broker.address, *pair)
            finally:
                broker.stop()
        print(kind, len(pairs))
    FILE.write_text("\n".join(lines_of(told)) + "\n")


def page() -> str:
    """docs/answers.md: the Kafka release whose answers each key and version is compared with."""
    lines = [
        "# Recorded answers of Apache Kafka",
        "",
        "For each API key and version, Apache Kafka's answers to the same requests are recorded;",
        "tests send these requests to barnabas and compare each field of the answers. A cell has",
        "the Kafka release and the number of requests. The comparison leaves out ids, addresses,",
        "folders, disk sizes, times of the broker's clock, the text of messages, the order of",
        "arrays, and the list of keys in ApiVersions. An x means that Kafka closes the connection",
        "without an answer.",
        "",
        "`python tests/compat/answers/record.py table` generates this page.",
        "",
        "| key | name | version: release, questions |",
        "|---|---|---|",
    ]
    rows: dict[int, list[str]] = {}
    for (key, version), (kind, cases) in all_recorded().items():
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
