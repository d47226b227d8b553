"""etc/prometheus/alerts.yml: a broker has the metrics of each alert, and Prometheus raises the
alert when it should and not before."""

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from telemetry.conftest import watched
from telemetry.promql import absent, metrics_of, needs_promtool, promtool

from barnabas.cli import status

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "etc" / "prometheus"
ALERTS = FOLDER / "alerts.yml"
RULE = re.compile(r"- alert: (\w+)\n +expr: (.*)\n(?: +for: \w+\n)? +labels: \{severity: (\w+)\}")
RULES = {name: (expr, severity) for name, expr, severity in RULE.findall(ALERTS.read_text())}
OF_PROMETHEUS = {"up": set()}  # how the last scrape ended
BROKER = 'job="kafka", instance="one"'
SERVER = "kafka_server_"
REPLICAS = f"{SERVER}replicamanager_"
POOL = "kafka_network_socketserver_memorypool"


class Case(NamedTuple):
    """Series of an alert, one value a minute: those that raise it and those that do not. `at`:
    after how many minutes it is looked at. `more`: labels of the alert beside those of the broker.
    """

    raising: dict[str, str]
    quiet: dict[str, str]
    at: int = 30
    more: str = ""


def of(
    metric: str, raising: str, quiet: str, at: int = 30, more: str = "", labels: str = ""
) -> Case:
    """The case of an alert on one metric. `labels`: those of the series that the alert has not."""
    series = f"{metric}{{{', '.join(filter(None, (BROKER, more, labels)))}}}"
    return Case({series: raising}, {series: quiet}, at, more)


def on_broker(metric: str) -> str:
    return f"{metric}{{{BROKER}}}"


GROUP = 'consumergroup="readers"'
LAG = f'kafka_consumergroup_lag_sum{{{BROKER}, {GROUP}, topic="news"}}'
MEMBERS = f"kafka_consumergroup_members{{{BROKER}, {GROUP}}}"
GIGABYTE = 10**9
DIRECTORY = 'logDirectory="/data"'
FREE = f"barnabas_log_directory_free_bytes{{{BROKER}, {DIRECTORY}}}"
DISK = f"barnabas_log_directory_disk_bytes{{{BROKER}, {DIRECTORY}}}"
CONTROLLER = "kafka_controller_kafkacontroller_"
CASES = {
    "BarnabasDown": of("up", "1x20 0x10", "1x28 0x2"),
    "BarnabasNotServing": of(f"{SERVER}kafkaserver_brokerstate", "2x30", "2x8 3x30"),
    "BarnabasRestarts": of("process_start_time_seconds", "1x5 2x5 3x5 4x20", "1x10 2x10 3x20"),
    "BarnabasNoController": Case(
        {on_broker(f"{CONTROLLER}activecontrollercount"): "0x30"},
        {
            on_broker(f"{CONTROLLER}activecontrollercount"): "1x30",
            f'{CONTROLLER}activecontrollercount{{job="kafka", instance="two"}}': "0x30",
        },
    ),
    "BarnabasOfflinePartitions": of(f"{CONTROLLER}offlinepartitionscount", "0x20 3x10", "0x30"),
    "BarnabasUncleanElection": of(
        "kafka_controller_controllerstats_uncleanleaderelections_total", "0x10 1x30", "4x40"
    ),
    "BarnabasUnderMinIsr": of(f"{REPLICAS}underminisrpartitioncount", "2x30", "2x10 0x30"),
    "BarnabasUnderReplicated": of(f"{REPLICAS}underreplicatedpartitions", "2x30", "0x20 2x20"),
    "BarnabasLogDirectoryFailed": of(
        "kafka_log_logmanager_offlinelogdirectorycount", "0x20 1x20", "0x40"
    ),
    "BarnabasDiskCallsFail": of("barnabas_log_failed_disk_calls_total", "0x27 2x20", "2x40"),
    "BarnabasDiskNearlyFull": Case(
        {FREE: f"{4 * GIGABYTE}x40", DISK: f"{100 * GIGABYTE}x40"},
        {FREE: f"{11 * GIGABYTE}x40", DISK: f"{1000 * GIGABYTE}x40"},
        more=DIRECTORY,
    ),
    "BarnabasCleanerFails": of(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "1x40",
        "0x40",
        labels='logDirectory="/data"',
    ),
    "BarnabasProduceFails": of(
        f"{SERVER}brokertopicmetrics_failedproducerequests_total", "0+60x40", "0+1x40"
    ),
    "BarnabasProduceSlow": of(
        "kafka_network_requestmetrics_totaltimems",
        "2000x40",
        "800x40",
        more='request="Produce", quantile="0.99"',
    ),
    "BarnabasThreadsBusy": of(
        "kafka_network_socketserver_networkprocessoravgidle_percent", "0.02x40", "0.6x40"
    ),
    "BarnabasRequestMemoryFull": Case(
        {on_broker(f"{POOL}available"): "5x40", on_broker(f"{POOL}used"): "95x40"},
        {on_broker(f"{POOL}available"): "95x40", on_broker(f"{POOL}used"): "5x40"},
    ),
    "BarnabasFewFilesLeft": Case(
        {on_broker("process_open_fds"): "90x40", on_broker("process_max_fds"): "100x40"},
        {on_broker("process_open_fds"): "50x40", on_broker("process_max_fds"): "100x40"},
    ),
    "BarnabasLoginsFail": of(
        f"{SERVER}socket_server_metrics_failed_authentication_total",
        "0+120x40",
        "0+6x40",
        more='listener="SASL_SSL"',
    ),
    "BarnabasGroupFallsBehind": Case(
        {LAG: "2000+100x60"}, {LAG: "9000-100x60"}, 50, f'{GROUP}, topic="news"'
    ),
    "BarnabasGroupWithoutMembers": Case(
        {LAG: "5x80", MEMBERS: "0x80"}, {LAG: "5x80", MEMBERS: "1x80"}, 75, GROUP
    ),
    "BarnabasPluginOff": of("barnabas_plugin_runs", "1x20 0x20", "1x40", more='plugin="audit"'),
}
# Alerts on the cluster have no label of a broker.
OF_CLUSTER = ("BarnabasNoController", "BarnabasOfflinePartitions")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with watched(tmp_path_factory.mktemp("page")) as broker:
        broker.produce("news")
        yield broker.page()


def test_every_alert_has_a_case_and_a_line_in_the_documentation():
    names = re.findall(r"alert: (\w+)", ALERTS.read_text())
    assert list(RULES) == names == list(CASES)
    documented = (ROOT / "docs" / "monitoring.md").read_text()
    assert [name for name in names if f"| `{name}` |" not in documented] == []


@pytest.mark.parametrize("name", RULES)
def test_a_broker_has_the_metrics_of_each_alert(name, page):
    wanted = metrics_of(RULES[name][0])
    if wanted == OF_PROMETHEUS:
        return
    assert wanted and absent(wanted, page) == []


def test_the_alert_on_a_full_disk_has_the_limits_of_barnabas_status():
    expression = RULES["BarnabasDiskNearlyFull"][0]
    assert f" < {status.FREE_BYTES_MIN} and " in expression
    assert f" < {status.FREE_PART_MIN} * " in expression


@pytest.mark.parametrize("name", CASES)
def test_the_cases_use_metrics_of_the_alert(name):
    used = set().union(*(metrics_of(series) for series in CASES[name].raising))
    assert used <= metrics_of(RULES[name][0]).keys()


def raised(name: str, case: Case) -> dict[str, object]:
    """The alert as Prometheus' series ALERTS shows it."""
    labels = ['job="kafka"'] if name in OF_CLUSTER else [BROKER]
    labels += [case.more] if case.more else []
    severity = RULES[name][1]
    text = f'ALERTS{{alertname="{name}", alertstate="firing", severity="{severity}"'
    return {"labels": f"{text}, {', '.join(labels)}}}", "value": 1}


def unit_test(name: str, case: Case, series: dict[str, str], is_raised: bool) -> dict[str, object]:
    """A unit test of promtool: the series, and whether the alert fires."""
    return {
        "name": f"{name} {'fires' if is_raised else 'is quiet'}",
        "interval": "1m",
        "input_series": [{"series": key, "values": value} for key, value in series.items()],
        "promql_expr_test": [
            {
                "expr": f'ALERTS{{alertname="{name}", alertstate="firing"}}',
                "eval_time": f"{case.at}m",
                "exp_samples": [raised(name, case)] if is_raised else [],
            }
        ],
    }


def run_unit_tests(tmp_path: Path, tests: list[dict[str, object]]):
    path = tmp_path / "tests.yml"
    path.write_text(json.dumps({"rule_files": [str(ALERTS)], "tests": tests}))
    return promtool("test", "rules", path)


@needs_promtool
def test_prometheus_reads_the_rules_and_its_settings(tmp_path):
    done = promtool("check", "rules", ALERTS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(RULES)} rules found" in done.stdout
    done = promtool("check", "config", FOLDER / "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_when_it_should_and_not_before(tmp_path, name):
    case = CASES[name]
    tests = [
        unit_test(name, case, case.raising, True),
        unit_test(name, case, case.quiet, False),
    ]
    done = run_unit_tests(tmp_path, tests)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_an_alert_that_does_not_fire_fails_its_unit_test(tmp_path):
    case = CASES["BarnabasDown"]
    done = run_unit_tests(tmp_path, [unit_test("BarnabasDown", case, case.quiet, True)])
    assert done.returncode != 0
