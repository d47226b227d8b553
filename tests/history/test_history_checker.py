"""The checker of histories finds each planted anomaly; correct histories pass."""

import random

import pytest
from history.checker import ANOMALIES, check
from history.model import History, Operation, Outcome, Read, Send
from history.sound import SoundBroker
from hypothesis import given, settings
from hypothesis import strategies as st

OK, FAIL, UNKNOWN = Outcome.OK, Outcome.FAIL, Outcome.UNKNOWN
A, B = "a/0", "a/1"


def op(process, began, **more):
    """An operation of five ticks."""
    return Operation(process=process, began=began, ended=more.pop("ended", began + 5), **more)


def sends(process, began, *rows, partition=A, **more):
    """Rows: (value, offset)."""
    return op(process, began, sends=tuple(Send(partition, *row) for row in rows), **more)


def txn(process, began, *rows, **more):
    """Rows: (partition, value, offset). The commit is asked for in the third tick."""
    made = tuple(Send(*row) for row in rows)
    return op(process, began, sends=made, **{"transactional": True, "deciding": began + 3, **more})


def polls(process, began, *rows, partition=A, **more):
    """Rows: (offset, value)."""
    return op(process, began, reads=tuple(Read(partition, *row) for row in rows), **more)


def scan(began, *rows, partition=A, process="scan"):
    return polls(process, began, *rows, partition=partition, scan=True, scanned=(partition,))


def commits(process, began, offset, **more):
    return op(process, began, group="g", commits={A: offset}, **more)


def fetched(process, began, offset):
    return op(process, began, group="g", positions={A: offset})


# name -> a history with exactly that anomaly. Times are ticks.
PLANTED = {
    "lost-write: a later one is read": (
        {"lost-write"},
        [sends("s", 0, (1, 0)), sends("t", 0, (2, 1)), polls("p", 10, (1, 2))],
    ),
    "lost-write: no offset was told, and a later one of its burst is read": (
        {"lost-write", "send-skip"},
        [sends("s", 0, (1, None), (2, 1)), scan(10, (1, 2))],
    ),
    "unseen: the last one": (
        {"unseen"},
        [sends("s", 0, (1, 0)), sends("t", 0, (2, 1)), scan(10, (0, 1))],
    ),
    "unseen: a whole partition": (
        {"unseen"},
        [
            sends("s", 0, (1, 0)),
            sends("t", 0, (2, 0), partition=B),
            scan(10),
            scan(10, (0, 2), partition=B),
        ],
    ),
    "vanished: a reader had what a later scan lacks": (
        {"vanished"},
        [
            sends("s", 0, (1, None), (2, None), outcome=UNKNOWN),
            polls("p", 10, (0, 1), (1, 2)),
            scan(20, (0, 1)),
        ],
    ),
    "duplicate: read at two offsets": (
        {"duplicate"},
        [sends("s", 0, (1, None)), scan(10, (0, 1), (1, 1))],
    ),
    "duplicate: acknowledged here and read there": (
        {"duplicate"},
        [sends("s", 0, (1, 0)), scan(10, (5, 1))],
    ),
    "inconsistent-offset: two readers differ": (
        {"inconsistent-offset"},
        [
            sends("s", 0, (1, None), outcome=UNKNOWN),
            sends("t", 0, (2, None), outcome=UNKNOWN),
            polls("p", 10, (0, 1)),
            polls("q", 10, (0, 2)),
        ],
    ),
    "inconsistent-offset: an offset that was acknowledged in an abort is given out again": (
        {"inconsistent-offset"},
        [
            txn("t", 0, (A, 1, 0), outcome=FAIL),
            sends("s", 10, (2, 0)),
            scan(20, (0, 2)),
        ],
    ),
    "invented: nobody sent it": (
        {"invented"},
        [sends("s", 0, (1, 0)), scan(10, (0, 1), (1, 99))],
    ),
    "invented: it was sent to another partition": (
        {"invented"},
        [sends("s", 0, (1, None)), polls("p", 10, (0, 1), partition=B)],
    ),
    "torn-transaction: its end is not known, and one partition of two has it": (
        {"torn-transaction"},
        [
            txn("t", 0, (A, 1, None), (B, 2, None), outcome=UNKNOWN, ended=None),
            scan(10, (0, 1)),
            scan(10, partition=B),
        ],
    ),
    "torn-transaction: two in one partition, the first is passed over": (
        {"torn-transaction"},
        [
            txn("t", 0, (A, 1, 0), (A, 2, 1), outcome=UNKNOWN, ended=None),
            polls("p", 10, (1, 2)),
        ],
    ),
    "G1a: an aborted transaction is read": (
        {"G1a"},
        [txn("t", 0, (A, 1, 0), outcome=FAIL), scan(10, (0, 1))],
    ),
    "G1a: a record that was refused is read": (
        {"G1a"},
        [op("s", 0, sends=(Send(A, 1, None, FAIL),)), scan(10, (0, 1))],
    ),
    "G1a: an offset of an aborted transaction is fetched": (
        {"G1a"},
        [
            sends("s", 0, (1, 0)),
            scan(10, (0, 1)),
            commits("c", 20, 0),
            txn("t", 30, (B, 2, 0), outcome=FAIL, group="g", commits={A: 1}),
            fetched("c", 40, 1),
        ],
    ),
    "dirty-read: before the commit was asked for": (
        {"dirty-read"},
        [txn("t", 0, (A, 1, 0), ended=100, deciding=90), scan(10, (0, 1))],
    ),
    "dirty-read: of its own": (
        {"dirty-read", "G1c"},
        [txn("t", 0, (A, 1, 0), reads=(Read(A, 0, 1),), ended=10, deciding=20), scan(30, (0, 1))],
    ),
    "G1c: two transactions read each other's records": (
        {"G1c"},
        [
            txn("t", 0, (A, 1, 0), reads=(Read(B, 0, 2),)),
            txn("u", 0, (B, 2, 0), reads=(Read(A, 0, 1),)),
            scan(10, (0, 1)),
            scan(10, (0, 2), partition=B),
        ],
    ),
    "poll-skip: inside of one poll": (
        {"poll-skip"},
        [sends("s", 0, (1, 0), (2, 1), (3, 2)), polls("p", 10, (0, 1), (2, 3)),
         scan(20, (0, 1), (1, 2), (2, 3))],
    ),
    "poll-skip: between two polls": (
        {"poll-skip"},
        [sends("s", 0, (1, 0), (2, 1), (3, 2)), polls("p", 10, (0, 1)), polls("p", 15, (2, 3)),
         scan(20, (0, 1), (1, 2), (2, 3))],
    ),
    "nonmonotonic-poll: back inside of a poll": (
        {"nonmonotonic-poll"},
        [sends("s", 0, (1, 0), (2, 1)), polls("p", 10, (1, 2), (0, 1)), scan(20, (0, 1), (1, 2))],
    ),
    "nonmonotonic-poll: the same again": (
        {"nonmonotonic-poll"},
        [sends("s", 0, (1, 0)), polls("p", 10, (0, 1)), polls("p", 15, (0, 1))],
    ),
    "nonmonotonic-send: inside of a burst": (
        {"nonmonotonic-send"},
        [sends("s", 0, (1, 1), (2, 0)), scan(10, (0, 2), (1, 1))],
    ),
    "nonmonotonic-send: of two operations, as read": (
        {"nonmonotonic-send"},
        [sends("s", 0, (1, None)), sends("s", 6, (2, None)), scan(20, (0, 2), (1, 1))],
    ),
    "send-skip: not acknowledged, and a later one is there": (
        {"send-skip"},
        [sends("s", 0, (1, None), (2, None), outcome=UNKNOWN, ended=None), scan(10, (1, 2))],
    ),
    "lost-commit: an older one is back": (
        {"lost-commit"},
        [sends("s", 0, (1, 0)), polls("c", 10, (0, 1), group="g"), commits("c", 20, 0),
         commits("c", 30, 1), fetched("d", 40, 0)],
    ),
    "lost-commit: nothing is there": (
        {"lost-commit"},
        [sends("s", 0, (1, 0)), scan(10, (0, 1)), commits("c", 20, 0), fetched("d", 40, None)],
    ),
    "lost-commit: of a transaction whose records are there": (
        {"lost-commit"},
        [
            sends("s", 0, (1, 0)),
            polls("t", 10, (0, 1), group="g"),
            commits("c", 15, 0),
            txn("t", 25, (B, 2, 0), outcome=UNKNOWN, ended=None, group="g", commits={A: 1}),
            polls("p", 30, (0, 2), partition=B),
            fetched("d", 40, 0),
        ],
    ),
    "invented-commit": (
        {"invented-commit"},
        [sends("s", 0, (1, 0)), scan(10, (0, 1)), commits("c", 20, 0), fetched("d", 40, 7)],
    ),
    "group-skip: committed past what no member read": (
        {"group-skip"},
        [sends("s", 0, (1, 0), (2, 1)), scan(10, (0, 1), (1, 2)),
         polls("c", 20, (0, 1), group="g"), commits("c", 30, 2)],
    ),
    "copied-twice": (
        {"copied-twice"},
        [
            sends("s", 0, (1, 0)),
            txn("t", 10, (B, 2, 0, None, 1)),
            txn("u", 20, (B, 3, 2, None, 1)),
            scan(30, (0, 1)),
            scan(30, (0, 2), (2, 3), partition=B),
        ],
    ),
    "copy-lost: its position was committed": (
        {"copy-lost"},
        [
            sends("s", 0, (1, 0), (2, 1)),
            polls("t", 9, (0, 1), (1, 2), group="g"),
            txn("t", 10, (B, 3, 0, None, 2), group="g", commits={A: 2}),
            scan(30, (0, 1), (1, 2)),
            scan(30, (0, 3), partition=B),
        ],
    ),
    "copy-order": (
        {"copy-order"},
        [
            sends("s", 0, (1, 0), (2, 1)),
            txn("t", 10, (B, 3, 0, None, 2)),
            txn("u", 20, (B, 4, 2, None, 1)),
            scan(30, (0, 1), (1, 2)),
            scan(30, (0, 3), (2, 4), partition=B),
        ],
    ),
}  # fmt: skip

# Odd, and allowed.
SOUND = {
    "records of two transactions lie between each other": [
        txn("t", 0, (A, 1, 0), (A, 2, 2)),
        txn("u", 0, (A, 3, 1), (A, 4, 3)),
        scan(10, (0, 1), (1, 3), (2, 2), (3, 4)),
    ],
    "a lost answer: it is there": [
        sends("s", 0, (1, None), outcome=UNKNOWN, ended=None),
        scan(10, (0, 1)),
        sends("t", 0, (2, 1)),
        polls("p", 10, (1, 2)),
    ],
    "a lost answer: it is not there": [
        sends("s", 0, (1, None), outcome=UNKNOWN, ended=None),
        sends("t", 0, (2, 0)),
        scan(10, (0, 2)),
    ],
    "a transaction without an end, of which nothing is there": [
        txn("t", 0, (A, 1, 0), (B, 2, 0), outcome=UNKNOWN, ended=None),
        sends("s", 10, (3, 2)),
        scan(20, (2, 3)),
        scan(20, partition=B),
    ],
    "a commit without an answer counts, or does not": [
        sends("s", 0, (1, 0)),
        scan(10, (0, 1)),
        polls("c", 12, (0, 1), group="g"),
        commits("c", 20, 0),
        commits("c", 30, 1, outcome=UNKNOWN, ended=None),
        fetched("d", 40, 0),
        fetched("d", 50, 1),
    ],
    "commits side by side: either is the last": [
        sends("s", 0, (1, 0)),
        scan(10, (0, 1)),
        polls("c", 12, (0, 1), group="g"),
        commits("c", 20, 1, ended=30),
        commits("d", 25, 0, ended=30),
        fetched("e", 40, 0),
        fetched("e", 50, 1),
    ],
    "a reader goes back after an assignment": [
        sends("s", 0, (1, 0), (2, 1)),
        polls("p", 10, (0, 1), (1, 2)),
        polls("p", 20, (0, 1), fresh=True),
        scan(30, (0, 1), (1, 2)),
    ],
    "an aborted record's copy, copied again": [
        sends("s", 0, (1, 0)),
        txn("t", 10, (B, 2, 0, None, 1), outcome=FAIL),
        txn("t", 20, (B, 3, 2, None, 1)),
        scan(30, (0, 1)),
        scan(30, (2, 3), partition=B),
    ],
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_anomaly_is_found_and_nothing_else(name):
    expected, operations = PLANTED[name]
    verdict = check(operations)
    assert verdict.valid is False
    assert set(verdict.anomalies) == expected, verdict


def test_every_anomaly_is_planted():
    assert {name.split(":")[0] for name in PLANTED} == set(ANOMALIES)


@pytest.mark.parametrize("name", SOUND)
def test_what_is_odd_and_allowed_passes(name):
    verdict = check(SOUND[name])
    assert verdict.valid is True, verdict


def test_a_run_that_shows_nothing_is_unknown():
    assert check([]).valid is None
    assert check([sends("s", 0, (1, 0)), polls("p", 10)]).valid is None
    lost = sends("s", 0, (1, None), outcome=UNKNOWN)
    assert check([lost, scan(10, (0, 1))]).valid is None
    beyond = [sends("s", 0, (1, 0), (2, 1)), polls("p", 10, (0, 1))]
    assert check(beyond).valid is None  # no reader read to the end


def test_a_value_is_sent_once():
    with pytest.raises(ValueError, match="sent twice"):
        check([sends("s", 0, (1, 0)), sends("t", 0, (1, 1))])


def test_a_saved_history_is_the_same(tmp_path):
    for _, operations in PLANTED.values():
        History(operations).save(tmp_path / "h")
        assert History.load(tmp_path / "h").operations() == History(operations).operations()


seeds = st.integers(0, 2**32)


@given(seeds, st.integers(20, 150))
@settings(max_examples=150, deadline=None)
def test_what_a_sound_broker_does_passes(seed, steps):
    operations = SoundBroker(random.Random(seed)).run(steps)
    verdict = check(operations)
    assert verdict.valid is not False, verdict


DAMAGES = {
    "lose_a_read_record": {"lost-write", "vanished", "unseen", "send-skip", "torn-transaction"},
    "show_an_aborted_record": {"G1a"},
    "store_a_record_twice": {"duplicate"},
    "forget_a_commit": {"lost-commit"},
}


@pytest.mark.parametrize("damage", DAMAGES)
@given(seeds)
@settings(max_examples=40, deadline=None)
def test_a_broker_with_one_fault_is_found_out(damage, seed):
    """The same broker with one fault at the end of its run."""
    broker = SoundBroker(random.Random(seed))
    broker.run(80, damage=damage)
    verdict = check(broker.history)
    if broker.damaged:
        assert verdict.valid is False
        assert DAMAGES[damage] & set(verdict.anomalies), verdict
