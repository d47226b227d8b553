"""Generates docs/metrics.md: `python -m barnabas.cli.metrics_reference > docs/metrics.md`."""

from __future__ import annotations

from barnabas.telemetry import (
    broker_metrics,
    cleaner_metrics,
    group_metrics,
    login_metrics,
    metrics_page,
    network_metrics,
    plugin_metrics,
    process_metrics,
    quota_metrics,
    replication_metrics,
    share_metrics,
)
from barnabas.telemetry.registry import Metric

# Modules whose METRICS a running broker shows; a package that adds a collector adds its module.
MODULES = (
    metrics_page,
    broker_metrics,
    group_metrics,
    cleaner_metrics,
    network_metrics,
    login_metrics,
    plugin_metrics,
    process_metrics,
    quota_metrics,
    replication_metrics,
    share_metrics,
)

INTRODUCTION = """# Metrics

`python -m barnabas.cli.metrics_reference` generates this page; change the metrics in the code, not
this page.

`barnabas start` serves metrics in Prometheus' text format on `http://127.0.0.1:9404/metrics`, the
port that Strimzi and the JMX exporter use for Kafka. A broker inside another process has no page
unless `metrics.port` is set. When the default port is in use (by a second broker, for example), the
broker starts without a page and logs a warning; when a port that `metrics.port` sets is in use, the
broker does not start.

| setting | default | meaning |
|---|---|---|
| `metrics.port` | -1, 9404 for `barnabas start` | port of the page; 0: a free one, -1: none |
| `metrics.host` | 127.0.0.1 | another needs the next two, or `allow.unauthenticated.remote` |
| `metrics.ssl.location` | none | PEM file of key and certificate: the page is served over TLS |
| `metrics.credentials.file` | none | lines `user NAME PASSWORD` or `token TOKEN`: who may read it |
| `metrics.dialect` | jmx | `jmx`: names of the JMX exporter and Strimzi; `confluent`: Confluent's |
| `metrics.max.partitions` | 10000 | with more on a node, the page omits metrics of partitions |

On the same port:

| path | answer |
|---|---|
| `/metrics` | the metrics |
| `/health/live`, `/livez` | 200 while the process runs |
| `/health/ready`, `/readyz`, `/healthz` | 200 when it serves clients; else 503 and the reason |

Prometheus reads it with

```yaml
scrape_configs:
  - job_name: kafka
    scrape_interval: 15s
    static_configs:
      - targets: ["127.0.0.1:9404"]
```

[monitoring.md](monitoring.md) has a complete file, alerts and a dashboard. For dashboards that
expect more labels, such as Strimzi's `namespace` and `strimzi_io_cluster`, set them with `labels:`
below `targets`.

Quantiles cover about the last five minutes, idle shares and rates the last minute; `_count`, `_sum`
and `_total` count since the start. A quantile is NaN while there are no observations. The counters
of a topic disappear with the topic; the sum without a topic includes deleted topics.

The JMX exporter shows some metrics of Kafka that this page does not have: those of the JVM
(`process_*` has those of the process), of ZooKeeper and KRaft, of message conversions, and of
each replica fetcher. This build has none of these.
"""

HEAD = "| name | Confluent's | kind | labels | meaning | MBean |\n|---|---|---|---|---|---|\n"


def metrics() -> list[Metric]:
    return sorted({metric for module in MODULES for metric in module.METRICS})


def page() -> str:
    rows = [_row(metric) for metric in metrics()]
    return f"{INTRODUCTION}\n## Names\n\n{HEAD}{''.join(rows)}"


def _row(metric: Metric) -> str:
    others = [f"`{name}`" for name in metric.confluent if name != metric.name] or ["the same"]
    cells = [
        f"`{metric.name}`",
        ", ".join(others),
        metric.kind,
        ", ".join(f"`{label}`" for label in metric.labels),
        metric.meaning.replace("|", "\\|"),
        f"`{metric.mbean.replace('attribute=', '')}`" if metric.mbean else "",
    ]
    return "| " + " | ".join(cells) + " |\n"


if __name__ == "__main__":
    print(page(), end="")
