"""docs/metrics.md of the metrics: `python -m barnabas.cli.metrics_reference > docs/metrics.md`."""

from __future__ import annotations

from barnabas.telemetry import (
    broker_metrics,
    cleaner_metrics,
    group_metrics,
    metrics_page,
    network_metrics,
    plugin_metrics,
    process_metrics,
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
    plugin_metrics,
    process_metrics,
    share_metrics,
)

INTRODUCTION = """# Metrics

Made by `python -m barnabas.cli.metrics_reference`; change the metrics in the code, not this page.

`barnabas start` serves metrics in Prometheus' text form on `http://127.0.0.1:9404/metrics`, the
port where Strimzi and the JMX exporter put Kafka's. A broker inside another process has no page
unless `metrics.port` says so. With the default port taken (by a second broker, say) the broker
starts without a page and says so; a port that was asked for and is taken refuses the start.

| setting | default | meaning |
|---|---|---|
| `metrics.port` | -1, 9404 for `barnabas start` | port of the page; 0 picks a free one, -1 is off |
| `metrics.host` | 127.0.0.1 | one that other hosts can reach needs `allow.unauthenticated.remote` |
| `metrics.dialect` | jmx | `jmx`: names of the JMX exporter and Strimzi; `confluent`: Confluent's |
| `metrics.max.partitions` | 10000 | with more on a node, metrics of each partition are left out |

On the same port:

| path | answer |
|---|---|
| `/metrics` | the metrics |
| `/health/live`, `/livez` | 200 while the process runs |
| `/health/ready`, `/readyz`, `/healthz` | 200 when clients are served; else 503 and the reason |

Prometheus reads it with

```yaml
scrape_configs:
  - job_name: kafka
    scrape_interval: 15s
    static_configs:
      - targets: ["127.0.0.1:9404"]
```

(`etc/prometheus.yml` is a whole file.) Dashboards that expect labels of their own, such as
Strimzi's `namespace` and `strimzi_io_cluster`, get them from `labels:` below `targets`.

Quantiles are those of the last five minutes or so, idle shares and rates of the last minute;
`_count`, `_sum` and `_total` count since the start. A quantile is NaN while nothing happens. A
topic's counters go with the topic; the sum without a topic keeps what they had counted.

What the JMX exporter shows of Kafka and this page does not: the JVM's own metrics (`process_*`
has those of the process), ZooKeeper's and KRaft's, message conversions, throttle times and quotas,
and replica fetchers: this build has none of these.
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
