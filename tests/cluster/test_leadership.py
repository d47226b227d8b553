"""Tests leadership with three brokers: preferred replicas lead again by themselves, and unclean
elections are counted."""

import urllib.request

import pytest
from cluster.three_brokers import Cluster
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import soon

pytestmark = pytest.mark.takes(seconds=20)

BALANCED = {
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.check.interval.seconds": "1",
    "leader.imbalance.per.broker.percentage": "0",
}
CONTROLLER, REPLICAS = "kafka_controller_kafkacontroller", "kafka_server_replicamanager"
UNCLEAN = "kafka_controller_controllerstats_uncleanleaderelections_total"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, zookeeper_server):
    connect = zookeeper_server.connect(zookeeper_server.new_chroot())
    settings = {**BALANCED, "metrics.port": "0"}
    with Cluster(tmp_path_factory.mktemp("leadership"), connect, **settings) as started:
        yield started


def metric(broker, name):
    [line] = [row for row in broker.lines if row.startswith("metrics: ")][-1:]
    with urllib.request.urlopen(line.removeprefix("metrics: "), timeout=10) as page:
        rows = page.read().decode().splitlines()
    [value] = [float(row.split()[-1]) for row in rows if row.split(" ")[0] == name]
    return value


def shows(broker, name, condition):
    soon(lambda: condition(metric(broker, name)), f"{name} of broker {broker.node_id}")


def leaders(broker, topic):
    admin = AdminClient({"bootstrap.servers": broker.address})
    found = admin.list_topics(topic, timeout=10).topics[topic].partitions
    return {index: (row.leader, sorted(row.isrs)) for index, row in found.items()}


def alive(cluster):
    return [row for row in cluster.brokers.values() if row.is_running]


def create(cluster, name, assignments, config=None):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    new = NewTopic(name, len(assignments), replica_assignment=assignments, config=config or {})
    admin.create_topics([new])[name].result(30)


def test_preferred_replicas_lead_again_by_themselves(cluster):
    """Tests auto.leader.rebalance.enable, leader.imbalance.check.interval.seconds and
    leader.imbalance.per.broker.percentage. With their defaults broker 3 would lead for 300 s
    more."""
    assert BALANCED == {
        "auto.leader.rebalance.enable": "true",
        "leader.imbalance.check.interval.seconds": "1",
        "leader.imbalance.per.broker.percentage": "0",
    }
    create(cluster, "even", [[1, 2], [2, 3], [3, 1]])
    first = cluster.brokers[1]
    at_home = {0: (1, [1, 2]), 1: (2, [2, 3]), 2: (3, [1, 3])}
    soon(lambda: leaders(first, "even") == at_home, "it is not in sync")
    controllers = [
        row for row in alive(cluster) if metric(row, f"{CONTROLLER}_activecontrollercount")
    ]
    assert len(controllers) == 1
    shows(first, f"{CONTROLLER}_preferredreplicaimbalancecount", lambda value: value == 0)
    cluster.brokers[2].stop()
    soon(lambda: leaders(first, "even")[1] == (3, [3]), "3 does not take over")
    shows(first, f"{CONTROLLER}_preferredreplicaimbalancecount", lambda value: value == 1)
    shows(first, f"{REPLICAS}_underreplicatedpartitions", lambda value: value == 1)
    cluster.brokers[2].start()
    soon(lambda: leaders(first, "even") == at_home, "2 does not lead again")
    shows(first, f"{CONTROLLER}_preferredreplicaimbalancecount", lambda value: value == 0)


def test_an_unclean_election_is_counted_and_only_where_the_topic_allows_it(cluster):
    """Tests unclean.leader.election.enable of a topic."""
    unclean = {"unclean.leader.election.enable": "true"}
    create(cluster, "torn", [[1, 2]], {**unclean, "min.insync.replicas": "2"})
    create(cluster, "whole", [[1, 2]], {})
    first, second, third = cluster.brokers.values()
    for topic in ("torn", "whole"):
        soon(lambda topic=topic: leaders(first, topic) == {0: (1, [1, 2])}, "it is not in sync")
    shrinks = metric(first, f"{REPLICAS}_isrshrinks_total")
    second.kill()
    for topic in ("torn", "whole"):
        soon(lambda topic=topic: leaders(first, topic) == {0: (1, [1])}, "2 is in the ISR")
    shows(first, f"{REPLICAS}_underminisrpartitioncount", lambda value: value == 1)
    shows(first, f"{REPLICAS}_isrshrinks_total", lambda value: value >= shrinks + 2)
    first.kill()
    shows(third, f"{CONTROLLER}_offlinepartitionscount", lambda value: value >= 2)
    shows(third, f"{CONTROLLER}_activecontrollercount", lambda value: value == 1)
    assert metric(third, UNCLEAN) == 0
    second.start()
    soon(lambda: leaders(third, "torn")[0][0] == 2, "2 does not lead")
    shows(third, UNCLEAN, lambda value: value == 1)
    assert leaders(third, "whole")[0][0] == -1
    first.start()
    soon(lambda: leaders(third, "whole") == {0: (1, [1, 2])}, "1 does not lead again")
    shows(third, f"{CONTROLLER}_offlinepartitionscount", lambda value: value == 0)
