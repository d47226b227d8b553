"""Kills the controller while it creates a topic, deletes one, or moves partitions: the next
controller completes the change, or the change has not begun. It is never half done."""

import os
import random
import threading
import time

import pytest
from cluster.acknowledged import Sender, leaders_and_isrs
from cluster.faults import IDS, IMPATIENT
from cluster.three_brokers import Cluster
from compat.support import Wire
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from long_form import pick
from waiting import soon

from barnabas.errors import NotController
from barnabas.metadata.znodes import ControllerRegistration
from barnabas.wire import request

pytestmark = [
    pytest.mark.slow,
    pytest.mark.only_long,
    pytest.mark.takes(seconds=100),
    pytest.mark.timeout(900),
]

PARTITIONS = 20
ROUNDS = pick(short=1, long=5)
KILL_AFTER_S_MAX = 0.15
ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS = 45, 46


@pytest.fixture
def seed():
    return int(os.environ.get("BARNABAS_HISTORY_SEED", 0)) or random.SystemRandom().getrandbits(32)


@pytest.fixture(scope="module")
def made(tmp_path_factory, zookeeper_server):
    chroot = zookeeper_server.new_chroot()
    tree = KazooClient(zookeeper_server.connect(chroot))
    folder = tmp_path_factory.mktemp("controller")
    # A request for metadata must not create a topic that is gone.
    settings = {"auto_create_topics_enable": "false"}
    with Cluster(folder, zookeeper_server.connect(chroot), **settings) as cluster:
        tree.start(30)
        yield cluster, tree
        tree.stop()
        tree.close()


def controller(cluster, tree):
    def known():
        try:
            found = ControllerRegistration.decode(tree.get("/controller")[0]).broker_id
        except NoNodeError:
            return None
        return cluster.brokers[found] if cluster.brokers[found].is_running else None

    return soon(known, "no controller")


def wait_until_whole(cluster, topic, seed):
    """Waits until every broker reports that every partition has a leader, and that all replicas are
    in sync."""
    for broker in cluster.brokers.values():
        found = {}

        def says(broker=broker, found=found):
            found.clear()
            found.update(leaders_and_isrs(broker.address, topic))
            return len(found) == PARTITIONS and all(
                leader in IDS and len(isr) == 3 for leader, isr in found.values()
            )

        try:
            soon(says, "half of it")
        except AssertionError:
            text = f"seed {seed}: {topic}: broker {broker.node_id} says {found}"
            raise AssertionError(text) from None


def wait_until_gone(cluster, tree, topic, seed):
    """Waits until no znode, no broker and no log directory has the topic."""
    left = []

    def looks():
        paths = (f"/brokers/topics/{topic}", f"/admin/delete_topics/{topic}")
        left[:] = [path for path in paths if tree.exists(path)]
        for broker in cluster.brokers.values():
            if leaders_and_isrs(broker.address, topic):
                left.append(f"metadata of broker {broker.node_id}")
            left.extend(map(str, folders(broker, topic)))
        return not left

    try:
        soon(looks, "it is not gone")
    except AssertionError:
        raise AssertionError(f"seed {seed}: {topic} is still in {left}") from None


def folders(broker, topic):
    """Returns the log directories of a topic, without those that wait for removal, and those that a
    broker set aside because the topic was deleted while the broker was stopped."""
    found = broker.data.glob(f"{topic}-*")
    return [path for path in found if not path.name.endswith(("-delete", "-stray"))]


def killed_during(cluster, tree, chance, change):
    """Runs `change`, kills the controller while it runs, and starts the controller again. Returns
    the error of the change, or None."""
    victim = controller(cluster, tree)
    outcome = []

    def run():
        try:
            change()
            outcome.append(None)
        except (KafkaException, ConnectionError, OSError) as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(chance.uniform(0, KILL_AFTER_S_MAX))  # the moment is the fault
    under_way = not outcome
    victim.kill()
    assert not victim.is_running
    thread.join(60)
    assert not thread.is_alive()
    next_one = controller(cluster, tree)
    assert next_one is not victim
    victim.start()
    return outcome[0], under_way


def admin_of(cluster):
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **IMPATIENT})


def create(cluster, topic):
    new = NewTopic(topic, PARTITIONS, 3, config={"min.insync.replicas": "2"})
    admin = admin_of(cluster)
    try:
        admin.create_topics([new])[topic].result(30)
    except KafkaException as error:  # the answer to a first attempt of the client was lost
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def delete(cluster, topic):
    admin = admin_of(cluster)
    admin.delete_topics([topic])[topic].result(30)


def test_topics_are_whole_or_not_there(made, seed):
    cluster, tree = made
    chance = random.Random(seed)
    create(cluster, "load")
    sender = Sender(cluster.bootstrap_servers, "load", PARTITIONS, more=IMPATIENT)
    under_way = 0
    for number in range(ROUNDS):
        topic = f"made-{number}"
        error, early = killed_during(
            cluster, tree, chance, lambda topic=topic: create(cluster, topic)
        )
        under_way += early
        print(f"seed {seed}, round {number}: {topic}: {error}, under way: {early}")
        if error is not None and tree.exists(f"/brokers/topics/{topic}") is None:
            wait_until_gone(cluster, tree, topic, seed)
            create(cluster, topic)
        wait_until_whole(cluster, topic, seed)
        error, early = killed_during(
            cluster, tree, chance, lambda topic=topic: delete(cluster, topic)
        )
        under_way += early
        print(f"seed {seed}, round {number}: deletion: {error}, under way: {early}")
        marked = tree.exists(f"/admin/delete_topics/{topic}") is not None
        if error is not None and not marked and tree.exists(f"/brokers/topics/{topic}"):
            wait_until_whole(cluster, topic, seed)
            delete(cluster, topic)
        wait_until_gone(cluster, tree, topic, seed)
    assert under_way, "no kill came while a change was under way"
    wait_until_whole(cluster, "load", seed)
    sender.wait_for_more()
    sender.stop()
    sender.check(cluster.bootstrap_servers)
    sender.check_files(list(cluster.brokers.values()))


def reassign(cluster, tree, topic, replicas):
    ask = request(ALTER_REASSIGNMENTS)
    rows = [
        ask.struct("topics.partitions")(partitionIndex=index, replicas=replicas)
        for index in range(PARTITIONS)
    ]
    body = ask.cls(timeoutMs=10_000, topics=[ask.struct("topics")(name=topic, partitions=rows)])

    def asked():  # again, as Kafka's clients do, while a controller is being elected
        with Wire(controller(cluster, tree).address) as wire:
            answer = wire.call(ALTER_REASSIGNMENTS, 0, body)
        return None if answer.errorCode == NotController.code else answer

    answer = soon(asked, "no controller takes the request")
    assert answer.errorCode == 0, answer
    assert all(row.errorCode == 0 for one in answer.responses for row in one.partitions), answer


def ongoing(cluster, tree):
    ask = request(LIST_REASSIGNMENTS)
    with Wire(controller(cluster, tree).address) as wire:
        answer = wire.call(LIST_REASSIGNMENTS, 0, ask.cls(timeoutMs=10_000, topics=None))
    return answer.topics


def wait_for_brokers(cluster, tree):
    """Waits until the controller knows all brokers: it refuses to move replicas to another one."""

    def knows_all():
        admin = AdminClient({"bootstrap.servers": controller(cluster, tree).address})
        try:
            return set(admin.list_topics(timeout=10).brokers) == set(IDS)
        except KafkaException:
            return False

    soon(knows_all, "the controller does not know all brokers")


def replicas_of(cluster, topic):
    found = admin_of(cluster).list_topics(topic, timeout=10).topics[topic].partitions
    return {tuple(row.replicas) for row in found.values()}


def test_partitions_move_whole_or_stay(made, seed):
    cluster, tree = made
    chance = random.Random(seed)
    topic = "moves"
    first, second = (1, 2), (2, 3)
    new = NewTopic(topic, replica_assignment=[list(first)] * PARTITIONS, num_partitions=PARTITIONS)
    admin = admin_of(cluster)
    admin.create_topics([new])[topic].result(30)
    sender = Sender(cluster.bootstrap_servers, topic, PARTITIONS, more=IMPATIENT)
    sender.wait_for_more()
    now, under_way = first, 0
    for number in range(ROUNDS):
        target = second if now == first else first
        wait_for_brokers(cluster, tree)
        error, early = killed_during(
            cluster, tree, chance, lambda to=target: reassign(cluster, tree, topic, list(to))
        )
        under_way += early
        print(f"seed {seed}, round {number}: {now} to {target}: {error}, under way: {early}")
        soon(lambda: not ongoing(cluster, tree), f"{seed}: the reassignment does not end")
        if error is not None and replicas_of(cluster, topic) == {now}:
            reassign(cluster, tree, topic, list(target))
            soon(lambda: not ongoing(cluster, tree), f"{seed}: the reassignment does not end")
        soon(
            lambda to=target: replicas_of(cluster, topic) == {to},
            f"{seed}: {replicas_of(cluster, topic)} instead of {target}",
        )
        now = target
        sender.wait_for_more()
    assert under_way, "no kill came while a change was under way"
    soon(
        lambda: all(
            len(isr) == 2
            for _leader, isr in leaders_and_isrs(cluster.bootstrap_servers, topic).values()
        ),
        "not in sync",
    )
    sender.stop()
    sender.check(cluster.bootstrap_servers)
    sender.check_files([cluster.brokers[broker_id] for broker_id in now])
    [absent] = set(IDS) - set(now)
    soon(lambda: not folders(cluster.brokers[absent], topic), "the former replica keeps its files")
