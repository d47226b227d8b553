"""The metrics page of a broker in use: each metric equals what the test did."""

import json
import math
import os
import socket
import struct
import threading
import time

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from oracle.exposition import rows_of, value_of
from reactor.network import request, response
from telemetry.conftest import watched
from waiting import soon

pytestmark = pytest.mark.takes(seconds=25)

TOPIC = "kafka_server_brokertopicmetrics_"
REQUESTS = "kafka_network_requestmetrics_"


def test_records_and_bytes_by_topic(broker):
    broker.produce("orders", count=30, size_bytes=1000)
    broker.produce("others", count=2)
    broker.consume("orders", 30)
    page = broker.page()
    assert value_of(page, TOPIC + "messagesin_total", topic="orders") == 30
    assert value_of(page, TOPIC + "messagesin_total", topic="others") == 2
    assert value_of(page, TOPIC + "messagesin_total") == 32
    taken = value_of(page, TOPIC + "bytesin_total", topic="orders")
    assert 30_000 < taken < 33_000
    assert value_of(page, TOPIC + "bytesout_total", topic="orders") == taken
    assert value_of(page, TOPIC + "bytesout_total", topic="others") == 0
    assert value_of(page, "kafka_log_log_size", topic="orders", partition="0") == taken
    assert value_of(page, "kafka_log_log_logendoffset", topic="orders", partition="0") == 30
    assert (
        value_of(page, "kafka_topic_partition_current_offset", topic="orders", partition="0") == 30
    )
    assert value_of(page, TOPIC + "totalproducerequests_total") == value_of(
        page, TOPIC + "totalproducerequests_total", topic="orders"
    ) + value_of(page, TOPIC + "totalproducerequests_total", topic="others")


def test_a_deleted_topic_goes_and_the_sum_stays(broker):
    broker.produce("gone", count=5)
    broker.produce("stays", count=7)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.delete_topics(["gone"]).values():
        future.result(20)
    page = broker.page()
    topics = {row["topic"] for row, _ in rows_of(page, TOPIC + "messagesin_total") if row}
    assert topics == {"stays"}
    assert value_of(page, TOPIC + "messagesin_total") == 12
    broker.produce("gone", count=1)
    page = broker.page()
    assert value_of(page, TOPIC + "messagesin_total", topic="gone") == 1
    assert value_of(page, TOPIC + "messagesin_total") == 13


def test_sums_never_shrink_while_topics_come_and_go(broker):
    stop = threading.Event()

    def churn():
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        while not stop.is_set():
            broker.produce("churn", count=3)
            for future in admin.delete_topics(["churn"]).values():
                future.result(20)

    worker = threading.Thread(target=churn)
    worker.start()
    try:
        seen = [value_of(broker.page(), TOPIC + "messagesin_total") for _ in range(40)]
    finally:
        stop.set()
        worker.join()
    assert seen == sorted(seen)
    assert seen[-1] > seen[0]


def test_refused_batches(broker):
    broker.produce("orders")
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "message.max.bytes": 5_000_000, "retries": 0}
    )
    errors = []
    producer.produce("orders", b"x" * 3_000_000, callback=lambda error, _: errors.append(error))
    producer.flush(20)
    assert errors[0] is not None
    page = broker.page()
    assert value_of(page, TOPIC + "bytesrejected_total", topic="orders") > 3_000_000
    assert value_of(page, "barnabas_rejected_batches_total", reason="too_large") == 1
    assert value_of(page, TOPIC + "failedproducerequests_total") == 0  # normal: not failed
    assert (
        value_of(page, REQUESTS + "errors_total", request="Produce", error="MESSAGE_TOO_LARGE") == 1
    )
    assert value_of(page, REQUESTS + "errors_total", request="Produce", error="NONE") == 1


def test_requests_by_version_with_their_times(broker):
    count = 60  # so that the first one, which is slower, does not matter
    broker.produce("orders", count=count, **{"linger.ms": 0, "batch.num.messages": 1})
    # A request is counted before its answer is sent, and its times after that.
    sent = REQUESTS + "responsesendtimems_count"
    soon(lambda: value_of(broker.page(), sent, request="Produce") == count)
    page = broker.page()
    versions = rows_of(page, REQUESTS + "requests_total")
    produced = sum(n for row, n in versions if row["request"] == "Produce")
    assert produced == count
    for part in (
        "totaltimems",
        "requestqueuetimems",
        "localtimems",
        "remotetimems",
        "responsequeuetimems",
        "responsesendtimems",
    ):
        assert value_of(page, f"{REQUESTS}{part}_count", request="Produce") == produced

    def total(part, request):
        return value_of(page, f"{REQUESTS}{part}_sum", request=request)

    # acks=all under fsync: the time is in the wait for the disk.
    assert 0 < total("localtimems", "Produce") < total("remotetimems", "Produce")
    for name in ("Produce", "Metadata", "ApiVersions"):
        parts = ("requestqueue", "local", "remote", "responsequeue", "responsesend")
        together = sum(total(f"{part}timems", name) for part in parts)
        assert total("totaltimems", name) == pytest.approx(together, rel=0.2, abs=0.3)
    names = {row["request"] for row, _ in versions}
    assert {"Produce", "Metadata", "ApiVersions"} <= names
    quantiles = [
        value_of(page, REQUESTS + "totaltimems", request="Produce", quantile=q)
        for q in ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
    ]
    assert quantiles == sorted(quantiles) and quantiles[0] > 0
    assert math.isnan(
        value_of(page, REQUESTS + "totaltimems", request="FetchFollower", quantile="0.50")
    )


def test_errors_of_the_python_path(broker):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for expected in (None, "TOPIC_ALREADY_EXISTS"):
        (future,) = admin.create_topics([NewTopic("twice", 3, 1)]).values()
        if expected is None:
            future.result(20)
        else:
            with pytest.raises(KafkaException):
                future.result(20)
    (future,) = admin.create_partitions([NewPartitions("absent", 3)]).values()
    with pytest.raises(KafkaException):
        future.result(20)
    page = broker.page()

    def errors(name):
        rows = rows_of(page, REQUESTS + "errors_total")
        return {row["error"]: n for row, n in rows if row["request"] == name}

    assert errors("CreateTopics") == {"NONE": 1, "TOPIC_ALREADY_EXISTS": 1}
    assert errors("CreatePartitions") == {"UNKNOWN_TOPIC_OR_PARTITION": 1}


def test_a_fetch_that_waits_is_in_purgatory(broker):
    broker.produce("orders")
    consumer_waits = {"delayedOperation": "Fetch"}
    with socket.create_connection(("127.0.0.1", broker.node.listening[0].port)) as client:
        body = struct.pack(">iiiibi", -1, 30_000, 1, 1000, 0, 1)
        body += struct.pack(">h6si", 6, b"orders", 1) + struct.pack(">iqi", 0, 1, 1000)
        client.sendall(request(7, body, key=1, version=4))
        size = "kafka_server_delayedoperationpurgatory_purgatorysize"
        soon(lambda: value_of(broker.page(), size, **consumer_waits) == 1)
        broker.node.clock.move(30_000)
        response(client)
    page = broker.page()
    assert (
        value_of(page, "kafka_server_delayedoperationpurgatory_purgatorysize", **consumer_waits)
        == 0
    )
    assert value_of(page, REQUESTS + "remotetimems_sum", request="FetchConsumer") > 1000
    assert (
        value_of(page, "kafka_server_delayedfetchmetrics_expires_total", fetcherType="consumer")
        == 1
    )


def test_connections_and_idle_threads(broker):
    def connections():
        name = "kafka_server_socket_server_metrics_connection_count"
        return sum(n for row, n in rows_of(broker.page(), name) if row["listener"] == "PLAINTEXT")

    before = connections()
    clients = [
        socket.create_connection(("127.0.0.1", broker.node.listening[0].port)) for _ in range(5)
    ]
    soon(lambda: connections() == before + 5)
    page = broker.page()
    for client in clients:
        client.close()
    idle = value_of(page, "kafka_network_socketserver_networkprocessoravgidle_percent")
    handlers = value_of(page, "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent")
    assert 0.5 < idle <= 1 and 0.5 < handlers <= 1
    made = value_of(
        page, "kafka_server_socket_server_metrics_connection_creation_total", listener="PLAINTEXT"
    )
    assert made >= 5


def test_flushes_are_timed(broker):
    broker.produce("orders", count=1, acks="all")
    name = "kafka_log_logflushstats_logflushrateandtimems"
    soon(lambda: value_of(broker.page(), name + "_count") >= 1)  # timed after the answer
    assert value_of(broker.page(), name, quantile="0.99") > 0


def test_metrics_dialect_is_confluents(tmp_path):
    with watched(tmp_path, metrics_dialect="confluent") as broker:
        assert broker.node.config.text("metrics.dialect") == "confluent"
        broker.produce("orders", count=4)
        page = broker.page()
    assert value_of(page, TOPIC + "messagesinpersec", topic="orders") == 4
    assert TOPIC + "messagesin_total" not in page
    rows = rows_of(page, "kafka_server_socketservermetrics_connection_count")
    assert all(set(row) == {"listener", "network_processor"} for row, _ in rows) and rows
    pool = "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_"
    assert value_of(page, pool + "total") == value_of(page, pool + "oneminuterate")


def test_metrics_max_partitions_leaves_out_each_partition(tmp_path):
    with watched(tmp_path, num_partitions=3, metrics_max_partitions=3) as broker:
        broker.produce("one")
        page = broker.page()
        assert value_of(page, "barnabas_partition_metrics") == 1
        assert len(rows_of(page, "kafka_log_log_size")) == 3
        broker.produce("two")
        page = broker.page()
        assert broker.node.config.integer("metrics.max.partitions") == 3
        assert value_of(page, "barnabas_partition_metrics") == 0
        assert rows_of(page, "kafka_log_log_size") == []
        assert value_of(page, "kafka_server_replicamanager_partitioncount") == 6
        assert value_of(page, "kafka_server_replicamanager_underreplicatedpartitions") == 0


def test_the_size_and_the_free_space_of_each_disk(tmp_path):
    directories = [str(tmp_path / name) for name in ("one", "two")]
    with watched(tmp_path, log_dirs=",".join(directories)) as broker:
        page = broker.page()
    volume = os.statvfs(tmp_path)
    size = volume.f_blocks * volume.f_frsize
    for path in directories:
        found = value_of(page, "barnabas_log_directory_disk_bytes", logDirectory=path)
        assert found == size
        free = value_of(page, "barnabas_log_directory_free_bytes", logDirectory=path)
        # Others write to this disk too.
        assert free == pytest.approx(volume.f_bavail * volume.f_frsize, abs=size / 50)


def test_offline_logs_and_replicas_out_of_sync_are_seen(broker):
    """The metrics follow the partition table, whatever changed it."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic("t", 4, 1)]).values():
        future.result(20)
    table, node = broker.node.loaded.replicas._table, broker.node.node_id
    table.remove_partition("t", 1)
    table.add_partition("t", 1, None, leader_epoch=0, replicas=(node, 8, 9), isr=(node,))
    table.remove_partition("t", 2)
    table.add_partition("t", 2, None, leader_epoch=0, replicas=(node, 8, 9), isr=(node, 8))
    table.set_policy("t", min_insync_replicas=2)
    table.set_leader("t", 3, leader_id=node + 1, leader_epoch=5)
    page = broker.page()

    def manager(name):
        return value_of(page, f"kafka_server_replicamanager_{name}")

    assert manager("partitioncount") == 4
    assert manager("leadercount") == 3
    assert manager("underreplicatedpartitions") == 2
    assert manager("underminisrpartitioncount") == 1
    assert manager("atminisrpartitioncount") == 2  # one replica cannot satisfy two
    assert manager("offlinereplicacount") == 2
    assert value_of(page, "kafka_controller_kafkacontroller_offlinepartitionscount") == 2
    assert value_of(page, "kafka_cluster_partition_underminisr", topic="t", partition="1") == 1
    assert value_of(page, "kafka_topic_partition_leader", topic="t", partition="3") == node + 1


def test_the_process(broker):
    page = broker.page()
    assert 1e6 < value_of(page, "process_resident_memory_bytes") < 1e10
    assert value_of(page, "process_open_fds") < value_of(page, "process_max_fds")
    assert value_of(page, "process_threads") >= threading.active_count()
    assert 0 <= time.time() - value_of(page, "process_start_time_seconds") < 86400
    assert value_of(page, "process_cpu_seconds_total") > 0
    (row,) = rows_of(page, "python_info")
    assert row[0]["implementation"] == "CPython"


def test_the_broker_is_named(broker):
    page = broker.page()
    (row,) = rows_of(page, "kafka_broker_info")
    assert row[0] == {"id": str(broker.node.node_id), "address": broker.bootstrap}
    assert json.dumps(row[1]) == "1.0"
