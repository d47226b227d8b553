"""Replicas of a leader and of a follower move between the log directories of their brokers
(KIP-113), under load and over a kill, by `barnabas cluster reassign` and by Kafka's own tool."""

import json
import subprocess

import pytest
from cli.conftest import run_command
from cluster.three_brokers import BrokerProcess, batches_in
from compat.support import rival
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from waiting import soon

from barnabas.client import Cluster as Client
from barnabas.client.log_dir_moves import Replica, directories_of

pytestmark = pytest.mark.takes(seconds=40)

KAFKA = "3.9.2"
QUICK = ("-Xmx256M", rival.QUICK)
TOOL = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
IDS = (1, 2)
RECORD_BYTES, RECORDS = 10_000, 300
SLOW = 30_000  # bytes/s: a move takes 100 s


class Brokers:
    """Two brokers with two log directories each."""

    def __init__(self, folder, connect):
        self.directories = {id_: [folder / f"{name}-{id_}" for name in "ab"] for id_ in IDS}
        self.brokers = {}
        for node_id, dirs in self.directories.items():
            settings = {"log.dirs": ",".join(map(str, dirs)), "replica.fetch.max.bytes": "20000"}
            self.brokers[node_id] = BrokerProcess(folder, node_id, connect, settings).start()
        self.address = ",".join(broker.address for broker in self.brokers.values())
        self.admin = AdminClient({"bootstrap.servers": self.address})

    def create(self, topic, replicas):
        new = NewTopic(topic, 1, replica_assignment=[list(replicas)])
        self.admin.create_topics([new])[topic].result(30)
        self.write(topic)

    def write(self, topic, count=RECORDS):
        """Writes records; returns when all are acknowledged by all replicas in sync."""
        errors = []
        settings = {"bootstrap.servers": self.address, "acks": "all", "batch.size": 20_000}
        producer = Producer(settings)
        for number in range(count):
            producer.produce(
                topic,
                b"%d" % number + b"v" * RECORD_BYTES,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
            producer.poll(0)
        assert producer.flush(60) == 0 and not errors

    def where(self, topic, node_id):
        """The name of the replica's log directory, and whether it moves."""
        with Client(self.address) as cluster:
            [(path, moves)] = directories_of(cluster, [Replica(topic, 0, node_id)]).values()
        return path, moves

    def other(self, topic, node_id):
        path, _ = self.where(topic, node_id)
        [found] = [str(row) for row in self.directories[node_id] if str(row) != path]
        return found

    def limit(self, node_id, rate):
        resource = ConfigResource(ResourceType.BROKER, str(node_id), set_config={RATE: str(rate)})
        [done] = self.admin.alter_configs([resource]).values()
        done.result(30)

    def in_sync(self, topic):
        return sorted(self.admin.list_topics(topic, timeout=10).topics[topic].partitions[0].isrs)

    def stop(self):
        for broker in self.brokers.values():
            broker.stop()


@pytest.fixture(scope="module")
def two(tmp_path_factory, zookeeper_server):
    folder = tmp_path_factory.mktemp("moves")
    made = Brokers(folder, zookeeper_server.connect(zookeeper_server.new_chroot()))
    yield made
    made.stop()


def plan(topic, directories):
    row = {"topic": topic, "partition": 0, "replicas": list(directories)}
    row["log_dirs"] = list(directories.values())
    return json.dumps({"version": 1, "partitions": [row]}).encode()


def test_the_leaders_and_the_followers_replica_move_under_load(two):
    two.create("both", IDS)
    wanted = {node_id: two.other("both", node_id) for node_id in IDS}
    words = ("cluster", "reassign", "--execute", "-", "-b", two.address)
    done = run_command(*words, stdin=plan("both", wanted))
    assert done.status == 0, done.err
    two.write("both")
    for node_id, path in wanted.items():
        soon(
            lambda node_id=node_id, path=path: two.where("both", node_id) == (path, False),
            f"the replica of broker {node_id} does not move",
        )
    two.write("both")
    soon(lambda: two.in_sync("both") == list(IDS), "a replica left the ISR")
    kept = run_command("consume", "both", "--from-beginning", "--end", "-b", two.address)
    assert len(kept.text.splitlines()) == 3 * RECORDS


@pytest.mark.parametrize("node_id", IDS, ids=["leader", "follower"])
def test_a_kill_while_a_replica_moves(two, node_id):
    topic = f"killed-{node_id}"
    two.create(topic, IDS)
    path = two.other(topic, node_id)
    two.limit(node_id, SLOW)
    words = ("cluster", "reassign", "--execute", "-", "-b", two.address)
    directories = dict.fromkeys(IDS, "any") | {node_id: path}
    assert run_command(*words, stdin=plan(topic, directories)).status == 0
    assert two.where(topic, node_id)[1]
    two.brokers[node_id].kill()
    two.brokers[node_id].start()
    soon(lambda: two.in_sync(topic) == list(IDS), "the broker does not come back")
    assert two.where(topic, node_id)[1]
    two.limit(node_id, 1 << 40)
    soon(lambda: two.where(topic, node_id) == (path, False), "the move does not go on")
    two.write(topic)
    folders = [
        next(parent / f"{topic}-0" for parent in row if (parent / f"{topic}-0").exists())
        for row in two.directories.values()
    ]
    # The ISR may be without the killed broker when the records are acknowledged.
    soon(
        lambda: [*batches_in(folders[0])] == [*batches_in(folders[1])],
        "the replicas are not equal",
    )
    assert len([*batches_in(folders[0])]) > RECORDS // 2


@pytest.mark.java
def test_kafkas_tool_moves_a_replica_and_places_a_new_one(two, tmp_path):
    """kafka-reassign-partitions with log_dirs: one replica changes its directory, and the new
    replica of the other broker is made in the directory that the plan names."""
    if reason := rival.missing(KAFKA):
        pytest.skip(reason)
    two.create("placed", [1])
    wanted = {1: two.other("placed", 1), 2: str(two.directories[2][1])}
    file = tmp_path / "plan.json"
    file.write_bytes(plan("placed", wanted))

    def tool(*arguments):
        command = rival.java(KAFKA, tmp_path / "tool.log", heap=QUICK)
        plan_of = ("--reassignment-json-file", str(file))
        done = subprocess.run(
            [*command, TOOL, "--bootstrap-server", two.address, *plan_of, *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    printed = tool("--execute", "--replica-alter-log-dirs-throttle", "100000000")
    for path in wanted.values():
        assert f"Successfully started moving log directory to {path} for replica" in printed
    for node_id, path in wanted.items():
        soon(
            lambda node_id=node_id, path=path: two.where("placed", node_id) == (path, False),
            f"the replica of broker {node_id} is not in {path}",
        )
    soon(lambda: two.in_sync("placed") == list(IDS), "the new replica is not in sync")
    printed = tool("--verify")
    assert "Reassignment of replica placed-0-1 completed successfully" in printed
    assert "Reassignment of replica placed-0-2 completed successfully" in printed
