"""The page as text: Prometheus' exposition format 0.0.4, in pieces.

    # HELP name what it means
    # TYPE name counter | gauge | summary
    name{label="value"} number

The `prometheus_client` package does the same. We do not use it: its import costs 100 ms and 140
modules, and it keeps values in its own Python objects, while cext counts our values and the page
reads them once. `write_page` yields the page in pieces, so that a page of thousands of partitions
needs little memory and request handlers run between two pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from barnabas.telemetry.registry import QUANTILES, Family, Metric, Page, Sample, Summary

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LINES_A_PIECE = 500


def number(value: float) -> str:
    """Formats a value as Go parses it: NaN, +Inf and -Inf have these spellings."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if isinstance(value, bool) else repr(value)


def _help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _with_quantile(labels: str, quantile: str) -> str:
    return f'{labels[:-1]},quantile="{quantile}"}}' if labels else f'{{quantile="{quantile}"}}'


def _lines(name: str, metric: Metric, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP {name} {_help(metric.meaning)}\n"
    yield f"# TYPE {name} {metric.kind}\n"
    for labels, value in samples:
        if isinstance(value, Summary):
            for quantile, found in zip(QUANTILES, value.quantiles, strict=True):
                yield f"{name}{_with_quantile(labels, quantile)} {number(found)}\n"
            yield f"{name}_sum{labels} {number(value.total)}\n"
            yield f"{name}_count{labels} {value.observations}\n"
        else:
            yield f"{name}{labels} {number(value)}\n"


def write_page(families: Iterable[Family], page: Page) -> Iterator[bytes]:
    """Yields the page in pieces of LINES_A_PIECE lines."""
    lines: list[str] = []
    for metric, samples in families:
        names = metric.names(page.dialect)
        if len(names) > 1:
            samples = list(samples)
        for name in names:
            for line in _lines(name, metric, samples):
                lines.append(line)
                if len(lines) == LINES_A_PIECE:
                    yield "".join(lines).encode()
                    lines.clear()
    yield "".join(lines).encode()
