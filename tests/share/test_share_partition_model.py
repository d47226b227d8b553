"""SharePartition compared with a model that has a row for each offset, for random histories of a
partition: batches of the log, members that fetch, acknowledge and fall silent, failed writes,
crashes."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule
from oracle.share_partition import ACQUIRED, ARCHIVING, AVAILABLE, RELEASE, RENEW, Model

from barnabas.coordinator.share.share_partition import (
    Acknowledgement,
    Acquisition,
    SharePartition,
    StateBatch,
)
from barnabas.errors import InvalidRecordState, InvalidRequest

MEMBERS = ("ada", "bob", "cyd")
LOCK_MS = 30


class Life(RuleBasedStateMachine):
    pendings = Bundle("pendings")

    def __init__(self):
        super().__init__()
        self.log = [
            (0, 5, False)
        ]  # (first, last, whether aborted); offsets in none of them are compacted away
        self.log_end = 6
        self.log_start = 0
        self.now = 0
        self.limit = 3
        self.letters = False
        self.partition = SharePartition(0)
        self.model = Model(0)
        self.kept = {}  # offset -> (state, deliveries)
        self.kept_start = 0
        self.open = {}  # number of a change -> (change, offset -> (state, deliveries), start then)
        self.numbers = 0
        self.delivered = set()
        self.accepted = set()

    def pending(self):
        return {offset for _, rows, _ in self.open.values() for offset in rows}

    @rule(size=st.integers(1, 6), gap=st.sampled_from([0, 0, 0, 1, 3]), aborted=st.booleans())
    def append(self, size, gap, aborted):
        first = self.log_end + gap
        self.log_end = first + size
        self.log.append((first, self.log_end - 1, aborted and size % 2 == 0))

    @rule(
        member=st.sampled_from(MEMBERS),
        most=st.integers(1, 9),
        batch_size=st.integers(1, 5),
        strict=st.booleans(),
        locks=st.integers(4, 25),
        read=st.integers(1, 3),
    )
    def fetch(self, member, most, batch_size, strict, locks, read):
        pending = self.pending()
        offset = self.partition.next_offset()
        assert offset == self.model.next_offset(pending)
        before_end, free_before = self.model.end, locks - (self.model.end - self.model.start)
        batches = [row for row in self.log if row[1] >= offset][:read]
        terms = Acquisition(member, most, batch_size, strict, locks, self.limit, self.now + LOCK_MS)
        given = self.partition.acquire(
            offset,
            [row[:2] for row in batches],
            terms,
            [row[:2] for row in batches if row[2]],
        )
        told = {o: row.deliveries for row in given for o in range(row.first, row.last + 1)}
        assert len(told) == sum(row.last - row.first + 1 for row in given)
        known = {
            o for first, last, aborted in batches if not aborted for o in range(first, last + 1)
        }
        assert told.keys() <= known
        if strict:
            assert len(told) <= most
            new = [o for o in told if o >= before_end]
            assert len(new) <= max(free_before, 0)
        for o, count in sorted(told.items()):
            assert self.model.give(o, member, self.now + LOCK_MS) == count <= self.limit
        # Offsets without a record are finished, up to the end of the fetch.
        reached = max([self.partition.end - 1, *told], default=offset - 1)
        for o in range(offset, reached + 1):
            if o not in known and any(o <= row[1] for row in batches):
                self.model.skip(o, pending) if o >= before_end or self._is_over(o) else None
        self.model.advance()
        self.delivered |= told.keys()
        assert not told.keys() & self.accepted

    @rule(member=st.sampled_from(MEMBERS))
    def fetch_what_there_is(self, member):
        self.fetch(member, 100, 100, False, 100, 9)

    @rule(pick=st.integers(0, 30), kind=st.sampled_from([1, 2, 2, 3]))
    @precondition(lambda self: any(row[0] == ACQUIRED for row in self.model.rows.values()))
    def acknowledge_one(self, pick, kind):
        """Acknowledges; the state is persisted at once, with all earlier changes."""
        self.written(self.acknowledge_what_is_out(pick, None, [kind], 0), False)

    def _is_over(self, offset):
        """An offset in no batch is finished once a fetch has passed it."""
        found = [run for run in self.partition.runs if run.first <= offset <= run.last]
        return offset < self.partition.start or (found and found[0].state != AVAILABLE)

    @rule(
        target=pendings,
        member=st.sampled_from(MEMBERS),
        first=st.integers(0, 40),
        kinds=st.lists(st.integers(0, 4), min_size=1, max_size=5),
        one_for_all=st.integers(0, 4),
    )
    def acknowledge(self, member, first, kinds, one_for_all):
        rows = [Acknowledgement(first, first + len(kinds) - 1, kinds)]
        if one_for_all:
            rows = [Acknowledgement(first, first + one_for_all, kinds[:1])]
            kinds = kinds[:1] * (one_for_all + 1)
        asked = {first + at: kind for at, kind in enumerate(kinds)}
        asked = {o: kind for o, kind in asked.items() if o >= self.model.start}
        pending = self.pending()
        fits = all(self.model.is_owned(o, member, pending) for o in asked)
        terms = {"now_ms": self.now, "deadline_ms": self.now + LOCK_MS, "delivery_max": self.limit}
        try:
            change = self.partition.acknowledge(member, rows, dead_letters=self.letters, **terms)
        except (InvalidRecordState, InvalidRequest):
            assert not fits
            return None
        assert fits
        for o, kind in asked.items():
            if kind == RENEW:
                self.model.rows[o][3] = self.now + LOCK_MS
        return self._begun(
            change,
            {
                o: self.model.after(o, kind, self.limit, self.letters)
                for o, kind in asked.items()
                if kind != RENEW
            },
        )

    @rule(
        target=pendings,
        pick=st.integers(0, 30),
        member=st.sampled_from((None, None, None, *MEMBERS)),
        kinds=st.lists(st.integers(0, 4), min_size=1, max_size=4),
        one_for_all=st.integers(0, 3),
    )
    @precondition(lambda self: any(row[0] == ACQUIRED for row in self.model.rows.values()))
    def acknowledge_what_is_out(self, pick, member, kinds, one_for_all):
        """Mostly by the member that acquired it; the other rule covers invalid acknowledgements."""
        out = sorted(o for o, row in self.model.rows.items() if row[0] == ACQUIRED)
        first = out[pick % len(out)]
        return self.acknowledge(member or self.model.rows[first][2], first, kinds, one_for_all)

    def _begun(self, change, wanted):
        told = {
            o: (row.state, row.deliveries)
            for row in change.batches
            for o in range(row.first, row.last + 1)
        }
        assert told == wanted
        self.numbers += 1
        self.open[self.numbers] = change, told, self.partition.start
        return self.numbers

    @rule(number=pendings, lost=st.sampled_from([False, False, True]))
    def written(self, number, lost):
        """Writes end in their order."""
        while number in self.open:
            first = min(self.open)
            change, rows, start = self.open.pop(first)
            if lost:
                self.partition.undo(change)
                continue
            self.kept |= rows
            self.kept_start = start
            self.accepted |= {o for o, (state, _) in rows.items() if state == 2}
            self.partition.finish(change)
            self.model.settle(rows)

    @rule(target=pendings, member=st.sampled_from(MEMBERS))
    def leave(self, member):
        pending = self.pending()
        wanted = {
            o: self.model.after(o, RELEASE, self.limit, self.letters)
            for o in self.model.rows
            if self.model.is_owned(o, member, pending)
        }
        change = self.partition.release(member, self.limit, self.letters)
        return self._begun(change, wanted)

    @rule(target=pendings, later=st.integers(1, 2 * LOCK_MS))
    def time_passes(self, later):
        self.now += later
        pending = self.pending()
        wanted = {
            o: self.model.after(o, RELEASE, self.limit, self.letters)
            for o, row in self.model.rows.items()
            if row[0] == ACQUIRED and row[3] <= self.now and o not in pending
        }
        return self._begun(self.partition.expire(self.now, self.limit, self.letters), wanted)

    @rule(target=pendings)
    @precondition(lambda self: any(row[0] == ARCHIVING for row in self.model.rows.values()))
    def letters_written(self):
        pending = self.pending()
        wanted = {
            o: (4, row[1])
            for o, row in self.model.rows.items()
            if row[0] == ARCHIVING and o not in pending
        }
        change = self.partition.archived(self.partition.start, self.partition.end - 1)
        return self._begun(change, wanted)

    @rule(on=st.booleans())
    def dead_letters(self, on):
        self.letters = on

    @rule(by=st.integers(1, 8))
    def old_segments_go(self, by):
        self.log_start = min(self.log_start + by, self.log_end)
        self.partition.log_starts_at(self.log_start)
        self.model.log_starts_at(self.log_start)

    @rule(really=st.sampled_from([False, False, False, True]))
    def crash(self, really):
        if not really:
            return
        self.open.clear()
        rows = {o: row for o, row in self.kept.items() if o >= self.kept_start}
        batches = [StateBatch(o, o, *row) for o, row in rows.items()]
        self.partition = SharePartition(self.kept_start, batches)
        self.model = Model(self.kept_start, rows)
        if self.log_start > self.partition.start:
            self.partition.log_starts_at(self.log_start)
            self.model.log_starts_at(self.log_start)

    @invariant()
    def the_same(self):
        told = {}
        at = self.partition.start
        for run in self.partition.runs:
            assert run.first == at and run.last >= run.first, self.partition.runs
            at = run.last + 1
            for o in range(run.first, run.last + 1):
                told[o] = [run.state, run.count, run.member_id, run.deadline_ms]
        assert at == self.partition.end
        assert (self.partition.start, self.partition.end) == (self.model.start, self.model.end)
        assert told == self.model.rows

    def teardown(self):
        """No more failures: all remaining records are delivered and accepted."""
        for number in list(self.open):
            self.written(number, False)
        self.letters = False
        while True:
            before = self.partition.start, self.partition.end, repr(self.partition.runs)
            self.written(self.time_passes(LOCK_MS), False)
            if any(row[0] == ARCHIVING for row in self.model.rows.values()):
                self.written(self.letters_written(), False)
            self.fetch("zoe", 1000, 1000, False, 1000, 100)
            out = sorted(o for o, row in self.model.rows.items() if row[2] == "zoe")
            for o in out:
                self.the_same()
                terms = {"now_ms": self.now, "deadline_ms": 0, "delivery_max": self.limit}
                change = self.partition.acknowledge("zoe", [Acknowledgement(o, o, [1])], **terms)
                self.written(self._begun(change, {o: (2, self.model.rows[o][1])}), False)
            if (self.partition.start, self.partition.end, repr(self.partition.runs)) == before:
                break
        assert self.partition.start == self.partition.end
        wanted = {
            o
            for first, last, aborted in self.log
            if not aborted
            for o in range(first, last + 1)
            if o >= self.log_start
        }
        assert wanted <= self.delivered


Life.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestLife = Life.TestCase


def terms(**changed):
    asked = {
        "member_id": "ada",
        "records_max": 10,
        "batch_size": 10,
        "strict": False,
        "locks_max": 100,
        "delivery_max": 5,
        "deadline_ms": 100,
    }
    return Acquisition(**{**asked, **changed})


def test_whole_batches_are_handed_out_and_only_as_many_records_as_asked_when_strict():
    partition = SharePartition(0)
    assert partition.acquire(0, [(0, 24), (25, 30)], terms()) == [(0, 24, 1)]
    strict = SharePartition(0)
    assert strict.acquire(0, [(0, 24), (25, 30)], terms(strict=True)) == [(0, 9, 1)]
    assert strict.acquire(10, [(0, 24)], terms(strict=True, member_id="bob")) == [(10, 19, 1)]


def test_ranges_are_as_long_as_the_member_wants_where_batches_allow():
    partition = SharePartition(0)
    batches = [(0, 1), (2, 3), (4, 5), (6, 7)]
    given = partition.acquire(0, batches, terms(batch_size=3))
    assert given == [(0, 3, 1), (4, 7, 1)]


def test_no_more_records_are_out_than_the_group_allows():
    partition = SharePartition(0)
    assert partition.acquire(0, [(0, 4), (5, 9)], terms(locks_max=5)) == [(0, 4, 1)]
    assert not partition.can_acquire(5)
    change = partition.acknowledge(
        "ada", [Acknowledgement(0, 0, [1])], now_ms=0, deadline_ms=1, delivery_max=5
    )
    partition.finish(change)
    assert partition.can_acquire(5)


def test_a_record_that_failed_often_is_handed_out_alone():
    partition = SharePartition(0, [StateBatch(0, 3, AVAILABLE, 1), StateBatch(4, 6, AVAILABLE, 4)])
    assert partition.acquire(0, [(0, 9)], terms()) == [(0, 3, 2)]
    assert partition.acquire(4, [(0, 9)], terms()) == [(4, 4, 5)]
    assert partition.acquire(5, [(0, 9)], terms()) == [(5, 5, 5)]


def test_an_acknowledgement_that_fits_in_part_changes_nothing():
    partition = SharePartition(0)
    partition.acquire(0, [(0, 4)], terms())
    asked = {"now_ms": 0, "deadline_ms": 1, "delivery_max": 5}
    with pytest.raises(InvalidRequest):
        partition.acknowledge("ada", [Acknowledgement(3, 7, [1])], **asked)
    with pytest.raises(InvalidRecordState):
        partition.acknowledge("bob", [Acknowledgement(0, 1, [1])], **asked)
    change = partition.acknowledge("ada", [Acknowledgement(0, 4, [1])], **asked)
    with pytest.raises(InvalidRecordState):  # its write is pending
        partition.acknowledge("ada", [Acknowledgement(0, 0, [1])], **asked)
    partition.undo(change)
    partition.finish(partition.acknowledge("ada", [Acknowledgement(0, 4, [1])], **asked))
    assert (partition.start, partition.end, partition.runs) == (5, 5, [])


def test_what_is_out_is_not_handed_out_again_with_its_batch():
    partition = SharePartition(0)
    partition.acquire(0, [(0, 4)], terms())
    asked = {"now_ms": 0, "deadline_ms": 1, "delivery_max": 5}
    partition.finish(partition.acknowledge("ada", [Acknowledgement(1, 1, [2])], **asked))
    change = partition.acknowledge("ada", [Acknowledgement(3, 3, [2])], **asked)  # not persisted
    assert partition.next_offset() == 1
    given = partition.acquire(1, [(0, 4)], terms(member_id="bob"))
    assert given == [(1, 1, 2)]
    partition.finish(change)
    assert partition.acquire(3, [(0, 4)], terms(member_id="bob")) == [(3, 3, 2)]
