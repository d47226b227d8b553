"""The text of the metrics page, and the names that are derived from MBeans."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle.exposition import read_page, rows_of, value_of

from barnabas.telemetry.exposition import LINES_A_PIECE, write_page
from barnabas.telemetry.registry import (
    COUNTER,
    GAUGE,
    SUMMARY,
    Metric,
    Page,
    Registry,
    Summary,
    of_mbean,
)

THINGS = Metric("things_total", COUNTER, ("name",), "Things, \\ and\nmore")


def written(families, dialect="jmx"):
    return b"".join(write_page(families, Page(dialect, 0))).decode()


@given(st.dictionaries(st.text(min_size=1), st.integers(0, 2**63), max_size=20))
def test_any_label_value_comes_back(values):
    page = Page("jmx", 0)
    samples = [(page.labels(name=name), value) for name, value in values.items()]
    found = read_page(written([(THINGS, samples)]))
    got = {labels["name"]: value for labels, value in rows_of(found, "things_total")}
    assert got == {name: float(value) for name, value in values.items()}


def test_numbers_are_spelt_as_go_reads_them():
    page = Page("jmx", 0)
    gauge = Metric("g", GAUGE, ("n",), "A gauge")
    values = [True, 0.1, 3, float("inf"), float("-inf"), float("nan"), 1e-9]
    text = written([(gauge, [(page.labels(n=i), v) for i, v in enumerate(values)])])
    spelt = [line.split(" ")[1] for line in text.splitlines() if not line.startswith("#")]
    assert spelt == ["1", "0.1", "3", "+Inf", "-Inf", "NaN", "1e-09"]


def test_a_summary_has_quantiles_sum_and_count():
    metric = Metric("t", SUMMARY, ("request",), "Times")
    value = Summary((1.0, 2.0, 3.0, 4.0, 5.0, 6.0), 7, 8.5)
    labels = Page("jmx", 0).labels(request="Fetch")
    found = read_page(written([(metric, [(labels, value), ("", value)])]))
    assert value_of(found, "t", request="Fetch", quantile="0.999") == 6.0
    assert value_of(found, "t", quantile="0.50") == 1.0
    assert value_of(found, "t_count", request="Fetch") == 7
    assert value_of(found, "t_sum") == 8.5


def test_a_page_comes_in_pieces():
    page = Page("jmx", 0)
    samples = [(page.labels(name=i), i) for i in range(3 * LINES_A_PIECE)]
    pieces = list(write_page([(THINGS, samples)], page))
    assert len(pieces) == 4
    assert all(piece.count(b"\n") <= LINES_A_PIECE for piece in pieces)
    assert len(rows_of(read_page(b"".join(pieces).decode()), "things_total")) == len(samples)


@pytest.mark.parametrize(
    ("mbean", "jmx", "confluent"),
    [
        (
            "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec",
            "kafka_server_brokertopicmetrics_messagesin_total",
            "kafka_server_brokertopicmetrics_messagesinpersec",
        ),
        (
            "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent",
            "kafka_network_socketserver_networkprocessoravgidle_percent",
            "kafka_network_socketserver_networkprocessoravgidlepercent",
        ),
        (
            "kafka.server:type=socket-server-metrics,attribute=connection-count",
            "kafka_server_socket_server_metrics_connection_count",
            "kafka_server_socketservermetrics_connection_count",
        ),
        (
            "kafka.server:type=KafkaServer,name=linux-disk-read-bytes",
            "kafka_server_kafkaserver_linux_disk_read_bytes",
            "kafka_server_kafkaserver_linux_disk_read_bytes",
        ),
        (
            "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups",
            "kafka_coordinator_group_groupmetadatamanager_numgroups",
            "kafka_coordinator_group_groupmetadatamanager_numgroups",
        ),
    ],
)
def test_both_dialects_follow_from_the_mbean(mbean, jmx, confluent):
    metric = of_mbean(mbean, GAUGE, "Something")
    assert metric.names("jmx") == (jmx,)
    assert metric.names("confluent") == (confluent,)


def test_labels_of_confluent_are_lower_case():
    assert Page("confluent", 0).labels(networkProcessor=0, logDirectory="d", x=None) == (
        '{network_processor="0",logdirectory="d"}'
    )


def test_a_package_adds_a_collector():
    registry = Registry()
    registry.add(lambda page: [(THINGS, [(page.labels(name="lag"), 5)])])
    page = Page("jmx", 0)
    found = read_page(b"".join(write_page(registry.families(page), page)).decode())
    assert value_of(found, "things_total", name="lag") == 5


@pytest.mark.parametrize(
    "text",
    [
        "x 1\n",
        "# HELP x y\n# TYPE x counter\nx -1\n",
        "# HELP x y\n# TYPE x gauge\ny 1\n",
        "# HELP x y\n# TYPE x gauge\nx 1\nx 1\n",
        '# HELP x y\n# TYPE x gauge\nx{a="b} 1\n',
        "# HELP x y\n# TYPE x gauge\nx 1",
    ],
)
def test_the_reader_refuses_a_bad_page(text):
    with pytest.raises(ValueError, match=".+"):
        read_page(text)
