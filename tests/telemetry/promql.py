"""What tests read out of PromQL: the metrics of an expression with the labels that it selects or
groups by."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from oracle.exposition import Family

from barnabas.cli import metrics_reference

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (apt install prometheus)"
)
# The functions and words that our expressions use; another one is taken for a metric, and fails.
WORDS = frozenset(
    "and by changes count delta increase max min_over_time or rate sum vector".split()
)
NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
SELECTED = re.compile(r'([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)\s*"[^"]*"')
BRACES = re.compile(r"\{([^}]*)\}")
GROUPED = re.compile(r"\bby \(([^)]*)\)")
# Prometheus adds these to what it reads from a target.
OF_TARGET = frozenset({"job", "instance"})


def metrics_of(expression: str) -> dict[str, set[str]]:
    """The metrics of an expression, each with the labels in its braces and all that the expression
    groups by."""
    grouped = {label.strip() for found in GROUPED.findall(expression) for label in found.split(",")}
    plain = re.sub(r"\[[^\]]*\]", "", GROUPED.sub(" ", expression))
    found: dict[str, set[str]] = {}
    for match in NAME.finditer(BRACES.sub(lambda m: " " * len(m[0]), plain)):
        if match[0] in WORDS:
            continue
        braces = BRACES.match(plain, match.end())
        labels = set(SELECTED.findall(braces[1])) if braces else set()
        found.setdefault(match[0], set()).update(labels | grouped)
    return {name: labels - OF_TARGET for name, labels in found.items()}


def absent(wanted: dict[str, set[str]], page: dict[str, Family]) -> list[str]:
    """Metrics of `metrics_of` that a broker's page has not, and labels that they do not have."""
    labels_of = {
        metric.name: {*metric.labels} | ({"quantile"} if metric.kind == "summary" else set())
        for metric in metrics_reference.metrics()
    }
    return [name for name in wanted if name not in page] + [
        f"{name}: {label}"
        for name, labels in wanted.items()
        for label in sorted(labels - labels_of.get(name, labels))
    ]


def promtool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *words], capture_output=True, text=True, timeout=60)
