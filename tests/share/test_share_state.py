"""The share coordinator on a journal whose writes the test completes: what is answered when, which
epochs are fenced, and what another coordinator loads from the same records."""

import itertools

import pytest

from barnabas.coordinator.share.share_counts import ShareCounts
from barnabas.coordinator.share.share_partition import ACKNOWLEDGED, ARCHIVED, AVAILABLE, StateBatch
from barnabas.coordinator.share.share_state import ShareKey, ShareState
from barnabas.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
    FencedStateEpoch,
    InvalidRequest,
    NotCoordinator,
)
from barnabas.wire.batches import Record, decode_batches, encode_batch

TOPIC_ID, OTHER_ID = b"t" * 16, b"o" * 16
KEY = ShareKey("g", TOPIC_ID, 0)
START = 10
BATCH = StateBatch(12, 14, ACKNOWLEDGED, 1)


class Journal:
    """One partition. A write is durable when the test says so."""

    def __init__(self):
        self.refusal = None
        self.entries = []
        self.waiting = []

    def partition_of(self, _name):
        return 0

    def check(self, _partition):
        if self.refusal is not None:
            raise self.refusal

    def append(self, _partition, entries, done):
        self.check(0)
        self.entries += entries
        self.waiting.append(done)

    def complete(self, error=None):
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done(error)


def coordinator(journal):
    return ShareState(
        journal=journal,
        wall_ms=lambda: 0,
        updates_max=lambda: 5,
        cut=lambda *_: None,
        end_of=lambda _: 0,
        counts=ShareCounts(itertools.count().__next__),
    )


@pytest.fixture
def journal():
    return Journal()


@pytest.fixture
def state(journal):
    made = coordinator(journal)
    made.initialize(KEY, 3, START, lambda error: None)
    journal.complete()
    return made


class Outcome(list):
    """What was called back, None until then."""

    def __call__(self, *values):
        self.append(values)


def read(state, epoch, key=KEY):
    found = Outcome()
    state.read(key, epoch, found)
    return found


def write(state, leader_epoch=1, state_epoch=3, start=START):
    done = Outcome()
    state.write(KEY, state_epoch, leader_epoch, start, 3, [BATCH], done)
    return done


def summary(state):
    found = Outcome()
    state.summary(KEY, found)
    return found[0]


def loaded_from(journal):
    records = [Record(value, key) for key, value in journal.entries]
    other = coordinator(Journal())
    for batch in decode_batches(encode_batch(records), size_max=1 << 20):
        other.replay(0, batch)
    return other


def test_a_read_is_answered_when_the_leaders_epoch_is_durable(state, journal):
    found = read(state, 1)
    assert found == []
    journal.complete()
    [(error, kept)] = found
    assert error is None and (kept.start, kept.leader_epoch) == (START, 1)
    [(error, again)] = read(state, 1)  # nothing new: at once
    assert error is None and again.start == START


def test_a_read_does_not_tell_what_is_not_durable(state, journal):
    """The new leader would treat these records as acknowledged, although they are not when the
    write is lost."""
    read(state, 1)
    journal.complete()
    write(state)
    found = read(state, 1)
    assert found == []
    journal.complete(NotCoordinator())
    [(error, kept)] = found
    assert isinstance(error, NotCoordinator) and kept is None


def test_a_read_after_a_failed_one_is_not_answered_at_once(state, journal):
    """The log may still lose the leader's epoch, and with it the fence of the former leader."""
    read(state, 1)
    journal.complete(CoordinatorNotAvailable())
    for _ in range(2):
        found = read(state, 1)
        assert found == []
    journal.complete()
    assert found[0][1].leader_epoch == 1
    [(error, again)] = read(state, 1)
    assert error is None and again.leader_epoch == 1


def test_the_log_has_all_changes_after_one_could_not_be_written(state, journal):
    before = len(journal.entries)
    write(state)
    del journal.entries[before:]
    journal.complete(CoordinatorNotAvailable())
    found = read(state, 1)
    journal.complete()
    assert found[0][1].batches == (BATCH,)
    _, after = summary(loaded_from(journal))
    assert after.batches == (BATCH,)


def test_a_write_that_comes_again_takes_nothing_back(state, journal):
    """A request that was sent again arrives after the writes that followed it. A simulated cluster
    found it: records were delivered again whose acknowledgement was confirmed."""

    def change(start, complete_count, *batches):
        state.write(KEY, 3, 1, start, complete_count, batches, lambda error: None)
        journal.complete()
        return summary(state)[1]

    first = START, 0, StateBatch(10, 19, AVAILABLE, 1), StateBatch(30, 30, ACKNOWLEDGED, 1)
    change(*first)
    released = StateBatch(16, 17, AVAILABLE, 2), StateBatch(15, 15, ARCHIVED, 2)
    wanted = change(14, 3, StateBatch(10, 14, ACKNOWLEDGED, 2), *released)
    assert (wanted.start, wanted.complete_count) == (14, 3)
    again = change(*first)
    assert (again.start, again.complete_count) == (14, 3)
    over = {row.first: row.state for row in again.batches if row.state != AVAILABLE}
    assert over == {14: ACKNOWLEDGED, 15: ARCHIVED, 30: ACKNOWLEDGED}
    assert summary(loaded_from(journal))[1].batches == again.batches
    reset = Outcome()
    state.initialize(KEY, 4, START, reset)  # an administrator sets the offsets
    journal.complete()
    kept = summary(state)[1]
    assert kept.start == START and kept.batches == ()


def test_a_former_leader_is_fenced(state, journal):
    read(state, 2)
    with pytest.raises(FencedLeaderEpoch):
        read(state, 1)
    with pytest.raises(FencedLeaderEpoch):
        write(state, leader_epoch=1)
    write(state, leader_epoch=2)


def test_a_leader_with_a_former_state_is_fenced(state, journal):
    state.initialize(KEY, 4, 0, lambda error: None)
    with pytest.raises(FencedStateEpoch):
        write(state, state_epoch=3)
    with pytest.raises(FencedStateEpoch):
        state.initialize(KEY, 3, 0, lambda error: None)


@pytest.mark.parametrize("refusal", [NotCoordinator(), CoordinatorLoadInProgress()])
def test_one_that_has_moved_or_loads_refuses_everything(state, journal, refusal):
    journal.refusal = refusal
    for ask in (
        lambda: read(state, 1),
        lambda: write(state),
        lambda: state.initialize(KEY, 5, 0, lambda error: None),
        lambda: state.delete([KEY], lambda error: None),
        lambda: state.summary(KEY, lambda *found: None),
    ):
        with pytest.raises(type(refusal)):
            ask()


def test_another_coordinator_loads_the_same_states_from_the_log(state, journal):
    gone = ShareKey("g", TOPIC_ID, 1)
    state.initialize(gone, 3, START, lambda error: None)
    state.delete([gone], lambda error: None)
    read(state, 2)
    for turn in range(8):  # more than the updates between two snapshots
        write(state, leader_epoch=2, start=START + turn // 4)
    other = loaded_from(journal)
    (_, before), (_, after) = summary(state), summary(other)
    assert (after.state_epoch, after.leader_epoch, after.start) == (3, 2, START + 1)
    assert after.batches == before.batches == (BATCH,)
    with pytest.raises(FencedLeaderEpoch):
        write(other, leader_epoch=1)
    with pytest.raises(InvalidRequest):
        read(other, 2, gone)
    other.unloaded(0)
    assert other.keys() == []


def test_the_states_of_deleted_topics_are_deleted_once(state, journal):
    other = ShareKey("g", OTHER_ID, 0)
    state.initialize(other, 3, START, lambda error: None)
    before = len(journal.entries)
    state.forget_topics(lambda topic_id: topic_id != TOPIC_ID)
    state.forget_topics(lambda topic_id: topic_id != TOPIC_ID)
    assert [value for _key, value in journal.entries[before:]] == [None]
    assert state.keys() == [other]
