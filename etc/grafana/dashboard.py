#!/usr/bin/env python3
"""Writes barnabas.json, the Grafana dashboard of brokers, beside this file.

The rows and panels stand below as a table. In an expression $on selects the brokers that the
variables of the dashboard choose: it stands for `job="$job", instance=~"$instance"`.
tests/telemetry/test_dashboard.py compares the committed file with what this script writes, and its
metrics with those of a broker.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

OUT = Path(__file__).with_name("barnabas.json")
ON = 'job="$job", instance=~"$instance"'
WIDTH, ROW_HEIGHT, GRAPH_HEIGHT, STAT_HEIGHT = 24, 1, 8, 4
GRAPHS_A_ROW, STATS_A_ROW = 3, 8
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
EVERY = "$__rate_interval"


class Panel(NamedTuple):
    """A graph: `lines` are (expression, legend). `unit` is Grafana's name of a unit."""

    title: str
    unit: str
    meaning: str
    lines: tuple[tuple[str, str], ...]


class Stat(NamedTuple):
    """One number, red from `bad` on; `bad` None: never red."""

    title: str
    expression: str
    bad: float | None
    meaning: str


def rate(metric: str, by: str, more: str = "") -> str:
    """Returns the expression of a counter's rate, summed by labels."""
    return f"sum by ({by}) (rate({metric}{{$on{more}}}[{EVERY}]))"


def total(metric: str, by: str, more: str = "") -> str:
    return f"sum by ({by}) ({metric}{{$on{more}}})"


TIME = "kafka_network_requestmetrics_{}timems"
PARTS = ("requestqueue", "local", "remote", "responsequeue", "responsesend")


def p99(part: str, request: str) -> str:
    return f'max by (instance) ({TIME.format(part)}{{$on, request="{request}", quantile="0.99"}})'


TRAFFIC = "kafka_server_brokertopicmetrics_{}_total"
IN_TOPIC = ', topic!=""'
REPLICAS = "kafka_server_replicamanager_"
CONTROLLER = "kafka_controller_kafkacontroller_"
SOCKETS = "kafka_server_socket_server_metrics_"

ROWS: tuple[tuple[str, tuple[Panel | Stat, ...]], ...] = (
    (
        "Health",
        (
            Stat("Brokers", "max(kafka_brokers{$on})", None, "Brokers that are registered"),
            Stat(
                "Controllers",
                f"sum({CONTROLLER}activecontrollercount{{$on}})",
                2,
                "Exactly one broker is the controller",
            ),
            Stat(
                "Offline partitions",
                f"max({CONTROLLER}offlinepartitionscount{{$on}})",
                1,
                "Partitions without a usable leader",
            ),
            Stat(
                "Under min.insync.replicas",
                f"sum({REPLICAS}underminisrpartitioncount{{$on}})",
                1,
                "Partitions that refuse writes with acks=all",
            ),
            Stat(
                "Under-replicated",
                f"sum({REPLICAS}underreplicatedpartitions{{$on}})",
                1,
                "Partitions with a replica that is not in sync",
            ),
            Stat(
                "Failed log directories",
                "sum(kafka_log_logmanager_offlinelogdirectorycount{$on})",
                1,
                "Log directories with a log that failed",
            ),
            Stat(
                "Failed disk calls, 1 h",
                "sum(increase(barnabas_log_failed_disk_calls_total{$on}[1h]))",
                1,
                "Writes, flushes and other calls on log files that failed",
            ),
            Stat(
                "Plugins switched off",
                "count(barnabas_plugin_runs{$on} == 0) or vector(0)",
                1,
                "Plugins that the broker does not call any more",
            ),
            Panel(
                "State of each broker",
                "none",
                "1 starting, 2 recovering logs, 3 running, 7 shutting down",
                (("kafka_server_kafkaserver_brokerstate{$on}", "{{instance}}"),),
            ),
            Panel(
                "Partitions led",
                "none",
                "Partitions whose leader the broker is",
                ((f"{REPLICAS}leadercount{{$on}}", "{{instance}}"),),
            ),
            Panel(
                "Errors in responses",
                "ops",
                "Error codes a second; clients that find a new leader cause some",
                (
                    (
                        rate(
                            "kafka_network_requestmetrics_errors_total",
                            "request, error",
                            ', error!="NONE"',
                        ),
                        "{{request}} {{error}}",
                    ),
                ),
            ),
        ),
    ),
    (
        "Traffic",
        (
            Panel(
                "Bytes in",
                "Bps",
                "Bytes of record batches appended, by topic",
                ((rate(TRAFFIC.format("bytesin"), "topic", IN_TOPIC), "{{topic}}"),),
            ),
            Panel(
                "Bytes out",
                "Bps",
                "Bytes sent to consumers, by topic",
                ((rate(TRAFFIC.format("bytesout"), "topic", IN_TOPIC), "{{topic}}"),),
            ),
            Panel(
                "Records in",
                "ops",
                "Records appended, by topic",
                ((rate(TRAFFIC.format("messagesin"), "topic", IN_TOPIC), "{{topic}}"),),
            ),
            Panel(
                "Requests",
                "reqps",
                "Requests answered, by API",
                ((rate("kafka_network_requestmetrics_requests_total", "request"), "{{request}}"),),
            ),
            Panel(
                "Failed produce and fetch requests",
                "ops",
                "Failures that clients do not meet in normal operation",
                (
                    (
                        rate(TRAFFIC.format("failedproducerequests"), "topic", IN_TOPIC),
                        "produce {{topic}}",
                    ),
                    (
                        rate(TRAFFIC.format("failedfetchrequests"), "topic", IN_TOPIC),
                        "fetch {{topic}}",
                    ),
                ),
            ),
            Panel(
                "Batches refused",
                "ops",
                "Record batches refused, by reason",
                ((rate("barnabas_rejected_batches_total", "reason"), "{{reason}}"),),
            ),
        ),
    ),
    (
        "Latency, 99th percentile",
        (
            Panel(
                "Produce",
                "ms",
                "From the last byte of the request to the last byte of the response",
                ((p99("total", "Produce"), "{{instance}}"),),
            ),
            Panel(
                "Produce, by part",
                "ms",
                "remote: it waited for followers or for the disk",
                tuple((p99(part, "Produce"), f"{part} {{{{instance}}}}") for part in PARTS),
            ),
            Panel(
                "Fetch by consumers",
                "ms",
                "With time that the request waits for new records (fetch.max.wait.ms)",
                ((p99("total", "FetchConsumer"), "{{instance}}"),),
            ),
            Panel(
                "Flush of logs",
                "ms",
                "Duration of a flush to the disk",
                (
                    (
                        "max by (instance) (kafka_log_logflushstats_logflushrateandtimems"
                        '{$on, quantile="0.99"})',
                        "{{instance}}",
                    ),
                ),
            ),
            Panel(
                "Idle threads",
                "percentunit",
                "Share of a minute in which threads wait for work; near 0 is too much load",
                (
                    (
                        "kafka_network_socketserver_networkprocessoravgidle_percent{$on}",
                        "network {{instance}}",
                    ),
                    (
                        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent{$on}",
                        "handlers {{instance}}",
                    ),
                ),
            ),
            Panel(
                "Requests that wait",
                "none",
                "Requests that wait for a request handler, and in purgatory",
                (
                    (
                        total("kafka_network_requestchannel_requestqueuesize", "instance"),
                        "queue {{instance}}",
                    ),
                    (
                        total(
                            "kafka_server_delayedoperationpurgatory_purgatorysize",
                            "delayedOperation",
                        ),
                        "{{delayedOperation}}",
                    ),
                ),
            ),
        ),
    ),
    (
        "Groups",
        (
            Panel(
                "Lag",
                "none",
                "Records between the committed offset and the high watermark",
                (
                    (
                        total("kafka_consumergroup_lag_sum", "consumergroup, topic"),
                        "{{consumergroup}} {{topic}}",
                    ),
                ),
            ),
            Panel(
                "Members",
                "none",
                "Members of each group",
                ((total("kafka_consumergroup_members", "consumergroup"), "{{consumergroup}}"),),
            ),
            Panel(
                "Groups",
                "none",
                "Groups by protocol, and those that rebalance",
                (
                    (
                        total("kafka_server_group_coordinator_metrics_group_count", "protocol"),
                        "{{protocol}}",
                    ),
                    (
                        "sum(kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance{$on})",
                        "rebalancing",
                    ),
                ),
            ),
        ),
    ),
    (
        "Connections",
        (
            Panel(
                "Connections",
                "none",
                "Open connections of each listener",
                ((total(f"{SOCKETS}connection_count", "listener"), "{{listener}}"),),
            ),
            Panel(
                "Connections closed",
                "ops",
                "Connections closed or refused, by reason",
                ((rate("barnabas_connections_closed_total", "reason"), "{{reason}}"),),
            ),
            Panel(
                "Logins",
                "ops",
                "Logins that failed, and first logins of connections",
                (
                    (
                        rate(f"{SOCKETS}failed_authentication_total", "listener"),
                        "failed {{listener}}",
                    ),
                    (rate(f"{SOCKETS}successful_authentication_total", "listener"), "{{listener}}"),
                ),
            ),
        ),
    ),
    (
        "Replication",
        (
            Panel(
                "In-sync replicas",
                "ops",
                "Replicas that left and joined the in-sync replicas",
                (
                    (rate(f"{REPLICAS}isrshrinks_total", "instance"), "left {{instance}}"),
                    (rate(f"{REPLICAS}isrexpands_total", "instance"), "joined {{instance}}"),
                ),
            ),
            Panel(
                "Largest lag of a follower",
                "none",
                "Records by which a followed partition is behind its leader",
                (
                    (
                        "max by (instance) (kafka_server_replicafetchermanager_maxlag{$on})",
                        "{{instance}}",
                    ),
                ),
            ),
            Panel(
                "Partitions that move",
                "none",
                "Partitions that are being reassigned",
                ((f"{REPLICAS}reassigningpartitions{{$on}}", "{{instance}}"),),
            ),
        ),
    ),
    (
        "Storage",
        (
            Panel(
                "Size of topics",
                "bytes",
                "Bytes of the segments of all replicas",
                ((total("kafka_log_log_size", "topic"), "{{topic}}"),),
            ),
            Panel(
                "Free disk",
                "bytes",
                "Bytes that the broker may still write to the disk of a log directory",
                (("barnabas_log_directory_free_bytes{$on}", "{{instance}} {{logDirectory}}"),),
            ),
            Panel(
                "Disk",
                "Bps",
                "Bytes that the process reads from and writes to storage devices",
                (
                    (
                        rate("kafka_server_kafkaserver_linux_disk_read_bytes", "instance"),
                        "read {{instance}}",
                    ),
                    (
                        rate("kafka_server_kafkaserver_linux_disk_write_bytes", "instance"),
                        "written {{instance}}",
                    ),
                ),
            ),
            Panel(
                "Compaction",
                "percent",
                "Largest dirty share of a log",
                (("kafka_log_logcleanermanager_max_dirty_percent{$on}", "{{instance}}"),),
            ),
        ),
    ),
    (
        "Process",
        (
            Panel(
                "CPU",
                "none",
                "Cores in use",
                ((rate("process_cpu_seconds_total", "instance"), "{{instance}}"),),
            ),
            Panel(
                "Memory",
                "bytes",
                "Resident memory, and bytes of requests in memory",
                (
                    ("process_resident_memory_bytes{$on}", "resident {{instance}}"),
                    ("kafka_network_socketserver_memorypoolused{$on}", "requests {{instance}}"),
                ),
            ),
            Panel(
                "Open files",
                "none",
                "Open file descriptors, and their limit",
                (
                    ("process_open_fds{$on}", "{{instance}}"),
                    ("process_max_fds{$on}", "limit {{instance}}"),
                ),
            ),
        ),
    ),
    (
        "Plugins",
        (
            Panel(
                "Calls",
                "ops",
                "Calls of hooks",
                ((rate("barnabas_plugin_calls_total", "plugin, hook"), "{{plugin}} {{hook}}"),),
            ),
            Panel(
                "Failures",
                "ops",
                "Calls that raised, returned an invalid value or took too long",
                ((rate("barnabas_plugin_failures_total", "plugin, hook"), "{{plugin}} {{hook}}"),),
            ),
            Panel(
                "Time",
                "s",
                "Seconds a second that callers waited for hooks",
                ((rate("barnabas_plugin_seconds_total", "plugin, hook"), "{{plugin}} {{hook}}"),),
            ),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    """Returns the dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, wanted in ROWS:
        panels.append(
            {
                "type": "row",
                "title": title,
                "collapsed": False,
                "gridPos": place(0, y, WIDTH, ROW_HEIGHT),
            }
        )
        y += ROW_HEIGHT
        stats = [panel for panel in wanted if isinstance(panel, Stat)]
        graphs = [panel for panel in wanted if isinstance(panel, Panel)]
        for found, count, height in (
            (stats, STATS_A_ROW, STAT_HEIGHT),
            (graphs, GRAPHS_A_ROW, GRAPH_HEIGHT),
        ):
            for first in range(0, len(found), count):
                for index, panel in enumerate(found[first : first + count]):
                    where = place(index * WIDTH // count, y, WIDTH // count, height)
                    panels.append(drawn(panel) | {"gridPos": where})
                y += height
    return {
        "title": "barnabas",
        "uid": "barnabas",
        "tags": ["barnabas", "kafka"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": variables()},
        "panels": [panel | {"id": number} for number, panel in enumerate(panels, 1)],
    }


def place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def drawn(panel: Panel | Stat) -> dict[str, Any]:
    common = {"title": panel.title, "description": panel.meaning, "datasource": DATASOURCE}
    if isinstance(panel, Stat):
        steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
        if panel.bad is not None:
            steps.append({"color": "red", "value": panel.bad})
        return common | {
            "type": "stat",
            "fieldConfig": {
                "defaults": {"unit": "none", "thresholds": {"mode": "absolute", "steps": steps}},
                "overrides": [],
            },
            "options": {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value"},
            "targets": [target(0, panel.expression, "")],
        }
    return common | {
        "type": "timeseries",
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list"}, "tooltip": {"mode": "multi"}},
        "targets": [target(index, *line) for index, line in enumerate(panel.lines)],
    }


def target(index: int, expression: str, legend: str) -> dict[str, Any]:
    return {
        "refId": chr(ord("A") + index),
        "datasource": DATASOURCE,
        "expr": expression.replace("$on", ON),
        "legendFormat": legend,
    }


def variables() -> list[dict[str, Any]]:
    """Returns the variables: the Prometheus server, the job and its brokers."""
    shown = [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    ]
    for name, label, labels, is_several in (
        ("job", "job", "", False),
        ("instance", "broker", '{job="$job"}', True),
    ):
        shown.append(
            {
                "name": name,
                "label": label,
                "type": "query",
                "datasource": DATASOURCE,
                "query": f"label_values(kafka_brokers{labels}, {name})",
                "refresh": 2,  # when the time range changes
                "sort": 1,
                "multi": is_several,
                "includeAll": is_several,
                "allValue": ".*" if is_several else None,
            }
        )
    return shown


def text() -> str:
    """Returns the content of barnabas.json."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    OUT.write_text(text())
