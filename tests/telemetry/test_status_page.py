"""/status: the brokers of the cluster, and the partitions that lack something."""

import re
import urllib.request

from barnabas import Broker
from barnabas.metadata.cluster_state import Broker as Registered
from barnabas.metadata.cluster_state import ClusterState, Partition, Topic
from barnabas.metadata.znodes import (
    BrokerRegistration,
    Endpoint,
    PartitionState,
    TopicAssignment,
)
from barnabas.telemetry.status_page import PARTITIONS_MAX, status_page


def rows(page):
    found = re.findall(r"<tr>(.*?)</tr>", page)
    return [re.findall(r"<td>(.*?)</td>", row) for row in found if "<td>" in row]


def cluster(*partitions, rack="a"):
    """`partitions`: replicas, leader, ISR."""
    made = {
        index: Partition(replicas, PartitionState(leader, 7, isr, 1), 0, 1)
        for index, (replicas, leader, isr) in enumerate(partitions)
    }
    address = Endpoint("PLAINTEXT", "h", 9092, "PLAINTEXT")
    alive = {
        number: Registered(number, BrokerRegistration((address,), 0, rack), 40 + number)
        for number in (1, 2)
    }
    topic = Topic("t", TopicAssignment({}, "id"), 0, made)
    return ClusterState(brokers=alive, topics={"t": topic}, controller_id=2, controller_epoch=9)


def test_brokers_with_their_epochs_and_partitions_that_lack_something():
    page = status_page(
        cluster(((1, 2), 1, (1, 2)), ((2, 1), 2, (2,)), ((3, 1), 3, (3,))), 1
    ).decode()
    assert "Controller: broker 2, epoch 9" in page
    assert rows(page) == [
        ["1", "PLAINTEXT://h:9092", "a", "", "41", "1", "3"],
        ["2", "PLAINTEXT://h:9092", "a", "yes", "42", "1", "2"],
        ["t-1", "2", "7", "2, 1", "2"],
        ["t-2", "none", "7", "3, 1", "3"],
    ]


def test_texts_from_outside_are_escaped_and_the_list_is_limited():
    late = ((1, 2), 1, (1,))
    page = status_page(cluster(*[late] * (PARTITIONS_MAX + 5), rack="<script>"), 1).decode()
    assert "<script>" not in page and "&lt;script&gt;" in page
    assert f"not fully in sync: {PARTITIONS_MAX + 5}<" in page
    assert len(rows(page)) == 2 + PARTITIONS_MAX


def test_a_running_broker_serves_it():
    with Broker({"metrics.port": "0"}) as broker:
        broker.create_topic("news", 3)
        with urllib.request.urlopen(f"{broker.node.metrics.address}/status", timeout=10) as page:
            assert page.headers["Content-Type"].startswith("text/html")
            text = page.read().decode()
    [row] = rows(text)
    assert row[0] == "1" and row[3] == "yes" and row[5:] == ["3", "3"]
