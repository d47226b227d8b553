"""Metrics of plugins on /metrics."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.server.plugins import Plugins
from barnabas.telemetry.registry import COUNTER, GAUGE, Family, Metric, Page

CALLS = Metric("barnabas_plugin_calls_total", COUNTER, ("plugin", "hook"), "Calls of a hook")
FAILURES = Metric(
    "barnabas_plugin_failures_total",
    COUNTER,
    ("plugin", "hook"),
    "Calls of them that raised, returned an invalid value or took too long",
)
SECONDS = Metric(
    "barnabas_plugin_seconds_total", COUNTER, ("plugin", "hook"), "Seconds that callers waited"
)
OVERRUNS = Metric(
    "barnabas_plugin_overruns_total",
    COUNTER,
    ("plugin",),
    "Calls that took longer than their time budget",
)
ABANDONED = Metric(
    "barnabas_plugin_abandoned_threads", GAUGE, ("plugin",), "Threads that such calls still hold"
)
RUNS = Metric(
    "barnabas_plugin_runs",
    GAUGE,
    ("plugin", "version"),
    "1 for a plugin in use, 0 for a plugin that is switched off",
)
PLUGIN_METRIC = Metric(
    "barnabas_plugin_metric",
    GAUGE,
    ("plugin", "metric", "topic"),
    "Metrics that plugins report (the hook own_metrics)",
)

METRICS = (CALLS, FAILURES, SECONDS, OVERRUNS, ABANDONED, RUNS, PLUGIN_METRIC)


class PluginCollector:
    """Collects the metrics of one broker's plugins."""

    def __init__(self, plugins: Plugins) -> None:
        self._plugins = plugins

    def __call__(self, page: Page) -> Iterator[Family]:
        rows = self._plugins.registry.plugins() if self._plugins.are_used else []

        def by_hook(counts: str, divisor: float = 1) -> list[tuple[str, float]]:
            return [
                (page.labels(plugin=row.name, hook=hook), getattr(row, counts)[hook] / divisor)
                for row in rows
                for hook in row.hooks
            ]

        yield CALLS, by_hook("calls")
        yield FAILURES, by_hook("failures")
        yield SECONDS, by_hook("nanoseconds", 1e9)
        yield OVERRUNS, [(page.labels(plugin=row.name), row.overruns) for row in rows]
        yield ABANDONED, [(page.labels(plugin=row.name), row.abandoned) for row in rows]
        yield (
            RUNS,
            [(page.labels(plugin=row.name, version=row.version), not row.off) for row in rows],
        )
        yield (
            PLUGIN_METRIC,
            [
                (page.labels(plugin=row.name, metric=name, topic=topic), value)
                for row in rows
                for name, values in self._plugins.own_metrics(row).items()
                for topic, value in values.items()
            ],
        )
