"""The controller sends a broker only what it has not acknowledged, in every version."""

from dataclasses import replace
from types import MappingProxyType

import pytest

from barnabas.api.controller_requests import partition_updates
from barnabas.controller.broker_requests import (
    DURING_DELETE,
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    AcknowledgedState,
    next_requests,
)
from barnabas.errors import InconsistentTopicId, KafkaStorageError
from barnabas.metadata.cluster_state import Broker, ClusterState, Partition, Topic
from barnabas.metadata.znodes import (
    BrokerRegistration,
    Endpoint,
    PartitionState,
    TopicAssignment,
    uuid_bytes,
)
from barnabas.wire import request, response

IDS = {"t": "AAAAAAAAQAEAAAAAAAAAAQ", "u": "AAAAAAAAQAEAAAAAAAAAAg"}
CONTROLLER = 1
STALE_CONTROLLER_EPOCH = 11


def broker(broker_id, epoch):
    endpoint = Endpoint("PLAINTEXT", f"h{broker_id}", 9092, "PLAINTEXT")
    return Broker(broker_id, BrokerRegistration((endpoint,), 0, rack=f"r{broker_id}"), epoch)


def topic(name, *partitions, deleting=False):
    rows = dict(enumerate(partitions))
    assignment = TopicAssignment({i: row.replicas for i, row in rows.items()}, IDS[name])
    return Topic(name, assignment, 0, MappingProxyType(rows), deleting)


def partition(replicas, leader, epoch=0, version=0, isr=None):
    state = PartitionState(leader, epoch, tuple(isr or replicas), 3)
    return Partition(tuple(replicas), state, version, 50)


def cluster(*topics, brokers=(1, 2, 3)):
    return ClusterState(
        controller_id=CONTROLLER,
        controller_epoch=3,
        brokers={id_: broker(id_, 100 + id_) for id_ in brokers},
        topics={row.name: row for row in topics},
    )


def knows_brokers(broker_id):
    """A broker that knows the live ones, and no partition."""
    return AcknowledgedState(broker_id, 100 + broker_id, cluster().brokers, controller_epoch=3)


def requests(acknowledged_state, state, acknowledged=True):
    """The requests, as {key: [topic-partition, ...]}; each is encoded in all of its versions."""
    found = {}
    for row in next_requests(acknowledged_state, state, CONTROLLER):
        places = []
        for version in range(row.version_max + 1):
            back = as_decoded(row, version)
            assert back.controllerEpoch == 3
            assert getattr(back, "brokerEpoch", -1) in (-1, acknowledged_state.broker_epoch)
            places.append(sorted(_places(row.key, back, version)))
        assert all(each == places[0] for each in places), (row.key, places)
        found.setdefault(row.key, []).extend(f"{name}-{index}" for name, index in places[0])
        if not acknowledged:
            break
        row.acknowledge(response(row.key).cls())
    return found


def as_decoded(row, version):
    """The request as its broker decodes it."""
    body, message = row.body(version), request(row.key)
    encoded = body if isinstance(body, bytes) else message.encode(body, version)
    return message.decode(encoded, version)


def _places(key, back, version):
    if key == STOP_REPLICA:
        if version == 0:
            return [(row.topicName, row.partitionIndex) for row in back.ungroupedPartitions]
        if version < 3:
            return [(row.name, index) for row in back.topics for index in row.partitionIndexes]
        return [
            (row.topicName, each.partitionIndex)
            for row in back.topicStates
            for each in row.partitionStates
        ]
    last = 1 if key == LEADER_AND_ISR else 4
    return [(row.topic, row.index) for row in partition_updates(back, last, version)]


def test_a_broker_knows_the_live_ones_before_it_is_asked_to_follow():
    """Kafka follows no leader that it does not know as a live broker."""
    state = cluster(topic("t", partition([1, 2], 1)))
    keys = []
    for row in next_requests(AcknowledgedState(2, 102), state, CONTROLLER):
        keys.append(row.key)
        row.acknowledge(response(row.key).cls())
    assert keys == [UPDATE_METADATA, LEADER_AND_ISR, UPDATE_METADATA]


def test_a_new_broker_gets_update_metadata_of_all_and_leader_and_isr_of_its_replicas():
    acknowledged_state = AcknowledgedState(2, 102)
    state = cluster(topic("t", partition([1, 2], 1), partition([1, 3], 1)))
    assert requests(acknowledged_state, state) == {
        LEADER_AND_ISR: ["t-0"],
        UPDATE_METADATA: ["t-0", "t-1"],
    }
    assert requests(acknowledged_state, state) == {}


def test_a_changed_isr_is_sent_by_update_metadata_only():
    acknowledged_state = AcknowledgedState(2, 102)
    requests(acknowledged_state, cluster(topic("t", partition([1, 2], 1))))
    shrunk = cluster(topic("t", partition([1, 2], 1, version=1, isr=[1])))
    assert requests(acknowledged_state, shrunk) == {UPDATE_METADATA: ["t-0"]}


def test_another_leader_epoch_or_replica_list_is_sent_by_leader_and_isr():
    acknowledged_state = AcknowledgedState(2, 102)
    requests(acknowledged_state, cluster(topic("t", partition([1, 2], 1))))
    moved = cluster(topic("t", partition([1, 2], 2, epoch=1, version=1)))
    assert requests(acknowledged_state, moved) == {
        LEADER_AND_ISR: ["t-0"],
        UPDATE_METADATA: ["t-0"],
    }
    grown = cluster(topic("t", partition([1, 2, 3], 2, epoch=1, version=1, isr=[1, 2])))
    assert requests(acknowledged_state, grown) == {LEADER_AND_ISR: ["t-0"]}


def test_what_was_not_acknowledged_is_sent_again():
    acknowledged_state = knows_brokers(2)
    state = cluster(topic("t", partition([1, 2], 1)))
    assert requests(acknowledged_state, state, acknowledged=False) == {LEADER_AND_ISR: ["t-0"]}
    newer = cluster(topic("t", partition([1, 2], 1, epoch=4, version=7)))
    assert requests(acknowledged_state, newer) == {
        LEADER_AND_ISR: ["t-0"],
        UPDATE_METADATA: ["t-0"],
    }


def test_a_state_that_is_older_than_the_acknowledged_one_is_not_sent():
    acknowledged_state = AcknowledgedState(2, 102)
    requests(acknowledged_state, cluster(topic("t", partition([1, 3], 1, version=5))))
    assert requests(acknowledged_state, cluster(topic("t", partition([1, 3], 1, version=4)))) == {}


def test_brokers_alone_are_told_too():
    acknowledged_state = AcknowledgedState(2, 102)
    state = cluster(topic("t", partition([1, 2], 1)))
    requests(acknowledged_state, state)
    assert requests(
        acknowledged_state, replace(state, brokers=cluster(brokers=(1, 2)).brokers)
    ) == {UPDATE_METADATA: []}


def test_a_replica_that_moved_away_is_stopped():
    acknowledged_state = AcknowledgedState(2, 102)
    requests(acknowledged_state, cluster(topic("t", partition([1, 2], 1))))
    moved = cluster(topic("t", partition([1, 3], 1, epoch=1, version=1)))
    assert requests(acknowledged_state, moved) == {STOP_REPLICA: ["t-0"], UPDATE_METADATA: ["t-0"]}
    assert requests(acknowledged_state, moved) == {}


@pytest.mark.parametrize("is_marked_first", [True, False])
def test_a_deleted_topic(is_marked_first):
    acknowledged_state = AcknowledgedState(2, 102)
    one, two = topic("t", partition([1, 2], 1)), topic("u", partition([1, 2], 1))
    requests(acknowledged_state, cluster(one, two))
    deleted = {STOP_REPLICA: ["t-0"], UPDATE_METADATA: ["t-0"]}
    if is_marked_first:
        assert requests(acknowledged_state, cluster(replace(one, deleting=True), two)) == deleted
    else:
        assert requests(acknowledged_state, cluster(two)) == deleted
    assert requests(acknowledged_state, cluster(two)) == {}
    again = replace(topic("t", partition([1, 2], 2)), assignment=one.assignment)
    assert requests(acknowledged_state, cluster(again, two)) == {
        LEADER_AND_ISR: ["t-0"],
        UPDATE_METADATA: ["t-0"],
    }


def test_a_topic_made_again_under_another_id_is_new():
    acknowledged_state = AcknowledgedState(2, 102)
    requests(acknowledged_state, cluster(topic("t", partition([1, 2], 1, version=9))))
    other = TopicAssignment({0: (1, 2)}, IDS["u"])
    again = replace(topic("t", partition([1, 2], 1, version=0)), assignment=other)
    assert requests(acknowledged_state, cluster(again)) == {
        STOP_REPLICA: ["t-0"],
        UPDATE_METADATA: ["t-0", "t-0"],  # the former one ends, and the new one begins
        LEADER_AND_ISR: ["t-0"],
    }
    assert requests(acknowledged_state, cluster(again)) == {}


def test_a_topic_that_goes_while_its_leaders_are_told_is_stopped():
    acknowledged_state = knows_brokers(2)
    requests(acknowledged_state, cluster(topic("t", partition([1, 2], 1))), acknowledged=False)
    [row, *_] = next_requests(
        acknowledged_state, cluster(topic("t", partition([1, 2], 1))), CONTROLLER
    )
    row.acknowledge(response(row.key).cls())  # and then the newer state comes
    assert requests(acknowledged_state, cluster()) == {
        STOP_REPLICA: ["t-0"],
        UPDATE_METADATA: ["t-0"],
    }


def test_a_partition_that_is_deleted_has_kafkas_leader():
    """Also for a broker that heard of the topic from an earlier controller."""
    acknowledged_state = knows_brokers(2)
    marked = topic("t", partition([1, 2], 1), deleting=True)
    stop, row = next_requests(acknowledged_state, cluster(marked), CONTROLLER)
    [stopped] = as_decoded(stop, 4).topicStates[0].partitionStates
    assert stop.key == STOP_REPLICA and stopped.leaderEpoch == DURING_DELETE
    [sent] = partition_updates(as_decoded(row, 8), 4, 8)
    assert row.key == UPDATE_METADATA and sent.state.leader == DURING_DELETE


@pytest.mark.parametrize("version", [4, 7])
def test_files_of_an_earlier_topic_are_deleted(version):
    """Kafka keeps the files of a topic that was deleted while it was away."""
    acknowledged_state = knows_brokers(2)
    state = cluster(topic("t", partition([1, 2], 1), partition([1, 2], 1)))
    sent = []
    for row in next_requests(acknowledged_state, state, CONTROLLER):
        sent.append(row.key)
        answer = response(row.key).cls()
        if sent == [LEADER_AND_ISR]:
            answer = _inconsistent(version)
        if row.key == STOP_REPLICA:
            [place] = _places(row.key, as_decoded(row, 4), 4)
            assert place == ("t", 1)
        row.acknowledge(answer)
    assert sent == [LEADER_AND_ISR, STOP_REPLICA, LEADER_AND_ISR, UPDATE_METADATA]
    assert requests(acknowledged_state, state) == {}


def _inconsistent(version):
    return _refused(version, InconsistentTopicId.code)


def _refused(version, code):
    """The answer about t-1 to LeaderAndIsr."""
    message = response(LEADER_AND_ISR)
    if version < 5:
        row_of = message.struct("partitionErrors")
        row = row_of(topicName="t", partitionIndex=1, errorCode=code)
        return message.cls(partitionErrors=[row])
    row_of = message.struct("topics.partitionErrors")
    row = row_of(partitionIndex=1, errorCode=code)
    topic_of = message.struct("topics")
    return message.cls(topics=[topic_of(topicId=uuid_bytes(IDS["t"]), partitionErrors=[row])])


@pytest.mark.parametrize("version", range(8))
def test_a_broker_that_is_asked_again_says_which_of_its_logs_have_failed(version):
    acknowledged_state = AcknowledgedState(2, 102)
    state = cluster(
        topic("t", partition([1, 2], 1), partition([2, 3], 2), partition([1, 3], 1)),
    )
    requests(acknowledged_state, state)
    assert acknowledged_state.offline == frozenset()
    for code, offline in [
        (KafkaStorageError.code, {("t", 1)}),
        (STALE_CONTROLLER_EPOCH, {("t", 1)}),  # of a Kafka broker whose state is as new: unknown
        (0, set()),
        (KafkaStorageError.code, {("t", 1)}),
    ]:
        acknowledged_state.asks_again = True
        [row] = next_requests(acknowledged_state, state, CONTROLLER)
        assert row.key == LEADER_AND_ISR
        assert sorted(_places(row.key, as_decoded(row, version), version)) == [("t", 0), ("t", 1)]
        row.acknowledge(_refused(version, code))
        assert acknowledged_state.offline == offline
        assert requests(acknowledged_state, state) == {}
    requests(acknowledged_state, cluster())
    assert acknowledged_state.offline == frozenset()


def test_replicas_on_brokers_that_are_away_are_offline():
    acknowledged_state = AcknowledgedState(2, 102)
    state = cluster(topic("t", partition([1, 2, 3], 1)), brokers=(1, 2))
    row = list(next_requests(acknowledged_state, state, CONTROLLER))[-1]
    assert as_decoded(row, 8).topicStates[0].partitionStates[0].offlineReplicas == [3]
