"""Defines metrics: their kinds, their names, and the collectors that give their values.

One `Metric` describes a metric, by Kafka's MBean where there is one; the names in the two dialects
of dashboards follow from it:

    jmx        kafka_server_brokertopicmetrics_messagesin_total      Strimzi, jmx_exporter
    confluent  kafka_server_brokertopicmetrics_messagesinpersec      Confluent's stacks

A collector is a function that takes the page which is being written. It yields families: a metric
and its samples, each the text of its labels (`page.labels(...)`) and a value. Any package may
register a collector:

    registry.add(collect_groups)

The registry is made at start and imports nothing; it calls collectors when a client reads the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

COUNTER = "counter"
GAUGE = "gauge"
SUMMARY = "summary"
DIALECTS = ("jmx", "confluent")
QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")


class Metric(NamedTuple):
    """One metric. `name` and `confluent` are its names in the two dialects."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str
    mbean: str = ""
    confluent: tuple[
        str, ...
    ] = ()  # more than one where dashboards of several Kafka generations are in use

    def names(self, dialect: str) -> tuple[str, ...]:
        """Returns the metric's names in a dialect, `jmx` or `confluent` (metrics.dialect)."""
        return self.confluent if dialect == "confluent" and self.confluent else (self.name,)


class Summary(NamedTuple):
    """The value of a summary: quantiles of the last minutes, and sum and count since the start."""

    quantiles: tuple[
        float, ...
    ]  # in the order of QUANTILES; NaN without events in the last minutes
    observations: int
    total: float


Sample = tuple[str, "float | Summary"]
Family = tuple[Metric, Iterable[Sample]]


def of_mbean(
    mbean: str,
    kind: str,
    meaning: str,
    labels: tuple[str, ...] = (),
    confluent: tuple[str, ...] = (),
) -> Metric:
    """Returns the metric of the MBean `domain:type=T,name=N`, or `domain:type=T,attribute=A`."""
    domain, _, keys = mbean.partition(":")
    found = dict(key.split("=", 1) for key in keys.split(","))
    leaf = found.get("name") or found["attribute"]
    stem = f"{domain}_{found['type']}".lower().replace(".", "_")
    others = confluent or (f"{stem.replace('-', '')}_{leaf.lower().replace('-', '_')}",)
    return Metric(f"{stem.replace('-', '_')}_{_jmx(leaf)}", kind, labels, meaning, mbean, others)


def _jmx(leaf: str) -> str:
    for end, other in (("PerSec", "_total"), ("Percent", "_percent")):
        if leaf.endswith(end):
            leaf = leaf.removesuffix(end) + other
    return leaf.lower().replace("-", "_")


def _quoted(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class Page:
    """One page that is being written: what collectors need to know about it."""

    __slots__ = ("dialect", "now_ns")

    def __init__(self, dialect: str, now_ns: int) -> None:
        assert dialect in DIALECTS, dialect
        self.dialect = dialect
        self.now_ns = now_ns  # monotonic

    def labels(self, **values: object) -> str:
        """Returns `{topic="t",partition="0"}`; a label whose value is None is omitted."""
        pairs = [
            f'{self._label(name)}="{_quoted(str(value))}"'
            for name, value in values.items()
            if value is not None
        ]
        return "{" + ",".join(pairs) + "}" if pairs else ""

    def _label(self, name: str) -> str:
        if self.dialect == "confluent":
            return {"networkProcessor": "network_processor"}.get(name, name.lower())
        return name


Collector = Callable[[Page], Iterable[Family]]


class Registry:
    """The collectors of one broker."""

    def __init__(self) -> None:
        self._collectors: list[Collector] = []

    def add(self, collector: Collector) -> None:
        """Adds a collector; every later page has its metrics."""
        self._collectors.append(collector)

    def families(self, page: Page) -> Iterator[Family]:
        """Yields the metrics and samples of all collectors for a page."""
        for collector in list(self._collectors):
            yield from collector(page)
