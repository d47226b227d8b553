"""The tree is shared: a broker follows the changes of others, and damaged znodes have no effect on
the rest."""

import json
import logging

import pytest
from compat.support import Wire
from confluent_kafka import Consumer, Producer, TopicPartition
from waiting import soon

from barnabas.controller.controller import NOTES_KEPT_S
from barnabas.controller.topics import NewTopic
from barnabas.metadata.tree import BadVersion, CreateNode, MultiFailed
from barnabas.server import membership
from barnabas.wire import request

ASSIGNED_TO_1 = b'{"version":2,"partitions":{"0":[1]},"adding_replicas":{},"removing_replicas":{}}'


@pytest.fixture
def chroot(zookeeper_server):
    return zookeeper_server.new_chroot()


@pytest.fixture
def connect(zookeeper_server, chroot):
    return zookeeper_server.connect(chroot)


def test_the_controllers_seat_is_taken_over(brokers, connect):
    first = brokers.start(connect, node_id=1)
    second = brokers.start(connect, node_id=2)
    states = [broker.node.cluster for broker in (first, second)]
    assert [state().controller_id for state in states] == [1, 1]
    for state in states:
        soon(lambda state=state: sorted(state().brokers) == [1, 2])
    first.stop()
    soon(lambda: states[1]().controller_id == 2 and states[1]().controller_epoch == 2)
    soon(lambda: sorted(states[1]().brokers) == [2])


def test_an_internal_topic_waits_for_the_brokers_of_its_factor(brokers, connect):
    """As in Kafka; a single node on the embedded store reduces the factor."""
    factor = {"offsets_topic_replication_factor": "2"}
    first = brokers.start(connect, node_id=1, **factor)
    consumer = Consumer({"bootstrap.servers": first.bootstrap_servers, "group.id": "g"})
    first.create_topic("t")
    with Wire(first.bootstrap_servers) as wire:
        answer = wire.call(10, 2, request(10).cls(key="g", keyType=0))
        assert answer.errorCode == 15, "COORDINATOR_NOT_AVAILABLE"
    assert first.node.cluster().topic("__consumer_offsets") is None
    brokers.start(connect, node_id=2, **factor)
    soon(lambda: len(first.node.cluster().brokers) == 2)
    consumer.commit(offsets=[TopicPartition("t", 0, 0)], asynchronous=False)
    consumer.close()
    offsets = first.node.cluster().topic("__consumer_offsets")
    assert {frozenset(row.replicas) for row in offsets.partitions.values()} == {frozenset({1, 2})}


def test_a_broker_outside_the_isr_is_not_elected(brokers, connect, chroot, zk, zookeeper_server):
    first = brokers.start(connect, node_id=1)
    first.create_topic("t")
    first.stop()
    path = f"{chroot}/brokers/topics/t/partitions/0/state"
    client = zk(zookeeper_server)
    state = json.loads(client.get(path)[0]) | {"leader": 9, "isr": [9]}
    client.set(path, json.dumps(state).encode())
    again = brokers.start(connect, node_id=1)
    found = again.node.cluster().topic("t").partitions[0].state
    assert (found.leader, found.isr) == (-1, (9,))


def test_leader_epochs_that_a_restart_raised_are_exposed_by_all_brokers(
    brokers, connect, chroot, zk, zookeeper_server
):
    """F4: another broker exposed the old leader epoch permanently, because it did not learn of the
    new state. The stop takes the leader away (epoch 1), and the start brings it back (epoch 2)."""
    first = brokers.start(connect, node_id=1)
    second = brokers.start(connect, node_id=2)
    soon(lambda: len(first.node.cluster().brokers) == 2)
    for name in ("t", "u"):
        first.node.serving.administration.topics.create(
            NewTopic(name, assignments={0: (1,), 1: (2,)})
        )
    first.stop()
    (first.directory / ".kafka_cleanshutdown").unlink()
    again = brokers.start(connect, node_id=1)

    def epochs(broker):
        topics = broker.node.cluster().topics
        return {
            (name, index): partition.state.leader_epoch
            for name in ("t", "u")
            for index, partition in topics[name].partitions.items()
        }

    raised = {("t", 0): 2, ("t", 1): 0, ("u", 0): 2, ("u", 1): 0}
    soon(lambda: epochs(second) == raised)
    soon(lambda: epochs(again) == raised)
    notes = zk(zookeeper_server).get_children(f"{chroot}/isr_change_notification")
    assert notes == [], "the controller's requests tell it; a note lets each broker read the topics"


def test_added_partitions_go_on_from_the_first_replica_of_partition_0(brokers, connect):
    first = brokers.start(connect, node_id=1)
    brokers.start(connect, node_id=2)
    soon(lambda: len(first.node.cluster().brokers) == 2)
    for name, begin in (("t", 1), ("u", 2)):
        first.node.serving.administration.topics.create(NewTopic(name, assignments={0: (begin,)}))
        first.node.serving.administration.growth.grow(name, 6)
        placed = first.node.cluster().topic(name).partitions
        other = 3 - begin
        assert [placed[index].replicas[0] for index in range(6)] == [begin, other] * 3


def test_two_brokers_see_each_others_topics(brokers, connect):
    first = brokers.start(connect, node_id=1)
    second = brokers.start(connect, node_id=2)
    soon(lambda: len(first.node.cluster().brokers) == 2)
    placed = {0: (1,), 1: (2,)}
    first.node.serving.administration.topics.create(NewTopic("t", assignments=placed))
    soon(lambda: second.node.cluster().topic("t"))
    producer = Producer({"bootstrap.servers": first.bootstrap_servers})
    for partition in placed:
        producer.produce("t", b"%d" % partition, partition=partition)
    assert producer.flush(30) == 0
    assert [row.value for row in first.records("t", 0)] == [b"0"]
    assert [row.value for row in second.records("t", 1)] == [b"1"]
    second.delete_topic("t")
    soon(lambda: first.topics == [])
    soon(lambda: not list(first.directory.glob("t-?")))


def test_a_deletion_that_another_broker_carries_out_meanwhile(brokers, connect, monkeypatch):
    """The slower broker answered UNKNOWN_SERVER_ERROR."""
    first = brokers.start(connect, node_id=1)
    second = brokers.start(connect, node_id=2)
    first.create_topic("t", partitions=3)
    soon(lambda: second.node.cluster().topic("t"))
    deletion, other = (
        second.node.serving.administration.deletion,
        first.node.serving.administration.deletion,
    )
    operations = deletion._operations

    def late(name):
        found = operations(name)
        monkeypatch.undo()
        other._remove([name])
        return found

    monkeypatch.setattr(deletion, "_operations", late)
    assert deletion.delete(["t"]) == {}
    soon(lambda: first.topics == second.topics == [])


def test_an_id_that_was_taken_while_the_session_was_gone(
    brokers, connect, chroot, zk, zookeeper_server, monkeypatch, caplog
):
    broker = brokers.start(connect)
    tree = broker.node.opened.tree
    squatter = zk(zookeeper_server)
    path = f"{chroot}/brokers/ids/1"
    register, tried = membership.register, []

    def late(*arguments):
        if not tried:
            squatter.create(path, b"{}", ephemeral=True)
        tried.append(1)
        register(*arguments)

    monkeypatch.setattr(membership, "register", late)
    with caplog.at_level(logging.ERROR):
        zookeeper_server.expire(tree.session_id)
        soon(lambda: len(tried) > 2, "it is not tried again")
    said = [row.message for row in caplog.records if "another node 1 is running" in row.message]
    assert len(said) == 1, "once, and not each second"
    squatter.delete(path)
    soon(lambda: (row := squatter.exists(path)) and row.ephemeralOwner == tree.session_id)
    # The unreadable registration of the other program is known until the tree's watch has fired.
    soon(lambda: 1 in broker.node.cluster().brokers)
    broker.create_topic("after")


def test_old_notes_of_changes_go(brokers, connect, chroot, zk, zookeeper_server):
    broker = brokers.start(connect)
    broker.create_topic("t")
    client = zk(zookeeper_server)
    note = client.create(
        f"{chroot}/config/changes/config_change_",
        b'{"version":2,"entity_path":"topics/t"}',
        sequence=True,
    )
    isr_note = client.create(
        f"{chroot}/isr_change_notification/isr_change_",
        b'{"version":1,"partitions":[{"topic":"t","partition":0}]}',
        sequence=True,
    )
    for seconds in (60, NOTES_KEPT_S - 60):  # it sees them; they are 14 minutes old
        broker.clock.advance(ms=seconds * 1000)
        client.create(f"{chroot}/admin/delete_topics/no-such")  # wakes the controller
        soon(lambda: client.exists(f"{chroot}/admin/delete_topics/no-such") is None)
        assert client.exists(note) and client.exists(isr_note)
    broker.clock.advance(minutes=5)
    client.create(f"{chroot}/admin/delete_topics/no-such")
    soon(lambda: client.exists(note) is None)
    soon(lambda: client.exists(isr_note) is None)


def test_damaged_nodes(brokers, connect, chroot, zk, zookeeper_server):
    """Each is skipped and logged; other topics are created and served."""
    broker = brokers.start(connect)
    client = zk(zookeeper_server)
    for name, data in (
        ("rubbish", b"\xff\x00"),
        ("array", b"[]"),
        ("huge", b'{"version":2,"partitions":{"99999999999":[1]}}'),
        ("nobody", b'{"version":2,"partitions":{"0":[77]}}'),
        ("bad name", ASSIGNED_TO_1),
        ("good", ASSIGNED_TO_1),
    ):
        client.create(f"{chroot}/brokers/topics/{name}", data)
    client.create(f"{chroot}/config/changes/config_change_", b"{", sequence=True)
    client.create(f"{chroot}/admin/delete_topics/bad name")
    state = broker.node.cluster
    soon(lambda: (topic := state().topic("good")) and topic.partitions[0].state)
    broker.create_topic("ours")
    assert set(broker.topics) == {"good", "nobody", "ours"}
    assert set(state().unreadable) == {"rubbish", "array", "huge", "bad name"}
    broker.restart()
    assert set(broker.topics) == {"good", "nobody", "ours"}


def test_a_controller_that_was_replaced_changes_nothing(
    brokers, connect, chroot, zk, zookeeper_server
):
    broker = brokers.start(connect)
    tree = broker.node.opened.tree
    client = zk(zookeeper_server)
    stale = broker.node.serving.administration.control.controller_role.fence()
    assert stale is not None
    client.set(f"{chroot}/controller_epoch", b"2")
    assert broker.node.serving.administration.control.controller_role.fence() is None
    with pytest.raises(MultiFailed) as failed:
        tree.multi([*stale, CreateNode("/brokers/topics/t/partitions")])
    assert isinstance(failed.value.error, BadVersion) and failed.value.index == 0
