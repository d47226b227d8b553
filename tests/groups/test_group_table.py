"""The table against which commits are checked: Kafka's rules for each kind and state of a group,
and what remains of a group that is replaced, removed or on hold."""

import random
import struct

import pytest

from barnabas.cext.coordinator.group_table import GroupTable

LAST = 10  # version of OffsetCommit
T, OTHER = bytes(range(16)), bytes(16)  # ids of topics
UNKNOWN, GENERATION, REBALANCE, VERSION, NOT_FOUND, FENCED, STALE = 25, 22, 27, 35, 69, 82, 113


def code(table, member="", epoch=-1, *, instance=None, version=LAST, transactional=False):
    return table.check("g", member, instance, epoch, version, transactional, [(OTHER, 0)])


@pytest.fixture
def table():
    return GroupTable()


def test_a_group_that_does_not_exist(table):
    assert code(table) == 0, "the commit makes it"
    assert code(table, "m", 3) == NOT_FOUND
    assert code(table, "m", 3, version=8) == GENERATION
    assert code(table, "m", 3, transactional=True) == GENERATION


def test_a_classic_group_without_members(table):
    table.put("g", 0, generation=3)
    assert code(table) == 0 and code(table, "anybody") == 0
    assert code(table, "m", 3) == UNKNOWN


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Stable"])
def test_a_classic_group_with_members(table, state):
    table.put("g", 0, [("m", None, -1, True), ("s", "one", -1, True)], state=state, generation=3)
    completing = REBALANCE if state == "CompletingRebalance" else 0
    assert code(table, "m", 3) == completing and code(table, "s", 3, instance="one") == completing
    assert code(table, "s", 3) == completing
    assert code(table, "m", 3, transactional=True) == 0
    assert code(table, transactional=True) == 0, "a producer without a member id"
    assert code(table) == UNKNOWN and code(table, "x", 3) == UNKNOWN
    assert code(table, "m", 2) == GENERATION and code(table, "m") == GENERATION
    assert code(table, "m", 3, instance="one") == FENCED
    assert code(table, "x", 3, instance="one") == FENCED
    assert code(table, "m", 3, instance="two") == UNKNOWN
    assert code(table, "m", 3, instance="") == UNKNOWN


def test_a_consumer_group(table):
    table.put("g", 0, kind="consumer")
    assert code(table) == 0 and code(table, "m", 1) == UNKNOWN
    table.put_member("g", "m", None, 4, speaks_classic=False)
    table.put_member("g", "c", None, 4, speaks_classic=True)
    assert code(table) == UNKNOWN
    assert code(table, "m", 4) == 0 and code(table, "m", 4, version=9) == 0
    assert code(table, "m", 4, version=8) == VERSION
    assert code(table, "m", 4, version=0, transactional=True) == 0
    assert code(table, "m", 3) == STALE and code(table, "m", 5) == STALE
    assert code(table, "c", 4, version=1) == 0 and code(table, "c", 3) == GENERATION
    table.put_member("g", "m", None, 5, speaks_classic=False)
    assert code(table, "m", 5) == 0 and code(table, "m", 4) == STALE
    table.remove_member("g", "m")
    assert code(table, "m", 5) == UNKNOWN and code(table, "c", 4) == 0


def held(*rows):
    """Partitions of topic T: (index, the epoch since which the member has had it)."""
    return b"".join(sorted(struct.pack(">16sii", T, *row) for row in rows))


@pytest.mark.parametrize("speaks_classic", [False, True])
def test_a_member_commits_in_an_earlier_epoch_for_what_it_has_had_since(table, speaks_classic):
    """A classic member of a consumer group got ILLEGAL_GENERATION for its own partitions."""
    refused = GENERATION if speaks_classic else STALE
    table.put("g", 0, kind="consumer")
    table.put_member("g", "m", "i", 5, speaks_classic, held((0, 3), (7, 5), (300, 4)))

    def at(epoch, *rows, **more):
        rows = [(T, row) if isinstance(row, int) else row for row in rows]
        return table.check("g", "m", None, epoch, LAST, more.get("transactional", False), rows)

    for transactional in (False, True):
        assert at(3, 0, transactional=transactional) == 0
        assert at(3, 300, transactional=transactional) == refused
    assert at(4, 0) == at(4, 300) == at(4, 0, 300) == 0
    assert at(2, 0) == at(4, 7) == at(4, 0, 7) == at(4, 1) == at(4, (OTHER, 0)) == refused
    assert at(5, 1, 7, (OTHER, 0)) == 0, "in its own epoch: whatever partition"
    assert at(6, 0) == refused, "an epoch that is not reached"
    table.put_member("g", "m", "i", 6, speaks_classic)
    assert at(5, 0) == refused, "it has nothing"


def test_a_consumer_group_accepts_a_producer_that_names_no_member(table):
    """A consumer group answered UNKNOWN_MEMBER_ID; a classic group already accepted it."""
    table.put("g", 0, [("m", "i", 4, False)], kind="consumer")
    assert code(table, transactional=True) == 0
    assert code(table, transactional=True, instance="i") == UNKNOWN
    assert code(table, "x", transactional=True) == UNKNOWN
    assert code(table, epoch=4, transactional=True) == UNKNOWN
    assert code(table, epoch=-2, transactional=True) == UNKNOWN


def test_partitions_of_members_are_found(table):
    """Compares with a dictionary."""
    rng, ids = random.Random(3), [bytes([i]) * 16 for i in range(5)]
    for count in (0, 1, 2, 3, 50):
        known = {(rng.choice(ids), rng.randrange(400)): rng.randrange(5) for _ in range(count)}
        rows = sorted(struct.pack(">16sii", *key, epoch) for key, epoch in known.items())
        table.put("g", 0, [("m", None, 9, False, b"".join(rows))], kind="consumer")
        for key in [*known, *((rng.choice(ids), rng.randrange(400)) for _ in range(200))]:
            epoch = rng.randrange(5)
            expected = 0 if known.get(key, 99) <= epoch else STALE
            assert table.check("g", "m", None, epoch, LAST, False, [key]) == expected


def test_a_change_takes_the_place_of_what_was_known(table):
    table.put("g", 0, [("m", None, -1, True)], state="Stable", generation=3)
    table.set_state("g", "PreparingRebalance", 3)
    table.set_state("g", "CompletingRebalance", 4)
    assert code(table, "m", 4) == REBALANCE and code(table, "m", 3) == GENERATION
    table.put("g", 0, [("n", None, 1, False)], kind="consumer")
    assert table.count == 1 and code(table, "m", 4) == UNKNOWN and code(table, "n", 1) == 0
    table.remove("g")
    assert table.count == 0 and code(table) == 0
    table.remove("g")
    table.set_state("g", "Stable", 1)
    table.put_member("g", "m", None)
    table.remove_member("g", "m")
    assert table.count == 0 and table.heard_ms("g", "m") == -1


def test_many_groups_and_members_are_found_and_forgotten(table):
    """Compares with a dictionary."""
    rng, known = random.Random(5), {}
    for _ in range(20_000):
        group, member = f"g{rng.randrange(300)}", f"m{rng.randrange(20)}"
        step = rng.randrange(5)
        if step == 0:
            known[group] = {}
            table.put(group, 0, kind="consumer")
        elif step == 1:
            known.pop(group, None)
            table.remove(group)
        elif step == 2 and group in known:
            known[group][member] = epoch = rng.randrange(9)
            table.put_member(group, member, None, epoch, False)
        elif step == 3 and group in known:
            known[group].pop(member, None)
            table.remove_member(group, member)
        epoch = rng.randrange(9)
        if group not in known:
            expected = NOT_FOUND
        elif member not in known[group]:
            expected = UNKNOWN
        else:
            expected = 0 if known[group][member] == epoch else STALE
        assert table.check(group, member, None, epoch, LAST, False, [(OTHER, 0)]) == expected
        assert table.count == len(known)


def test_a_state_that_groups_do_not_have(table):
    with pytest.raises(KeyError):
        table.put("g", 0, state="Dead")
    assert table.count == 0
