"""Compares the requests of the controller with those of a plain model, in random histories: the
model keeps a row of its own for each partition and broker, and shares nothing.

Topics are created, deleted, marked and created again; states change, also backwards; replicas move;
brokers refuse replicas, and report failed logs; newer states interrupt the requests of an earlier
one."""

import random
from dataclasses import replace
from types import MappingProxyType

import pytest
from controller.test_broker_requests import as_decoded, broker
from long_form import pick

from barnabas.api.controller_requests import partition_updates
from barnabas.controller import state_difference
from barnabas.controller.broker_requests import (
    DURING_DELETE,
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    AcknowledgedState,
    next_requests,
)
from barnabas.controller.state_difference import StateDifferences
from barnabas.errors import InconsistentTopicId, KafkaStorageError
from barnabas.metadata.cluster_state import ClusterState, Partition, Topic
from barnabas.metadata.znodes import PartitionState, TopicAssignment
from barnabas.wire import response
from barnabas.wire.uuids import uuid_text

SEEDS = pick(short=6, long=500)
STEPS, REQUESTS_MAX = 40, 6
IDS, NAMES, CONTROLLER, OTHERS = (1, 2, 3, 4), ("a", "b", "c"), 1, (2, 3, 4)
OTHER_ERROR = 11
VERSIONS = {LEADER_AND_ISR: 7, STOP_REPLICA: 4, UPDATE_METADATA: 8}
LAST_UNGROUPED = {LEADER_AND_ISR: 1, UPDATE_METADATA: 4}


class Plain:
    """What one broker has acknowledged: for each partition the topic id, version, leader epoch,
    replicas, and whether LeaderAndIsr has named it."""

    def __init__(self, broker_id):
        self.broker_id, self.rows, self.topics = broker_id, {}, {}
        self.brokers, self.epoch, self.asks_again = None, -1, False

    def row(self, topic, index):
        row = self.rows.get((topic.name, index))
        return row if row and row[0] == topic.topic_id else None

    def requests(self, state):
        """Yields the key and the places of each request, and gets the error codes by place."""
        changed = [
            topic
            for topic in state.topics.values()
            if self.asks_again or self.topics.get(topic.name) is not topic
        ]
        if (self.brokers, self.epoch) != (state.brokers, state.controller_epoch):
            yield UPDATE_METADATA, []
            self._knows(state)
        deleted = list(self._deleted(state, changed))
        stopped = [place for place, is_replica in deleted if is_replica]
        stopped += [
            (topic.name, index)
            for topic in changed
            for index, partition in topic.partitions.items()
            if (row := self.row(topic, index))
            and row[4]
            and self.broker_id not in partition.replicas
        ]
        yield from self._stop(stopped)
        if deleted:
            yield UPDATE_METADATA, [place for place, _ in deleted]
            for place, _ in deleted:
                self.rows.pop(place, None)
        strays = yield from self._lead(list(self._hosted(changed)), state)
        yield from self._stop(strays)
        yield from self._lead(strays, state)
        self.asks_again = False
        newer = [
            (topic.name, index)
            for topic in changed
            if not topic.deleting
            for index, partition in topic.partitions.items()
            if partition.state
            if not (row := self.row(topic, index)) or partition.state_version > row[1]
        ]
        if newer:
            yield UPDATE_METADATA, newer
            self._knows(state)
            for place in newer:
                known = self.row(state.topics[place[0]], place[1])
                self._note(state, place, is_replica=bool(known and known[4]))
        self.topics = dict(state.topics)

    def _knows(self, state):
        self.brokers, self.epoch = state.brokers, state.controller_epoch

    def acknowledge(self, state, places):
        """Records a part of the last UpdateMetadata."""
        self._knows(state)
        for place in places:
            if state.topics.get(place[0]) and not state.topics[place[0]].deleting:
                known = self.row(state.topics[place[0]], place[1])
                self._note(state, place, is_replica=bool(known and known[4]))

    def _deleted(self, state, changed):
        for (name, index), row in self.rows.items():
            if name not in state.topics:
                yield (name, index), row[4]
        for topic in changed:
            for (name, index), row in self.rows.items():
                if name == topic.name and row[0] != topic.topic_id:
                    yield (name, index), row[4]
            if topic.deleting:
                for index, partition in topic.partitions.items():
                    yield (topic.name, index), self.broker_id in partition.replicas

    def _stop(self, places):
        if places:
            yield STOP_REPLICA, places
            for place in places:
                if place in self.rows:
                    self.rows[place] = (*self.rows[place][:4], False)

    def _hosted(self, changed):
        for topic in changed:
            for index, partition in topic.partitions.items():
                row, state = self.row(topic, index), partition.state
                if topic.deleting or not state or self.broker_id not in partition.replicas:
                    continue
                same = row and row[2:] == (state.leader_epoch, partition.replicas, True)
                if self.asks_again or not same:
                    yield topic.name, index

    def _lead(self, places, state):
        strays = []
        if places:
            codes = yield LEADER_AND_ISR, places
            for place in places:
                if codes.get(place) == InconsistentTopicId.code:
                    strays.append(place)
                    continue
                known = self.row(state.topics[place[0]], place[1])
                self._note(state, place, is_replica=True, version=known[1] if known else -1)
        return strays

    def _note(self, state, place, is_replica, version=None):
        topic = state.topics[place[0]]
        partition = topic.partitions[place[1]]
        version = partition.state_version if version is None else version
        now = partition.state.leader_epoch, partition.replicas, is_replica
        self.rows[place] = topic.topic_id, version, *now


class History:
    """Random states of a cluster."""

    def __init__(self, chance):
        self.chance, self.topics, self.epoch, self._ids = chance, {}, 3, 0

    def next(self):
        for _ in range(self.chance.choice([0, 1, 1, 2, 4])):
            self._change(self.chance.choice(NAMES))
        self.epoch += self.chance.random() < 0.1
        alive = {id_ for id_ in IDS if id_ == CONTROLLER or self.chance.random() < 0.95}
        return ClusterState(
            controller_id=CONTROLLER,
            controller_epoch=self.epoch,
            brokers={id_: broker(id_, 100 + id_) for id_ in sorted(alive)},
            topics=MappingProxyType(dict(self.topics)),
        )

    def _replicas(self):
        return tuple(self.chance.sample(IDS, self.chance.randint(1, 3)))

    def _change(self, name):
        topic, kind = self.topics.get(name), self.chance.random()
        if topic is None or kind < 0.05:
            self.topics[name] = self._new(name)
        elif kind < 0.12:
            del self.topics[name]
        elif kind < 0.2:
            self.topics[name] = replace(topic, deleting=True)
        elif not topic.deleting:
            index = self.chance.choice(list(topic.partitions))
            rows = {**topic.partitions, index: self._changed(topic.partitions[index])}
            self.topics[name] = replace(topic, partitions=MappingProxyType(rows))

    def _new(self, name):
        self._ids += 1
        rows = {}
        for index in range(self.chance.randint(1, 4)):
            replicas = self._replicas()
            state = PartitionState(replicas[0], 0, replicas, self.epoch)
            if self.chance.random() < 0.1:
                rows[index] = Partition(replicas)
            else:
                rows[index] = Partition(replicas, state, 0, 50)
        topic_id = uuid_text(self._ids.to_bytes(16, "big"))
        assignment = TopicAssignment({index: row.replicas for index, row in rows.items()}, topic_id)
        return Topic(name, assignment, 0, MappingProxyType(rows))

    def _changed(self, was):
        kind, state = self.chance.random(), was.state
        if state is None:
            first = PartitionState(was.replicas[0], 0, was.replicas, self.epoch)
            return Partition(was.replicas, first, 0, 50)
        later = was.state_version + 1
        if kind < 0.4:
            return replace(was, state=replace(state, isr=state.isr[:1]), state_version=later)
        if kind < 0.7:
            leader = self.chance.choice(was.replicas)
            now = replace(state, leader=leader, leader_epoch=state.leader_epoch + 1)
            return replace(was, state=now, state_version=later)
        if kind < 0.75 and was.state_version > 0:
            return replace(was, state_version=was.state_version - 1)
        now = replace(state, leader_epoch=state.leader_epoch + self.chance.choice([0, 1]))
        version = was.state_version + self.chance.choice([0, 1])
        return replace(was, replicas=self._replicas(), state=now, state_version=version)


def errors(chance):
    """Error codes of the answers to LeaderAndIsr, by place."""
    codes = [InconsistentTopicId.code, KafkaStorageError.code, OTHER_ERROR, *[0] * 12]
    return {(name, index): chance.choice(codes) for name in NAMES for index in range(4)}


def answer_of(row, decoded, codes):
    message = response(row.key)
    if row.key != LEADER_AND_ISR:
        return message.cls()
    topic_of, row_of = message.struct("topics"), message.struct("topics.partitionErrors")
    rows = [
        topic_of(
            topicId=topic.topicId,
            partitionErrors=[
                row_of(
                    partitionIndex=each.partitionIndex,
                    errorCode=codes.get((topic.topicName, each.partitionIndex), 0),
                )
                for each in topic.partitionStates
            ],
        )
        for topic in decoded.topicStates
    ]
    return message.cls(topics=rows)


def places_in(row, decoded, state, broker_id):
    """Returns the places of a request, after a check of what it says of each."""
    if row.key == STOP_REPLICA:
        return [
            (topic.topicName, each.partitionIndex)
            for topic in decoded.topicStates
            for each in topic.partitionStates
        ]
    assert decoded.brokerEpoch == 100 + broker_id
    assert decoded.controllerEpoch == state.controller_epoch
    if row.key == UPDATE_METADATA:
        assert {each.id for each in decoded.liveBrokers} == state.brokers.keys()
    found = []
    for update in partition_updates(decoded, LAST_UNGROUPED[row.key], VERSIONS[row.key]):
        found.append((update.topic, update.index))
        if update.state.leader != DURING_DELETE:
            partition = state.topics[update.topic].partitions[update.index]
            assert update.topic_id == state.topics[update.topic].topic_id
            now = partition.state, partition.state_version, partition.replicas
            assert (update.state, update.version, update.replicas) == now
    return found


@pytest.mark.parametrize("partitions_max", [2, 10_000])
@pytest.mark.parametrize("part", range(2))
def test_each_broker_gets_the_requests_that_it_would_get_alone(part, partitions_max, monkeypatch):
    monkeypatch.setattr(state_difference, "PARTITIONS_MAX", partitions_max)
    for seed in range(part, SEEDS, 2):
        chance = random.Random(seed)
        history, differences = History(chance), StateDifferences()
        brokers = {id_: (AcknowledgedState(id_, 100 + id_), Plain(id_)) for id_ in OTHERS}
        for step in range(STEPS):
            state = history.next()
            for broker_id in chance.sample(OTHERS, len(OTHERS)):
                acknowledged, plain = brokers[broker_id]
                if chance.random() < 0.1:
                    acknowledged.asks_again = plain.asks_again = True
                _exchange(acknowledged, plain, state, differences, chance, (seed, step, broker_id))


def _exchange(acknowledged, plain, state, differences, chance, where):
    """Sends up to REQUESTS_MAX requests; a newer state interrupts those that are left."""
    acknowledged.settle()
    difference = differences.between(acknowledged.base, state)
    found = next_requests(acknowledged, state, CONTROLLER, difference)
    expected, codes = plain.requests(state), errors(chance)
    is_refused_once = chance.random() < 0.5
    row, asked = next(found, None), next(expected, None)
    for _ in range(chance.randint(0, REQUESTS_MAX)):
        if row is None:
            break
        decoded = as_decoded(row, VERSIONS[row.key])
        places = places_in(row, decoded, state, acknowledged.broker_id)
        assert asked is not None, (where, row.key, places)
        while row.key == UPDATE_METADATA and {*places} < {*asked[1]}:
            row.acknowledge(response(row.key).cls())  # those of all brokers, then its own
            if chance.random() < 0.4:
                plain.acknowledge(state, places)
                return
            row = next(found, None)
            assert row is not None and row.key == UPDATE_METADATA, where
            decoded = as_decoded(row, VERSIONS[row.key])
            places += places_in(row, decoded, state, acknowledged.broker_id)
        assert (row.key, {*places}) == (asked[0], {*asked[1]}), where
        row.acknowledge(answer_of(row, decoded, codes))
        row = next(found, None)
        try:
            asked = expected.send(codes)
        except StopIteration:
            asked = None
        if is_refused_once and STOP_REPLICA in (asked or ()):
            codes = {}  # the files of an earlier topic are deleted
    assert (row is None) == (asked is None), where


def test_brokers_with_the_same_state_share_what_is_new():
    """So the controller computes it once, and encodes each UpdateMetadata request once."""
    state = History(random.Random(1)).next()
    while not state.topics:
        state = History(random.Random(2)).next()
    differences, bodies = StateDifferences(), []
    brokers = [AcknowledgedState(id_, 100 + id_) for id_ in OTHERS]
    used = {id(differences.between(row.base, state)) for row in brokers}
    assert len(used) == 1
    for row in brokers:
        difference = differences.between(row.base, state)
        for made in next_requests(row, state, CONTROLLER, difference):
            if made.key == UPDATE_METADATA:
                bodies.append(made.body(8))
            made.acknowledge(response(made.key).cls())
        assert row.base is state.topics and not row.rows
        assert row.has(state)
    assert len(difference._encoded) == len(bodies) // len(OTHERS)
    assert all(isinstance(body, bytes) for body in bodies)
