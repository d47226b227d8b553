"""The metrics of a broker that replicates: rates of throttled replicas, and its followers' lag."""

from types import SimpleNamespace

import pytest

from barnabas.config import BrokerConfig, DynamicConfig
from barnabas.server.replication_throttles import ReplicationThrottles
from barnabas.telemetry.registry import Page
from barnabas.telemetry.replication_metrics import BETWEEN_BROKERS, ReplicationCollector

NOW_MS = 5000


def collected(throttles, rows):
    """The values by metric. `rows`: leader, leader epoch, lag, waits; of each partition."""
    fetchers = None if rows is None else SimpleNamespace(states=lambda: dict(enumerate(rows)))
    replicas = SimpleNamespace(throttles=throttles, fetchers=fetchers)
    logs = SimpleNamespace(futures=list, failed_moves=set())
    page = Page("confluent", NOW_MS * 1_000_000)
    found = ReplicationCollector(replicas, logs, lambda: page.now_ns)(page)
    values = {metric: [value for _labels, value in rows] for metric, rows in found}
    return {metric: values[metric] for metric in BETWEEN_BROKERS}


def test_a_single_node_has_no_samples():
    assert collected(None, None) == {metric: [] for metric in BETWEEN_BROKERS}


@pytest.mark.parametrize(
    ("rows", "lag", "failed"),
    [
        ([], 0, 0),
        ([(2, 1, -1, False)], 0, 0),  # no answer yet
        ([(2, 1, 7, False), (3, 1, 40, True), (3, 4, -1, True)], 40, 2),
    ],
)
def test_rates_and_lag_of_followers(rows, lag, failed):
    throttles = ReplicationThrottles(1, DynamicConfig(BrokerConfig({}), node_id=1))
    throttles.leader.note(3000, NOW_MS)
    found = collected(throttles, rows)
    assert [found[metric] for metric in BETWEEN_BROKERS] == [[3000], [0], [lag], [failed]]
