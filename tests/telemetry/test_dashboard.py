"""etc/grafana/barnabas.json is what its script writes, and a broker has each of its metrics."""

import json
import runpy
from pathlib import Path

import pytest
from telemetry.conftest import watched
from telemetry.promql import absent, metrics_of, needs_promtool, promtool

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "etc" / "grafana" / "dashboard.py"
MADE = runpy.run_path(str(SCRIPT))
PANELS = [panel for panel in MADE["dashboard"]()["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with watched(tmp_path_factory.mktemp("page")) as broker:
        broker.produce("orders", count=5)
        broker.consume("orders", 5)
        yield broker.page()


def test_the_dashboard_is_what_its_script_writes():
    assert MADE["OUT"].read_text() == MADE["text"](), f"run python {SCRIPT}"
    assert json.loads(MADE["text"]())["uid"] == "barnabas"


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_broker_has_the_metrics_of_each_panel(panel, page):
    for target in panel["targets"]:
        wanted = metrics_of(target["expr"])
        assert wanted and absent(wanted, page) == [], target["expr"]


def test_an_absent_metric_or_label_is_found(page):
    wanted = metrics_of('sum by (topic) (rate(kafka_absent{job="$job", quantile="0.5"}[5m]))')
    assert wanted == {"kafka_absent": {"topic", "quantile"}}
    assert absent(wanted, page) == ["kafka_absent"]
    assert absent(metrics_of("sum by (topic) (kafka_brokers)"), page) == ["kafka_brokers: topic"]


def test_every_expression_selects_the_brokers_that_the_variables_choose():
    for expression in EXPRESSIONS:
        for name in metrics_of(expression):
            assert f"{name}{{{MADE['ON']}" in expression, expression


def test_panels_do_not_overlap():
    taken: set[tuple[int, int]] = set()
    for panel in MADE["dashboard"]()["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells


@needs_promtool
def test_prometheus_reads_every_expression(tmp_path):
    rules = [
        {"record": f"panel:{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, expression in enumerate(EXPRESSIONS)
    ]
    path = tmp_path / "rules.yml"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    done = promtool("check", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(EXPRESSIONS)} rules found" in done.stdout
