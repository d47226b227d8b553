"""The read model follows the tree; producer id blocks never overlap."""

import logging
import os
import threading
from dataclasses import replace

import pytest
from waiting import soon

from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import ClusterStateReader, PartitionUpdate
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.producer_ids import NoProducerIds, allocate_block
from barnabas.metadata.tree import CreateNode, DeleteNode, OutcomeUnknown
from barnabas.metadata.znodes import (
    BrokerRegistration,
    ConfigChange,
    ControllerRegistration,
    Endpoint,
    PartitionState,
    ProducerIdBlock,
    TopicAssignment,
)

BROKER = BrokerRegistration((Endpoint("PLAINTEXT", "h", 9092, "PLAINTEXT"),), 5)


def new_topic(name, partitions, topic_id=None):
    topic_id = topic_id or znodes.new_uuid(os.urandom)
    assignment = TopicAssignment({p: (1,) for p in range(partitions)}, topic_id)
    operations = [
        CreateNode(znodes.topic_path(name), assignment.encode()),
        CreateNode(znodes.partitions_path(name)),
    ]
    state = PartitionState(1, 0, (1,), 1).encode()
    for number in range(partitions):
        operations.append(CreateNode(znodes.partition_path(name, number)))
        operations.append(CreateNode(znodes.partition_state_path(name, number), state))
    return operations


@pytest.fixture
def tree(tmp_path):
    tree = EmbeddedTree(tmp_path, clock_ms=lambda: 1)
    for path in znodes.PERSISTENT_PATHS:
        tree.ensure_path(path)
    yield tree
    tree.close()


def test_an_empty_tree_gives_an_empty_state(tmp_path):
    tree = EmbeddedTree(tmp_path, clock_ms=lambda: 1)
    reader = ClusterStateReader(tree)
    assert not reader.state.topics and not reader.state.brokers
    tree.ensure_path(znodes.TOPICS_PATH)
    tree.multi(new_topic("t", 1))
    soon(lambda: reader.state.topic("t"))
    tree.close()


def test_a_listener_gets_the_present_state_at_once(tree):
    reader, seen = ClusterStateReader(tree), []
    reader.on_change(seen.append)
    assert seen == [reader.state]


def test_everything_is_loaded(tree):
    topic_id = znodes.new_uuid(lambda n: bytes(range(n)))
    tree.multi(new_topic("t", 3, topic_id) + new_topic("u", 1))
    tree.create(znodes.broker_path(1), BROKER.encode(), ephemeral=True)
    tree.create("/controller", ControllerRegistration(1, 5).encode(), ephemeral=True)
    tree.create("/controller_epoch", b"7")
    tree.ensure_path("/cluster")
    tree.create("/cluster/id", znodes.encode_cluster_id("c" * 22))
    tree.create("/config/topics/t", znodes.encode_config({"retention.ms": "5"}))
    tree.ensure_path("/config/users/u/clients")
    tree.create("/config/users/u/clients/c", znodes.encode_config({"rate": "1"}))
    tree.set(znodes.partition_state_path("t", 2), PartitionState(1, 1, (1,), 1).encode())
    tree.create("/admin/delete_topics/u")
    state = ClusterStateReader(tree).state
    assert (state.cluster_id, state.controller_id, state.controller_epoch) == ("c" * 22, 1, 7)
    assert state.brokers[1].registration == BROKER
    assert state.brokers[1].epoch == tree.exists("/brokers/ids/1").czxid
    assert state.topic_by_id(topic_id) is state.topic("t")
    assert state.partition("t", 2).state.leader_epoch == 1
    assert state.partition("t", 2).state_version == 1
    assert state.partition("t", 3) is None and state.partition("absent", 0) is None
    assert state.topic("u").deleting and not state.topic("t").deleting
    assert state.config("topics", "t") == {"retention.ms": "5"}
    assert state.config("users", "u/clients/c") == {"rate": "1"}
    with pytest.raises(TypeError):
        state.topics["x"] = None


def test_watches_keep_it_current(tree):
    reader = ClusterStateReader(tree)
    before = reader.state
    for _round in range(3):
        tree.multi(new_topic("t", 1, znodes.new_uuid(lambda n: bytes(range(n)))))
        soon(lambda: reader.state.topic("t"))
        more = TopicAssignment({0: (1,), 1: (1,)})
        tree.set(znodes.topic_path("t"), more.encode())
        soon(lambda: len(reader.state.topic("t").partitions) == 2)
        topic = reader.state.topic("t")  # as an old tool writes it, without the id
        assert not topic.is_id_kept and reader.state.topic_by_id(topic.topic_id) is topic
        tree.create("/admin/delete_topics/t")
        soon(lambda: reader.state.topic("t").deleting)
        nodes = [node.path for node in tree.subtree("/brokers/topics/t")]
        operations = [DeleteNode(path) for path in reversed(nodes)]
        tree.multi([*operations, DeleteNode("/admin/delete_topics/t")])
        soon(lambda: reader.state.topic("t") is None)
        tree.create("/brokers/ids/1", BROKER.encode(), ephemeral=True)
        soon(lambda: 1 in reader.state.brokers)
        tree.delete("/brokers/ids/1")
        soon(lambda: not reader.state.brokers)
        tree.create("/controller", ControllerRegistration(4, 5).encode(), ephemeral=True)
        soon(lambda: reader.state.controller_id == 4)
        tree.delete("/controller")
        soon(lambda: reader.state.controller_id is None)
    assert not before.topics and not before.brokers


def test_topics_that_change_while_the_state_is_read_are_read_again(tree, monkeypatch):
    """The change comes right after the topics were read: a move ends, a topic is created."""
    tree.multi(new_topic("t", 1))
    read = tree.subtree

    def changes_after(path):
        found = read(path)
        if path == znodes.TOPICS_PATH:
            monkeypatch.undo()
            tree.set(znodes.topic_path("t"), TopicAssignment({0: (2,)}).encode())
            tree.multi(new_topic("u", 1))
        return found

    monkeypatch.setattr(tree, "subtree", changes_after)
    reader = ClusterStateReader(tree)
    soon(lambda: reader.state.partition("t", 0).replicas == (2,))
    soon(lambda: reader.state.topic("u"))


def test_a_topic_that_is_created_while_the_topics_are_read_is_watched(tree, monkeypatch):
    read = tree.subtree

    def created_before(path):
        if path == znodes.TOPICS_PATH:
            monkeypatch.undo()
            tree.multi(new_topic("t", 1))
        return read(path)

    monkeypatch.setattr(tree, "subtree", created_before)
    reader = ClusterStateReader(tree)
    soon(lambda: reader.state.topic("t"))
    tree.set(znodes.topic_path("t"), TopicAssignment({0: (2,)}).encode())
    soon(lambda: reader.state.partition("t", 0).replicas == (2,))


def test_notes_bring_configurations_and_partition_states(tree):
    tree.multi(new_topic("t", 1))
    reader = ClusterStateReader(tree)
    for epoch in (1, 2):
        state = PartitionState(1, epoch, (1,), 1)
        tree.set(znodes.partition_state_path("t", 0), state.encode())
        note = znodes.encode_partitions([("t", 0), ("absent", 5)])
        tree.create(znodes.ISR_CHANGE_PREFIX, note, sequence=True)
        soon(lambda state=state: reader.state.partition("t", 0).state == state)
    tree.create("/config/topics/t", znodes.encode_config({"a": "1"}))
    for config in ({"a": "2"}, {}, {"a": "3"}):
        tree.set("/config/topics/t", znodes.encode_config(config))
        tree.create(znodes.CONFIG_CHANGE_PREFIX, b"rubbish", sequence=True)
        note = ConfigChange("topics/t").encode()
        tree.create(znodes.CONFIG_CHANGE_PREFIX, note, sequence=True)
        soon(lambda config=config: reader.state.config("topics", "t") == config)


def test_own_writes_are_applied_at_once(tree):
    told = []
    reader = ClusterStateReader(tree, listener=told.append)
    tree.multi(new_topic("t", 2))
    assert reader.refresh_topics(["t"]).partition("t", 1).state.leader == 1
    tree.set(znodes.partition_state_path("t", 1), PartitionState(-1, 9, (1,), 1).encode())
    assert reader.refresh_topics(["t"]).partition("t", 1).state.leader == -1
    assert told[-1].partition("t", 1).state.leader_epoch == 9


def test_the_states_of_some_partitions_are_read_again(tree, monkeypatch):
    tree.multi(new_topic("t", 3))
    reader = ClusterStateReader(tree)
    read, get = [], tree.get
    monkeypatch.setattr(tree, "get", lambda path, *rest: read.append(path) or get(path, *rest))
    paths = [znodes.partition_state_path("t", index) for index in range(3)]
    for path in paths:
        tree.set(path, PartitionState(-1, 9, (1,), 1).encode())
    found = reader.refresh_partitions([("t", 2), ("t", 0), ("t", 2)])
    assert read == [paths[2], paths[0]]
    rows = found.topic("t").partitions
    assert [row.state.leader_epoch for row in rows.values()] == [9, 0, 9]
    stat = tree.exists(paths[2])
    assert (rows[2].state_version, rows[2].state_zxid) == (stat.version, stat.mzxid)


def test_a_state_from_a_request_gets_its_commit_when_it_is_read(tree):
    """A broker that becomes controller needs the commit: it shows who has restarted since."""
    tree.multi(new_topic("t", 1))
    reader = ClusterStateReader(tree)
    path, state = znodes.partition_state_path("t", 0), PartitionState(1, 4, (1,), 1)
    stat = tree.set(path, state.encode())
    update = PartitionUpdate("t", None, 0, state, stat.version)
    reader.apply_updates([update], is_leader_and_isr=False)
    assert reader.state.partition("t", 0).state_zxid == -1
    assert reader.refresh_partitions([("t", 0)]).partition("t", 0).state_zxid == stat.mzxid
    assert reader.apply_updates([update], False).partition("t", 0).state_zxid == stat.mzxid


def test_a_request_that_names_other_replicas_makes_the_broker_read_the_assignment(tree):
    """A leader that knows the epoch of a move, and not its replicas, would take a former follower
    into the ISR."""
    tree.multi(new_topic("t", 1))
    reader = ClusterStateReader(tree)
    assignment = reader.state.topic("t").assignment
    reader.on_change(lambda _state: None)
    for handler in ("_topic_changed", "_topics_changed"):
        setattr(reader, handler, lambda _event: None)  # the watches come later
    before = reader.state
    moved = replace(assignment, partitions={0: (2, 3)})
    path, state = znodes.partition_state_path("t", 0), PartitionState(2, 4, (2, 3), 1)
    tree.set(znodes.topic_path("t"), moved.encode())
    stat = tree.set(path, state.encode())
    reader.state = before
    update = PartitionUpdate("t", None, 0, state, stat.version, replicas=(2, 3))
    found = reader.apply_updates([update], is_leader_and_isr=True).partition("t", 0)
    assert (found.replicas, found.state) == ((2, 3), state)


def test_damaged_nodes_are_left_out_and_nothing_else(tree, caplog):
    tree.multi(new_topic("good", 1) + new_topic("bad", 1))
    tree.set(znodes.partition_state_path("bad", 0), b"{")
    tree.create("/brokers/topics/illegal name", TopicAssignment({}).encode())
    tree.create("/brokers/ids/1", b"[]")
    tree.create("/brokers/ids/x", BROKER.encode())
    tree.create("/controller_epoch", b"x")
    with caplog.at_level(logging.ERROR):
        reader = ClusterStateReader(tree)
    assert set(reader.state.topics) == {"good"}
    assert set(reader.state.unreadable) == {"bad", "illegal name"}
    assert not reader.state.brokers
    assert "ignoring /brokers/topics/bad" in caplog.text
    tree.set(znodes.partition_state_path("bad", 0), PartitionState(1, 0, (1,), 1).encode())
    assert set(reader.refresh_topics(["bad"]).topics) == {"good", "bad"}


def test_producer_id_blocks_follow_one_another(tree):
    assert allocate_block(tree, 3) == ProducerIdBlock(3, 0, 999)
    assert allocate_block(tree, 4) == ProducerIdBlock(4, 1000, 1999)
    assert ProducerIdBlock.decode(tree.get("/latest_producer_id_block")[0]).broker_id == 4


def test_producer_id_blocks_of_threads_do_not_overlap(tree):
    starts = []

    def work():
        starts.extend(allocate_block(tree, 1).block_start for _ in range(10))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(starts) == list(range(0, 40_000, 1000))


@pytest.mark.parametrize("done", [True, False])
def test_an_unknown_outcome_gives_no_block_twice(tree, monkeypatch, done):
    first = allocate_block(tree, 1)
    real = tree.multi

    def unknown(operations):
        monkeypatch.setattr(tree, "multi", real)
        if done:
            real(operations)
        raise OutcomeUnknown("planted")

    monkeypatch.setattr(tree, "multi", unknown)
    second = allocate_block(tree, 1)
    assert second.block_start == first.block_end + (1001 if done else 1)


def test_producer_ids_end(tree):
    tree.set("/latest_producer_id_block", ProducerIdBlock(1, 0, 2**63 - 500).encode())
    with pytest.raises(NoProducerIds, match="no producer id is left"):
        allocate_block(tree, 1)
