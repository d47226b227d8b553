"""Tests `barnabas cluster join` and `leave`: a single broker becomes the first of a cluster, and a
single broker again."""

import io
import json
from contextlib import redirect_stderr, redirect_stdout

import pytest
from cli.conftest import Ran, run_command
from cluster.kafka_brokers import KafkaProcess
from cluster.three_brokers import BrokerProcess
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import soon

from barnabas.cli import main
from barnabas.config.zookeeper import ZooKeeperSettings
from barnabas.metadata import znodes
from barnabas.metadata.zookeeper import ZooKeeperTree

pytestmark = pytest.mark.takes(seconds=25)

WAIT_S = 30
PARTITIONS = 3
ALTERED = "log.cleaner.threads=2"  # at run time
OF_ONE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
SETTINGS = OF_ONE | {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}


class OneBroker:
    """A broker that is started on either store, with one port and log directory."""

    def __init__(self, folder, connect, node_id=1):
        self._folder, self.connect, self.node_id = folder, connect, node_id
        self._listener = {}
        self.process = None

    def start(self, store):
        settings = SETTINGS | self._listener | {"metadata.store": store}
        self.process = BrokerProcess(self._folder, self.node_id, self.connect, settings).start()
        self._listener = {"listeners": f"PLAINTEXT://{self.address}"}
        return self

    @property
    def address(self):
        return self.process.address

    @property
    def data(self):
        return self.process.data

    def moved(self, action, *words):
        """Runs `barnabas cluster join` or `leave` with this broker's settings."""
        given = {
            "log.dirs": self.data,
            "zookeeper.connect": self.connect,
            "zookeeper.session.timeout.ms": 6000,
        }
        options = [word for row in given.items() for word in ("--set", "{}={}".format(*row))]
        return called("cluster", action, *options, *words)

    def asked(self, *words):
        """Returns the JSON that a command prints."""
        return json.loads(self.told(*words, "--json").text)

    def told(self, *words):
        done = called(*words, "-b", self.address)
        assert done.status == 0, done.err
        return done


def called(*words):
    """Runs a command in this process, which takes a fraction of the time of a new process."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        status = main([str(word) for word in words])
    return Ran(status, out.getvalue().encode(), err.getvalue())


@pytest.fixture
def brokers(zookeeper_server, tmp_path):
    connect = zookeeper_server.connect(zookeeper_server.new_chroot())
    made = [OneBroker(tmp_path, connect), OneBroker(tmp_path, connect, node_id=2)]
    yield made
    for broker in made:
        if broker.process is not None and broker.process.is_running:
            broker.process.kill()


def everything(broker):
    """Returns what a move must not change, as clients see it."""
    [transaction] = broker.asked("transactions", "describe", "paying")
    topics = broker.asked("topics", "describe", "kept")
    for topic in topics:
        for partition in topic["partitions"]:
            for name in ("replicas", "inSync"):
                del partition[name]
    return {
        "cluster": broker.asked("cluster", "describe")["clusterId"],
        "topics": topics,
        "id": topic_id(broker.address, "kept"),
        "users": broker.asked("users", "list"),
        "rules": broker.asked("acls", "list"),
        "quotas": broker.asked("quotas", "list"),
        "group": broker.asked("groups", "describe", "readers"),
        "transaction": transaction,
        "altered": [
            row
            for row in broker.asked("configs", "describe", "broker", "1")
            if row["name"] == ALTERED.partition("=")[0]
        ],
    }


def fill(broker):
    """Gives a broker some state of each kind."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    kept = NewTopic("kept", PARTITIONS, 1, config={"retention.ms": "86400000"})
    admin.create_topics([kept])["kept"].result(WAIT_S)
    produce(broker, 60)
    commit(broker, 7)
    paying = Producer({"bootstrap.servers": broker.address, "transactional.id": "paying"})
    paying.init_transactions(WAIT_S)
    paying.begin_transaction()
    paying.produce("kept", b"paid", partition=0)
    paying.commit_transaction(WAIT_S)
    secret = broker.data.with_name("secret")
    secret.write_text("alices-secret\n")
    secret.chmod(0o600)
    broker.told("users", "add", "alice", "--password-file", str(secret))
    rule = ("--allow-principal", "User:alice", "--operation", "read", "--topic", "kept")
    broker.told("acls", "add", *rule)
    broker.told("quotas", "add", "--user", "alice", "producer_byte_rate=1048576")
    broker.told("configs", "alter", "broker", "1", "--add", ALTERED)


def produce(broker, count):
    producer = Producer({"bootstrap.servers": broker.address, "enable.idempotence": True})
    for number in range(count):
        producer.produce("kept", b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0
    return producer


def commit(broker, offset):
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "readers"})
    at = [TopicPartition("kept", index, offset) for index in range(PARTITIONS)]
    consumer.commit(offsets=at, asynchronous=False)
    consumer.close()


def topic_id(servers, topic):
    admin = AdminClient({"bootstrap.servers": servers})
    asked = admin.describe_topics(TopicCollection([topic]))[topic]
    return str(asked.result(WAIT_S).topic_id)


def records(broker):
    words = ("consume", "kept", "--from-beginning", "--end")
    done = run_command(*words, "-b", broker.address)
    assert done.status == 0, done.err
    return len(done.text.splitlines())


def tree_of(broker):
    """Returns the data of the nodes in ZooKeeper, by path."""
    hosts, _, chroot = broker.connect.partition("/")
    tree = ZooKeeperTree(ZooKeeperSettings(hosts, "/" + chroot))
    try:
        return {node.path: node.data for node in tree.subtree("/")}
    finally:
        tree.close()


def producer_ids_end(broker):
    return znodes.ProducerIdBlock.decode(tree_of(broker)[znodes.PRODUCER_ID_BLOCK_PATH]).block_end


def set_replicas(broker, *replicas):
    """Gives each partition of each topic these replicas."""
    rows = [
        {"topic": topic["topic"], "partition": partition["partition"], "replicas": replicas}
        for topic in broker.asked("topics", "describe")
        for partition in topic["partitions"]
    ]
    plan = broker.data.with_name("plan.json")
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    broker.told("cluster", "reassign", "--execute", plan, "--wait")


def healthy(broker):
    soon(
        lambda: called("cluster", "health", "-b", broker.address).status == 0,
        "the cluster does not get healthy",
    )


def test_a_node_joins_grows_and_leaves_with_all_that_it_has(brokers):
    one, two = brokers
    one.start("embedded")
    fill(one)
    staying = Producer(
        {"bootstrap.servers": one.address, "enable.idempotence": True, "log_level": 0}
    )
    staying.produce("kept", b"before", partition=1)
    assert staying.flush(WAIT_S) == 0
    before = everything(one)
    running = one.moved("join")
    assert running.status == 1 and "another broker is using" in running.err
    one.process.stop()

    dry = one.moved("join", "--dry-run", "--json")
    paths = {row["path"]: row["data"] for row in json.loads(dry.text)["nodes"]}
    assert "/brokers/topics/kept/partitions/2/state" in paths
    assert paths["/config/users/alice"] == "(hidden)"
    assert tree_of(one) == {"/": b""}
    joined = one.moved("join")
    assert joined.status == 0 and "Set metadata.store=zookeeper" in joined.err, joined.err
    block_end = producer_ids_end(one)
    again = one.moved("join")
    assert again.status == 0 and "nothing was missing" in again.err, again.err
    with pytest.raises(AssertionError, match="run `barnabas cluster leave`"):
        one.start("embedded")

    one.start("zookeeper")
    assert everything(one) == before
    staying.produce("kept", b"after", partition=1)  # the client has stayed connected to the address
    assert staying.flush(WAIT_S) == 0
    assert records(one) == 63
    produce(one, 30)
    assert producer_ids_end(one) > block_end
    commit(one, 9)

    two.start("zookeeper")
    set_replicas(one, 1, 2)
    healthy(one)
    two.process.stop()
    soon(lambda: in_sync(one) == {1}, "broker 2 stays in an ISR")
    before = everything(one)
    assert records(one) == 93
    one.process.stop()
    assert "kept/partitions/2/state" in one.moved("leave", "--dry-run").text
    left = one.moved("leave")
    assert left.status == 0 and "in the embedded store of broker 1" in left.err, left.err
    assert tree_of(one) == {"/": b""}
    with pytest.raises(AssertionError, match="its metadata is not here"):
        two.start("zookeeper")
    one.start("embedded")
    assert everything(one) == before and records(one) == 93
    produce(one, 3)
    assert records(one) == 96


def in_sync(broker):
    """Returns the brokers in the ISRs of all partitions."""
    topics = broker.asked("topics", "describe")
    return {each for topic in topics for row in topic["partitions"] for each in row["inSync"]}


@pytest.mark.only_long
def test_a_node_that_lacks_records_does_not_leave(brokers):
    one, two = brokers
    one.start("embedded")
    fill(one)
    one.process.stop()
    assert one.moved("join").status == 0
    one.start("zookeeper")
    two.start("zookeeper")
    set_replicas(one, 1, 2)
    healthy(one)
    one.process.stop()
    others = one.moved("leave")
    assert others.status == 1 and "broker 2 is registered in the cluster" in others.err, others.err
    produce(two, 30)
    two.process.stop()
    behind = one.moved("leave")
    assert behind.status == 1, behind.err
    assert "broker 1 has no complete replica of" in behind.err
    assert "kept-0 (in sync: 2)" in behind.err
    two.start("zookeeper")
    one.start("zookeeper")
    healthy(one)
    two.process.stop()
    soon(lambda: in_sync(one) == {1}, "broker 2 stays in an ISR")
    one.process.stop()
    assert one.moved("leave").status == 0
    one.start("embedded")
    assert records(one) == 91


@pytest.mark.only_long
def test_a_broker_of_kafka_joins_after_it_and_leads(brokers, tmp_path):
    one = brokers[0]
    one.start("embedded")
    fill(one)
    one.process.stop()
    assert one.moved("join").status == 0
    one.start("zookeeper")
    kafka = KafkaProcess(tmp_path, 2, one.connect, {"authorizer.class.name": "", **OF_ONE})
    try:
        kafka.start()
        set_replicas(one, 1, 2)
        healthy(one)
        known = topic_id(one.address, "kept")
        one.process.stop()
        kept = run_command("consume", "kept", "--from-beginning", "--end", "-b", kafka.address)
        assert kept.status == 0 and len(kept.text.splitlines()) == 61, kept.err
        assert topic_id(kafka.address, "kept") == known
    finally:
        kafka.kill()


def test_a_tree_that_is_in_use_is_refused(brokers):
    one, two = brokers
    one.start("embedded").process.stop()
    two.start("zookeeper")
    refused = one.moved("join")
    assert refused.status == 1 and "belongs to cluster" in refused.err, refused.err
    two.process.stop()
    tree = tree_of(two)
    assert one.moved("join", "--dry-run").status == 1
    assert tree_of(two) == tree and (one.data / "metadata").exists()
    new = two.moved("join")
    assert new.status == 1 and "has not run on an embedded store" in new.err
    nowhere = called("cluster", "leave", "--set", f"log.dirs={one.data}")
    assert nowhere.status == 1 and "needs zookeeper.connect" in nowhere.err
