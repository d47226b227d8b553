"""Moves of partitions with a throttle (KIP-73), by `barnabas cluster reassign` and by Kafka's own
tool, over three brokers."""

import json
import re
import subprocess
import time
import urllib.request

import pytest
from cli.conftest import run_command
from cluster.three_brokers import Cluster
from compat.support import rival
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from waiting import soon

pytestmark = pytest.mark.takes(seconds=50)

KAFKA = "3.9.2"
QUICK = ("-Xmx256M", rival.QUICK)
TOOL = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
RECORD_BYTES, RECORDS = 10_000, 900
RATE, SLOW_S, SLOW_S_MAX = 200_000, 3, 40
LISTS = {"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}
RATES = {"leader.replication.throttled.rate", "follower.replication.throttled.rate"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, zookeeper_server):
    folder = tmp_path_factory.mktemp("throttled")
    connect = zookeeper_server.connect(zookeeper_server.new_chroot())
    settings = {"metrics.port": "0", "replica.fetch.max.bytes": "20000"}
    with Cluster(folder, connect, **settings) as started:
        yield started


@pytest.fixture(autouse=True)
def moving(cluster):
    """Creates a topic with 9 MB on broker 1."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic("moving", 1, replica_assignment=[[1]])])["moving"].result(30)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "batch.size": 20_000})
    for number in range(RECORDS):
        producer.produce("moving", b"%d" % number + b"v" * RECORD_BYTES)
    assert producer.flush(60) == 0
    yield
    admin.delete_topics(["moving"])["moving"].result(30)
    soon(lambda: "moving" not in admin.list_topics(timeout=10).topics, "it is not deleted")


def plan(*replicas):
    row = {"topic": "moving", "partition": 0, "replicas": list(replicas)}
    return json.dumps({"version": 1, "partitions": [row]}).encode()


def ran(cluster, *words, stdin=b""):
    return run_command("cluster", "reassign", *words, "-b", cluster.bootstrap_servers, stdin=stdin)


def set_names(cluster, kind, name):
    """Returns the names among LISTS and RATES that have a value."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    [found] = admin.describe_configs([ConfigResource(kind, name)]).values()
    return {
        row.name
        for row in found.result(10).values()
        if row.name in LISTS | RATES and row.value and not row.is_default
    }


def throttles(cluster):
    """Returns the throttles of the topic, and those of each broker."""
    brokers = [set_names(cluster, ResourceType.BROKER, str(id_)) for id_ in (1, 2, 3)]
    return set_names(cluster, ResourceType.TOPIC, "moving"), brokers


def rate(cluster, node_id, side):
    [line] = [row for row in cluster.brokers[node_id].lines if row.startswith("metrics: ")][-1:]
    with urllib.request.urlopen(line.removeprefix("metrics: "), timeout=10) as page:
        text = page.read().decode()
    [value] = re.findall(rf"^kafka_server_{side}replication_byte_rate (\S+)$", text, re.M)
    return float(value)


def is_under_way(cluster):
    return bool(json.loads(ran(cluster, "--json").text))


def test_a_throttled_move_by_the_command(cluster):
    """9 MB at 200,000 bytes/s would take 45 s; the test raises the rate, and the move ends."""
    began = time.monotonic()
    done = ran(cluster, "--execute", "-", "--throttle", str(RATE), stdin=plan(2))
    assert done.status == 0, done.err
    soon(lambda: throttles(cluster) == (LISTS, [RATES, RATES, set()]), "the throttles are others")
    soon(lambda: rate(cluster, 2, "follower") > 0 < rate(cluster, 1, "leader"), "nothing is sent")
    while (elapsed_s := time.monotonic() - began) < SLOW_S:
        assert is_under_way(cluster)
        for node_id, side in ((1, "leader"), (2, "follower")):
            assert rate(cluster, node_id, side) < 2 * RATE
    assert elapsed_s < SLOW_S_MAX
    done = ran(cluster, "--execute", "-", "--throttle", "100000000", "--wait", stdin=plan(2))
    assert done.status == 0 and "removed the throttle" in done.err, done.err
    soon(lambda: throttles(cluster) == (set(), [set()] * 3), "the throttles are others")
    kept = run_command(
        "consume", "moving", "--from-beginning", "--end", "-b", cluster.bootstrap_servers
    )
    assert len(kept.text.splitlines()) == RECORDS


def test_a_throttle_without_a_plan_is_refused(cluster):
    done = ran(cluster, "--throttle", "5")
    assert done.status == 1 and "--throttle needs --execute" in done.err
    assert ran(cluster, "--execute", "-", "--throttle", "0", stdin=plan(2)).status == 2


def test_a_cancelled_move_has_no_throttle(cluster):
    assert ran(cluster, "--execute", "-", "--throttle", "1000", stdin=plan(3)).status == 0
    soon(lambda: throttles(cluster) == (LISTS, [RATES, set(), RATES]), "the throttles are others")
    done = ran(cluster, "--cancel")
    assert done.status == 0 and "removed the throttle" in done.err, done.err
    soon(lambda: throttles(cluster) == (set(), [set()] * 3), "the throttles are others")
    assert not is_under_way(cluster)


@pytest.mark.java
def test_a_throttled_move_by_kafkas_tool(cluster, tmp_path):
    """kafka-reassign-partitions --throttle sets the same names, and --verify removes them."""
    if reason := rival.missing(KAFKA):
        pytest.skip(reason)
    file = tmp_path / "plan.json"
    file.write_bytes(plan(3))

    def tool(*arguments):
        where = ("--bootstrap-server", cluster.bootstrap_servers)
        plan_of = ("--reassignment-json-file", str(file))
        command = rival.java(KAFKA, tmp_path / "tool.log", heap=QUICK)
        done = subprocess.run(
            [*command, TOOL, *where, *plan_of, *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    printed = tool("--execute", "--throttle", str(RATE))
    assert "The inter-broker throttle limit was set to 200000 B/s" in printed
    soon(lambda: throttles(cluster) == (LISTS, [RATES, set(), RATES]), "the throttles are others")
    assert "is still in progress" in tool("--verify")
    soon(lambda: throttles(cluster) == (LISTS, [RATES, set(), RATES]), "the throttles are others")
    tool("--execute", "--additional", "--throttle", "100000000")
    soon(lambda: not is_under_way(cluster), "the move does not end")
    assert "is completed" in tool("--verify")
    soon(lambda: throttles(cluster) == (set(), [set()] * 3), "the throttles are others")
