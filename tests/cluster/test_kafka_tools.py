"""Kafka 3.9's tools for a cluster beside ZooKeeper, with three brokers: kafka-replica-verification,
zookeeper-shell, kafka-topics, kafka-reassign-partitions and kafka-leader-election."""

import json
import re
import subprocess

import pytest
from cluster.three_brokers import Cluster, batches_in
from compat.support import rival
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import soon

from barnabas.cext.codec.crc import crc32c

pytestmark = [pytest.mark.java, pytest.mark.takes(seconds=40)]

KAFKA = "3.9.2"
QUICK = ("-Xmx256M", rival.QUICK)
IDS = (1, 2, 3)
PARTITIONS, RECORDS = 3, 30
LINES_MAX = 300  # of kafka-replica-verification, which prints five a second
CRC_AT, CRC_FROM = 17, 21  # of a batch: where its CRC is, and the first byte that it covers
REPORT = re.compile(
    r"max lag is (-?\d+) for partition (\S+) at offset (\d+) among (\d+) partitions"
)


@pytest.fixture(scope="module")
def zookeeper(zookeeper_server):
    if reason := rival.missing(KAFKA):
        pytest.skip(reason)
    return zookeeper_server.connect(zookeeper_server.new_chroot())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, zookeeper):
    with Cluster(tmp_path_factory.mktemp("tools"), zookeeper) as started:
        yield started


@pytest.fixture
def admin(cluster):
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers})


@pytest.fixture
def tool(tmp_path):
    def run(name, *arguments):
        command = rival.tool(KAFKA, name, tmp_path / "tool.log", heap=QUICK)
        done = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def written(cluster, admin, topic):
    """Creates a topic with three replicas and writes records, each a batch, to every partition."""
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(30)
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    producer = Producer(servers | {"acks": "all", "batch.num.messages": 1})
    for number in range(RECORDS):
        for partition in range(PARTITIONS):
            producer.produce(topic, b"record %d" % number, partition=partition)
    assert producer.flush(60) == 0


def with_crc(batch):
    """The batch with the CRC that its bytes have."""
    return batch[:CRC_AT] + crc32c(batch[CRC_FROM:]).to_bytes(4, "big") + batch[CRC_FROM:]


def isrs(admin, topic):
    found = admin.list_topics(topic, timeout=10).topics[topic].partitions
    return {index: sorted(row.isrs) for index, row in found.items()}


def verification(cluster, folder, topic, until):
    """Runs kafka-replica-verification from the first record on, until it prints a line that matches
    `until`, at most LINES_MAX lines. Returns its lines."""
    command = rival.tool(KAFKA, "replica-verification", folder / "tool.log", heap=QUICK)
    command += ["--broker-list", cluster.bootstrap_servers, "--topics-include", topic]
    command += ["--time", "-2", "--report-interval-ms", "200", "--max-wait-ms", "100"]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            lines.append(line.rstrip())
            if re.search(until, line) or len(lines) == LINES_MAX:
                break
        process.kill()
    return lines


def test_replica_verification_finds_equal_replicas(cluster, admin, tmp_path):
    """The largest lag of all partitions is 0: it has compared each record on every replica."""
    written(cluster, admin, "equal")
    lines = verification(cluster, tmp_path, "equal", "max lag is 0 ")
    lag, partition, offset, count = REPORT.search(lines[-1]).groups()
    assert (int(lag), int(offset), int(count)) == (0, RECORDS, PARTITIONS), lines
    assert partition.startswith("equal-")
    assert not [line for line in lines if "checksum" in line or "doesn't match" in line]


def test_replica_verification_finds_a_record_that_differs(cluster, admin, tmp_path):
    written(cluster, admin, "differs")
    follower = cluster.brokers[3]
    assert follower.stop() == 0
    [file] = (follower.data / "differs-1").glob("*.log")
    data = file.read_bytes()
    [batch] = [row for _, _, row in batches_in(file.parent) if b"record 7" in row]
    file.write_bytes(data.replace(batch, with_crc(batch.replace(b"record 7", b"RECORD 7"))))
    follower.start()
    soon(lambda: all(row == list(IDS) for row in isrs(admin, "differs").values()), "not in sync")
    lines = verification(cluster, tmp_path, "differs", "unmatched checksum")
    found = re.search(r"partition (\S+) has unmatched checksum at offset (\d+);(.*)", lines[-1])
    assert found and found.group(1, 2) == ("differs-1", "7"), lines
    assert "replica 3's checksum" in found.group(3)


def test_zookeeper_shell(cluster, tool, zookeeper):
    def shell(*words):
        return tool("zookeeper-shell", "-server", zookeeper, *words)

    assert "[1, 2, 3]" in shell("ls", "/brokers/ids")
    [controller] = re.findall(r"^\{.*\}$", shell("get", "/controller"), re.M)
    assert json.loads(controller)["brokerid"] in IDS
    [broker] = re.findall(r"^\{.*\}$", shell("get", "/brokers/ids/2"), re.M)
    assert json.loads(broker)["endpoints"] == [f"PLAINTEXT://{cluster.brokers[2].address}"]


def test_topics_reassignments_and_elections(cluster, admin, tool, tmp_path):
    at = ("--bootstrap-server", cluster.bootstrap_servers)

    def leader_and_replicas():
        described = tool("topics", *at, "--describe", "--topic", "moved")
        return re.search(r"Leader: (\d+)\s+Replicas: (\S+)\s+Isr: (\S+)", described).groups()

    created = ("--create", "--topic", "moved", "--replica-assignment", "1:2")
    assert "Created topic moved." in tool("topics", *at, *created)
    assert leader_and_replicas()[:2] == ("1", "1,2")
    file = tmp_path / "plan.json"
    rows = [{"topic": "moved", "partition": 0, "replicas": [3, 1]}]
    file.write_text(json.dumps({"version": 1, "partitions": rows}))
    plan = ("--reassignment-json-file", str(file))
    assert "Successfully started" in tool("reassign", *at, *plan, "--execute")
    soon(lambda: isrs(admin, "moved") == {0: [1, 3]}, "the partition does not move")
    verified = tool("reassign", *at, *plan, "--verify")
    assert "Reassignment of partition moved-0 is complete" in verified
    assert leader_and_replicas()[:2] == ("1", "3,1")
    elected = ("--election-type", "preferred", "--topic", "moved", "--partition", "0")
    assert "Successfully completed" in tool("leader-election", *at, *elected)
    assert leader_and_replicas()[:2] == ("3", "3,1")
