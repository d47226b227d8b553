"""Operations on share states at coordinators that move, load, or do not answer."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from share.moved_timers import MovedTimers

from barnabas.coordinator.journal import id_hash
from barnabas.coordinator.share.persister import (
    RETRY_FOR_MS,
    RETRY_MAX_MS,
    RETRY_MS,
    ClusterPersister,
)
from barnabas.coordinator.share.share_partition import ACKNOWLEDGED, StateBatch
from barnabas.coordinator.share.share_state import ShareKey, StoredShare
from barnabas.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
    NotCoordinator,
    UnknownTopicOrPartition,
)
from barnabas.wire.internal import SHARE_GROUP_STATE

OWN, OTHER = 1, 2
KEY = ShareKey("g", bytes(range(16)), 3)
PARTITIONS = 7


class State:
    """The coordinator of this node: each call gets the next outcome, or waits for `answers`."""

    def __init__(self, clock):
        self.clock = clock
        self.outcomes = []
        self.calls = []  # (time in ms, operation, arguments)
        self.answers = []

    def _call(self, name, arguments, answer):
        self.calls.append((self.clock.ms, name, arguments))
        if not self.outcomes:
            self.answers.append(answer)
            return
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        answer(outcome)

    def read(self, key, epoch, found):
        self._call("read", (key, epoch), lambda kept: found(None, kept))

    def write(self, *arguments):
        *rest, done = arguments
        self._call("write", tuple(rest), lambda error: done(error))

    def delete(self, keys, done):
        self._call("delete", tuple(keys), done)


class Rig:
    def __init__(self):
        self.clock = MovedTimers()
        self.state = State(self.clock)
        self.leader = OWN
        self.persister = ClusterPersister(
            node_id=OWN,
            state=self.state,
            cluster=self.cluster,
            connect=lambda broker_id: pytest.fail("no broker is asked"),
            timers=self.clock,
        )
        self.found = []

    def cluster(self):
        index = id_hash(KEY.text()) % PARTITIONS
        partitions = {at: SimpleNamespace(state=None) for at in range(PARTITIONS)}
        partitions[index].state = SimpleNamespace(leader=self.leader)
        topic = SimpleNamespace(partitions=partitions)
        return SimpleNamespace(
            brokers={OWN: None},
            topic=lambda name: topic if name == SHARE_GROUP_STATE else None,
        )

    def read(self, epoch=1):
        self.persister.read(KEY, epoch, lambda *outcome: self.found.append(outcome))

    def write(self, start):
        batch = StateBatch(start, start + 1, ACKNOWLEDGED, 1)
        self.persister.write(KEY, 0, 1, start, 2, [batch], self.found.append)


@pytest.fixture
def rig():
    return Rig()


@pytest.mark.parametrize(
    "error", [NotCoordinator, CoordinatorLoadInProgress, CoordinatorNotAvailable]
)
def test_a_coordinator_that_moves_or_loads_is_asked_again_with_growing_pauses(rig, error):
    kept = StoredShare(start=5)
    rig.state.outcomes = [error(), error(), error(), kept]
    rig.read()
    rig.clock.run(RETRY_FOR_MS)
    assert rig.found == [(None, kept)]
    assert [row[0] for row in rig.state.calls] == [0, RETRY_MS, 3 * RETRY_MS, 7 * RETRY_MS]


def test_it_gives_up_after_a_time(rig):
    rig.state.outcomes = [NotCoordinator() for _ in range(1000)]
    rig.read()
    rig.clock.run(RETRY_FOR_MS + 2 * RETRY_MAX_MS)
    [(error, kept)] = rig.found
    assert isinstance(error, NotCoordinator) and kept is None
    times = [row[0] for row in rig.state.calls]
    assert RETRY_FOR_MS <= times[-1] <= RETRY_FOR_MS + RETRY_MAX_MS
    assert max(b - a for a, b in zip(times, times[1:], strict=False)) == RETRY_MAX_MS


def test_a_state_without_a_live_coordinator_waits_for_one(rig):
    rig.leader = OTHER  # which is not alive
    rig.read()
    rig.clock.run(1_000)
    assert rig.found == [] and rig.state.calls == []
    rig.leader = OWN
    rig.state.outcomes = [StoredShare()]
    rig.clock.run(2_000)
    assert rig.found == [(None, StoredShare())]


def test_a_fenced_leader_is_not_asked_again(rig):
    rig.state.outcomes = [FencedLeaderEpoch()]
    rig.read()
    rig.clock.run(RETRY_FOR_MS)
    [(error, _)] = rig.found
    assert isinstance(error, FencedLeaderEpoch) and len(rig.state.calls) == 1


def test_the_operations_of_a_share_partition_keep_their_order(rig):
    """A second write must not overtake the first one, which is tried again: the first one would
    then move the start back."""
    rig.state.outcomes = [NotCoordinator(), None]
    rig.write(10)
    rig.write(20)
    rig.read()
    rig.clock.run(10_000)
    assert [(row[1], row[2][3]) for row in rig.state.calls if row[1] == "write"] == [
        ("write", 10),
        ("write", 10),
        ("write", 20),
    ]
    assert rig.found == [None]
    rig.state.outcomes = [StoredShare(start=22)]
    rig.state.answers.pop()(None)
    rig.clock.run(10_000)
    assert rig.found == [None, None, (None, StoredShare(start=22))]


def test_the_state_of_a_deleted_topic_is_not_deleted_again(rig):
    rig.state.outcomes = [UnknownTopicOrPartition()]
    rig.persister.delete([KEY], rig.found.append)
    rig.clock.run(RETRY_FOR_MS)
    assert len(rig.state.calls) == 1 and isinstance(rig.found[0], UnknownTopicOrPartition)
