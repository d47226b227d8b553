"""The metrics of dashboards exist and have data, and docs/metrics.md lists them all."""

import io
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from oracle.exposition import rows_of
from telemetry.conftest import watched

from barnabas.cli import metrics_reference

ROOT = Path(__file__).resolve().parents[2]

# Strimzi's Kafka dashboard, panel by panel: the metrics of its query, and the labels it selects or
# groups by. Names and labels only; labels that Prometheus adds to a target are left out.
KAFKA_DASHBOARD = {
    "Brokers Online": ("kafka_server_replicamanager_leadercount", ()),
    "Active Controllers": ("kafka_controller_kafkacontroller_activecontrollercount", ()),
    "Unclean Leader Election Rate": (
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        (),
    ),
    "Online Replicas": ("kafka_server_replicamanager_partitioncount", ()),
    "Under Replicated Partitions": ("kafka_server_replicamanager_underreplicatedpartitions", ()),
    "Partitions at minimum ISR": ("kafka_cluster_partition_atminisr", ()),
    "Partitions under minimum ISR": ("kafka_cluster_partition_underminisr", ()),
    "Offline Partitions Count": ("kafka_controller_kafkacontroller_offlinepartitionscount", ()),
    "Open File Descriptors": ("process_open_fds", ()),
    "Total Incoming Byte Rate": ("kafka_server_brokertopicmetrics_bytesin_total", ("topic",)),
    "Total Outgoing Byte Rate": ("kafka_server_brokertopicmetrics_bytesout_total", ("topic",)),
    "Incoming Messages Rate": ("kafka_server_brokertopicmetrics_messagesin_total", ("topic",)),
    "Total Produce Request Rate": (
        "kafka_server_brokertopicmetrics_totalproducerequests_total",
        ("topic",),
    ),
    "Produce Request Rate (failed)": (
        "kafka_server_brokertopicmetrics_failedproducerequests_total",
        ("topic",),
    ),
    "Fetch Request Rate": ("kafka_server_brokertopicmetrics_totalfetchrequests_total", ("topic",)),
    "Fetch Request Rate (failed)": (
        "kafka_server_brokertopicmetrics_failedfetchrequests_total",
        ("topic",),
    ),
    "Network Processor Avg Idle Percent": (
        "kafka_network_socketserver_networkprocessoravgidle_percent",
        (),
    ),
    "Request Handler Avg Idle Percent": (
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        (),
    ),
    "Disk Writes": ("kafka_server_kafkaserver_linux_disk_write_bytes", ()),
    "Disk Reads": ("kafka_server_kafkaserver_linux_disk_read_bytes", ()),
    "Connection Count per Listener": (
        "kafka_server_socket_server_metrics_connection_count",
        ("listener",),
    ),
    "Log Size": ("kafka_log_log_size", ("topic", "partition")),
    "variable kafka_topic": ("kafka_cluster_partition_replicascount", ("topic",)),
}
# Its panels without data here, and why.
NOT_HERE = {
    "Memory Usage": "container_memory_usage_bytes is the container runtime's",
    "CPU Usage": "container_cpu_usage_seconds_total is the container runtime's",
    "Available Disk Space": "kubelet_volume_stats_available_bytes is Kubernetes'",
    "JVM Memory Used": "there is no JVM; process_resident_memory_bytes tells of the process",
    "JVM GC Time": "there is no JVM",
    "JVM GC Count": "there is no JVM",
    "JVM Thread Count": "there is no JVM; process_threads tells of the process",
}
# Strimzi's Kafka Exporter dashboard; the coordinator of groups exports its two metrics of consumer
# groups.
EXPORTER_DASHBOARD = {
    "Topics": ("kafka_topic_partitions", ("topic",)),
    "Replicas": ("kafka_topic_partition_replicas", ("topic",)),
    "In Sync Replicas": ("kafka_topic_partition_in_sync_replica", ("topic",)),
    "Under Replicated": ("kafka_topic_partition_under_replicated_partition", ("topic",)),
    "Partitions at minimum ISR": ("kafka_cluster_partition_atminisr", ("topic",)),
    "Partitions under minimum ISR": ("kafka_cluster_partition_underminisr", ("topic",)),
    "Not on preferred node": ("kafka_topic_partition_leader_is_preferred", ("topic",)),
    "Messages in per second": ("kafka_topic_partition_current_offset", ("topic", "partition")),
    "Oldest Offsets": ("kafka_topic_partition_oldest_offset", ("topic", "partition")),
    "variable namespace": ("kafka_broker_info", ()),
}
# Confluent's kafka-cluster dashboard, in its own dialect: what one node has.
REQUEST_TIMES = ("requestqueue", "local", "remote", "responsequeue", "responsesend", "total")
CONFLUENT_DASHBOARD = {
    "kafka_controller_kafkacontroller_activecontrollercount": (),
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount": (),
    "kafka_controller_controllerstats_uncleanleaderelectionspersec": (),
    "kafka_controller_kafkacontroller_offlinepartitionscount": (),
    "kafka_server_replicamanager_leadercount": (),
    "kafka_server_replicamanager_isrshrinkspersec": (),
    "kafka_server_replicamanager_isrexpandspersec": (),
    "kafka_server_brokertopicmetrics_bytesinpersec": ("topic",),
    "kafka_server_brokertopicmetrics_bytesoutpersec": ("topic",),
    "kafka_server_brokertopicmetrics_messagesinpersec": ("topic",),
    "kafka_network_requestmetrics_requestspersec": ("request",),
    "kafka_network_requestmetrics_errorspersec": ("error",),
    "kafka_network_requestchannel_requestqueuesize": (),
    "kafka_network_requestchannel_responsequeuesize": (),
    "kafka_network_socketserver_networkprocessoravgidlepercent": (),
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total": (),
    "kafka_server_fetchsessioncache_numincrementalfetchsessions": (),
    "kafka_server_fetchsessioncache_incrementalfetchsessionevictionspersec": (),
    "kafka_server_socketservermetrics_connection_count": ("listener",),
    "kafka_server_socketservermetrics_connection_creation_rate": ("listener",),
    "kafka_server_kafkaserver_linux_disk_read_bytes": (),
    "kafka_log_log_size": ("topic",),
    "process_cpu_seconds_total": (),
} | {
    f"kafka_network_requestmetrics_{part}timems": ("request", "quantile") for part in REQUEST_TIMES
}


def used(path, **settings):
    """The metrics page of a broker after some produces and fetches."""
    with watched(path, **settings) as broker:
        broker.produce("orders", count=5)
        broker.consume("orders", 5)
        return broker.page()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return used(tmp_path_factory.mktemp("jmx"))


@pytest.fixture(scope="module")
def confluent_page(tmp_path_factory):
    return used(tmp_path_factory.mktemp("confluent"), metrics_dialect="confluent")


def without_data(found, wanted):
    """Names among `wanted` that have no sample with all of their labels."""
    return [
        name
        for name, labels in wanted
        if not any(set(labels) <= set(row) for row, _ in rows_of(found, name))
    ]


def test_every_panel_of_strimzis_dashboards_has_data(page):
    wanted = [*KAFKA_DASHBOARD.values(), *EXPORTER_DASHBOARD.values()]
    assert without_data(page, wanted) == []
    assert without_data(page, [("kafka_absent", ()), ("kafka_brokers", ("topic",))]) != []


def test_panels_that_count_traffic_have_counted_it(page):
    for name in ("bytesin", "bytesout", "messagesin", "totalproducerequests", "totalfetchrequests"):
        rows = rows_of(page, f"kafka_server_brokertopicmetrics_{name}_total")
        assert [n > 0 for row, n in rows if row == {"topic": "orders"}] == [True]


def test_confluents_dashboard_has_data(confluent_page):
    assert without_data(confluent_page, CONFLUENT_DASHBOARD.items()) == []


def test_a_panel_is_here_or_has_a_reason():
    assert not KAFKA_DASHBOARD.keys() & NOT_HERE.keys()
    assert len(KAFKA_DASHBOARD) + len(NOT_HERE) == 30


def test_the_reference_lists_what_the_page_shows(page, confluent_page):
    listed = metrics_reference.metrics()
    assert {metric.name for metric in listed} == page.keys()
    names = {name for metric in listed for name in metric.names("confluent")}
    assert names == confluent_page.keys()
    kinds = {metric.name: metric.kind for metric in listed}
    assert {name: family.kind for name, family in page.items()} == kinds


def test_labels_are_those_that_the_reference_says(page):
    allowed = {metric.name: {*metric.labels} for metric in metrics_reference.metrics()}
    for family in page.values():
        for _, labels in family.samples:
            extra = {"quantile"} if family.kind == "summary" else set()
            assert {name for name, _ in labels} <= allowed[family.name] | extra, family.name


def test_docs_metrics_is_current():
    printed = io.StringIO()
    with redirect_stdout(printed):
        print(metrics_reference.page(), end="")
    assert (ROOT / "docs" / "metrics.md").read_text() == printed.getvalue()


def test_mbeans_are_kafkas():
    """A typing error in an MBean would make a name that no dashboard uses."""
    wrong = [
        metric.mbean
        for metric in metrics_reference.metrics()
        if metric.mbean and not metric.mbean.startswith("kafka.")
    ]
    assert wrong == []
    names = [metric.name for metric in metrics_reference.metrics()]
    assert len(names) == len(set(names))
