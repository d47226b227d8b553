"""Requests that brokers send each other need CLUSTER_ACTION, and no client counts as a replica.

The answers are those of Apache Kafka 3.9.2 on ZooKeeper, the last line with all of these requests
(kafka_access_zookeeper.tsv). A single node serves few of them: the others close the connection,
whatever the rights.
"""

import contextlib
import threading
import time

import pytest
from compat.support import Wire
from oracle.produce import batch
from security.access_questions import CLOSED, PERMITTED, TOPIC, ask, questions, rights_of
from security.record_access import (
    BETWEEN_BROKERS,
    BROKER_RIGHTS,
    OF_FOLLOWERS,
    ZOOKEEPER_FILE,
    recorded,
)
from security.ruled_broker import on_zookeeper, ruled_broker
from security.test_native_rights import fetch_body, produce

from barnabas.controller.topics import NewTopic
from barnabas.metadata import znodes
from barnabas.security.acl_codes import (
    CLUSTER,
    CLUSTER_ACTION,
    CLUSTER_NAME,
    DESCRIBE,
    READ,
    WRITE,
)
from barnabas.security.acl_codes import TOPIC as TOPIC_TYPE
from barnabas.wire.uuids import uuid_bytes

NOT_A_FOLLOWER, NO_RIGHT, NO_CLUSTER_RIGHT = 6, 29, 31
CONTROLLED_SHUTDOWN, WITHOUT_HEADER = 7, 0  # its first version has a header of its own


@pytest.fixture(scope="module")
def ruled(tmp_path_factory):
    with ruled_broker(tmp_path_factory.mktemp("ruled"), **{"broker.id": "1"}) as made:
        made.broker.node.serving.administration.topics.create(NewTopic(TOPIC, 1, 1), False)
        with made.rights([(WRITE, TOPIC_TYPE, TOPIC)]), Wire(made.address) as wire:
            assert produce(wire, [(TOPIC, 0, batch(3))]) == {(TOPIC, 0): 0}
        yield made


@pytest.fixture(scope="module")
def topic_id(ruled):
    return ruled.broker.node.cluster().topic(TOPIC).topic_id


@contextlib.contextmanager
def cluster_of_one(folder, server):
    with ruled_broker(folder, **{"broker.id": "1"}, **on_zookeeper(server)) as made:
        made.broker.node.serving.administration.topics.create(NewTopic(TOPIC, 1, 1), False)
        yield made


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, zookeeper_server):
    with cluster_of_one(tmp_path_factory.mktemp("cluster"), zookeeper_server) as made:
        yield made


@pytest.mark.parametrize("right", BROKER_RIGHTS)
@pytest.mark.parametrize("kind", ["ruled", pytest.param("cluster", marks=pytest.mark.java)])
def test_answers_are_those_of_kafka_on_zookeeper(request, kind, right):
    made = request.getfixturevalue(kind)
    table, topic_id = made.broker.node.bound.apis, made.broker.node.cluster().topic(TOPIC).topic_id
    kafka = recorded(ZOOKEEPER_FILE)
    asked, closed = set(), set()
    with made.rights(rights_of(right)):
        for (key, case, version, given), wanted in kafka.items():
            if given != right:
                continue
            [fields] = [f for name, f in questions(key, version, topic_id) if name == case]
            if key not in table or not table[key].serves(version):
                wanted = CLOSED
                closed.add((key, version))
            with Wire(made.address) as wire:
                assert ask(wire, key, version, fields) == wanted, (key, case, version)
            asked.add(key)
    assert asked == set(BETWEEN_BROKERS + OF_FOLLOWERS)
    if kind == "cluster":
        closed = {(key, version) for key, version in closed if key in BETWEEN_BROKERS}
        assert closed == {(CONTROLLED_SHUTDOWN, WITHOUT_HEADER)}


def test_requests_between_brokers_need_cluster_action():
    """Of the rights that Kafka was asked with. ALTER of the cluster permits WriteTxnMarkers too."""
    kafka = recorded(ZOOKEEPER_FILE)
    for key in BETWEEN_BROKERS:
        refused = {
            right
            for (known, _case, _version, right), answer in kafka.items()
            if known == key and answer == str(NO_CLUSTER_RIGHT)
        }
        permitted = {"CLUSTER_ACTION CLUSTER"} | ({"ALTER CLUSTER"} if key == 27 else set())
        assert refused == set(BROKER_RIGHTS) - permitted


def harmful(key, state):
    """The latest version of a request, and fields by which it changes what `found_in` sees."""
    topic, own = state.topic(TOPIC), state.brokers[1]
    sender = {
        "controllerId": 1,
        "controllerEpoch": state.controller_epoch,
        "brokerEpoch": own.epoch,
        "liveLeaders": [],
        "liveBrokers": [],
    }
    part = {
        "partitionIndex": 0,
        "controllerEpoch": state.controller_epoch,
        "leader": 7,
        "leaderEpoch": 100,
        "isr": [7],
        "partitionEpoch": 100,
        "zkVersion": 100,
        "replicas": [1, 7],
    }
    states = [{"topicName": TOPIC, "topicId": topic.topic_id, "partitionStates": [part]}]
    marker = {
        "producerId": 5,
        "producerEpoch": 0,
        "transactionResult": False,
        "coordinatorEpoch": 0,
        "topics": [{"name": TOPIC, "partitionIndexes": [0]}],
    }
    return {
        4: (7, sender | {"topicStates": states}),
        6: (8, sender | {"topicStates": states}),
        27: (1, {"markers": [marker]}),
        67: (0, {"brokerId": 1, "brokerEpoch": own.epoch}),
    }[key]


def found_in(made):
    """The partition's state and end, and the next producer ids."""
    node = made.broker.node
    handle = node.loaded.table.partition(TOPIC, 0)
    known = node.cluster().topic(TOPIC).partitions[0]
    block = node.opened.tree.exists(znodes.PRODUCER_ID_BLOCK_PATH)
    return known, handle.leader_epoch, handle.high_watermark, block


@pytest.mark.java
@pytest.mark.parametrize("key", [4, 6, 27, 67])
def test_a_client_without_cluster_action_changes_nothing(tmp_path, zookeeper_server, key):
    with cluster_of_one(tmp_path, zookeeper_server) as made:
        is_not_done_without_the_right(made, key)


def is_not_done_without_the_right(cluster, key):
    version, fields = harmful(key, cluster.broker.node.cluster())
    before = found_in(cluster)
    with Wire(cluster.address) as wire:
        for given in ([], [(READ, TOPIC_TYPE, TOPIC), (DESCRIBE, CLUSTER, CLUSTER_NAME)]):
            with cluster.rights(given):
                assert ask(wire, key, version, fields) == str(NO_CLUSTER_RIGHT)
            assert found_in(cluster) == before
        with cluster.rights([(CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)]):
            assert ask(wire, key, version, fields).startswith(PERMITTED)
        assert found_in(cluster) != before


def rows_of(wire, version, topic, replica_id):
    answer = wire.call(1, version, fetch_body(version, [(topic, 0)], replica_id=replica_id))
    [part] = [part for row in answer.responses for part in row.partitions]
    return part.errorCode, part.highWatermark, part.logStartOffset, len(part.records or b"")


@pytest.mark.parametrize("version", range(4, 19))
def test_a_consumer_with_a_replica_id_learns_and_changes_nothing(ruled, topic_id, version):
    """CVE-2018-1288: with the right to read it sends the id of the leader, or of another broker."""
    topic = uuid_bytes(topic_id) if version >= 13 else TOPIC
    partition = ruled.broker.node.loaded.table.partition(TOPIC, 0)
    before = partition.high_watermark, partition.leader_epoch
    for replica_id in (0, 1, 7, 2**31 - 1):
        with Wire(ruled.address) as wire:
            with ruled.rights([(READ, TOPIC_TYPE, TOPIC)]):
                code, high_watermark, _, size = rows_of(wire, version, topic, -1)
                assert (code, high_watermark, size > 0) == (0, 3, True)
                assert rows_of(wire, version, topic, replica_id) == (NO_RIGHT, -1, -1, 0)
            with ruled.rights([(CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)]):
                code, _, _, size = rows_of(wire, version, topic, replica_id)
                assert (code, size) == (NOT_A_FOLLOWER, 0)
    assert before == (partition.high_watermark, partition.leader_epoch)


@pytest.fixture
def led(ruled):
    """The topic's partition, with broker 7 as a follower in the ISR; its end is 3."""
    table = ruled.broker.node.loaded.table
    handle = table.partition(TOPIC, 0)
    epoch = handle.leader_epoch
    for replicas in ((1, 7), (1,)):
        table.set_leader(TOPIC, 0, leader_id=1, leader_epoch=epoch, replicas=replicas, isr=replicas)
        if replicas == (1, 7):
            yield table


def follower_end(table):
    [state] = table.replica_states(TOPIC, 0)
    return state.log_end_offset


@pytest.mark.parametrize("version", range(4, 19))
def test_only_the_right_of_brokers_moves_a_follower(ruled, led, topic_id, version):
    topic = uuid_bytes(topic_id) if version >= 13 else TOPIC
    body = fetch_body(version, [(topic, 3)], replica_id=7)
    with Wire(ruled.address) as wire:
        with ruled.rights([(READ, TOPIC_TYPE, TOPIC)]):
            wire.call(1, version, body)
            assert follower_end(led) == -1
        with ruled.rights([(CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)]):
            assert rows_of(wire, version, topic, 7)[::3] == (0, len(batch(3)))
            wire.call(1, version, body)
            assert follower_end(led) == 3


def test_an_append_answers_a_waiting_follower_and_its_next_fetch_answers_acks_all(
    ruled, led, topic_id
):
    topic = uuid_bytes(topic_id)
    rights = [(CLUSTER_ACTION, CLUSTER, CLUSTER_NAME), (WRITE, TOPIC_TYPE, TOPIC)]
    found = []

    def follow():
        with Wire(ruled.address) as wire:
            for offset in (3, 6):
                body = fetch_body(17, [(topic, offset)], replica_id=7, max_wait_ms=20_000)
                found.append(wire.call(1, 17, body).responses[0].partitions[0])

    with ruled.rights(rights), Wire(ruled.address) as wire:
        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        began = time.monotonic()
        assert produce(wire, [(TOPIC, 0, batch(3))]) == {(TOPIC, 0): 0}
        assert time.monotonic() - began < 10
        assert [len(part.records) for part in found] == [len(batch(3))]
        assert produce(wire, [(TOPIC, 0, batch(3))], acks=1) == {(TOPIC, 0): 0}
        follower.join(10)
        assert len(found) == 2
