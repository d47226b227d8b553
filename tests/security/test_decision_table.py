"""The decisions that native handlers use: kept by principal, address, operation and resource, and
never used after a rule has changed."""

import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle.permissions import Decided

from barnabas.cext.network.permissions import LIMITS, DecisionTable

HOME, AWAY = bytes(16), bytes(10) + b"\xff\xff\x7f\x00\x00\x01"
READ, WRITE, TOPIC, GROUP = 3, 4, 2, 3
ORDERS = (b"User:alice", HOME, READ, TOPIC, b"orders")
FOREVER = 2**63 - 1

rights = st.tuples(
    st.sampled_from([b"", b"User:a", b"User:alice", b"User:alic"]),
    st.sampled_from([HOME, AWAY]),
    st.sampled_from([READ, WRITE]),
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from([b"", b"orders", b"eorders", b"order", b"o" * 249]),
)
times = st.sampled_from([0, 5, 10, FOREVER])
steps = st.one_of(
    st.tuples(st.just("decide"), rights, st.booleans(), st.integers(0, 2), times),
    st.tuples(st.just("new_epoch")),
    st.tuples(st.just("decided"), rights, times),
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, max_size=60))
def test_the_table_answers_as_plain_python_does(taken):
    table, twin = DecisionTable(), Decided()
    for what, *arguments in taken:
        if what == "decide":
            right, allowed, ago, until_ns = arguments
            epoch = max(1, twin.epoch - ago)
            for each in (table, twin):
                each.decide(*right, allowed=allowed, epoch=epoch, until_ns=until_ns)
        elif what == "new_epoch":
            table.new_epoch()
            twin.new_epoch()
        else:
            right, now_ns = arguments
            assert table.decided(*right, now_ns=now_ns) == twin.decided(*right, now_ns=now_ns)
    assert table.epoch == twin.epoch


def test_a_decision_is_for_this_right_alone():
    table = DecisionTable()
    table.decide(*ORDERS, allowed=True, epoch=table.epoch)
    assert table.decided(*ORDERS) is True
    others = [b"User:bob", AWAY, WRITE, GROUP, b"orders2"]
    for place, other in enumerate(others):
        asked = [*ORDERS]
        asked[place] = other
        assert table.decided(*asked) is None, place


def test_no_decision_counts_after_a_rule_has_changed():
    table = DecisionTable()
    before = table.epoch
    table.decide(*ORDERS, allowed=True, epoch=before)
    table.new_epoch()
    assert table.decided(*ORDERS) is None
    table.decide(*ORDERS, allowed=True, epoch=before)  # the rules were read before the change
    assert table.decided(*ORDERS) is None
    table.decide(*ORDERS, allowed=False, epoch=table.epoch)
    assert table.decided(*ORDERS) is False


def test_a_decision_counts_until_its_time():
    table = DecisionTable()
    table.decide(*ORDERS, allowed=False, epoch=table.epoch, until_ns=10)
    assert table.decided(*ORDERS, now_ns=10) is False
    assert table.decided(*ORDERS, now_ns=11) is None


def test_the_table_is_bounded_by_the_number_of_decisions():
    table = DecisionTable()
    for i in range(LIMITS["decisions"] + 10):
        table.decide(b"User:a", HOME, READ, TOPIC, b"%d" % i, allowed=True, epoch=1)
        assert 0 < table.count <= LIMITS["decisions"]
    assert table.count == 10
    assert table.decided(b"User:a", HOME, READ, TOPIC, b"%d" % (i)) is True
    assert table.decided(b"User:a", HOME, READ, TOPIC, b"0") is None


def test_the_table_is_bounded_by_bytes():
    table, name = DecisionTable(), b"n" * 30_000
    for i in range(1000):
        table.decide(b"User:%d" % i, HOME, READ, GROUP, name, allowed=False, epoch=1)
        assert 0 < table.held_bytes <= LIMITS["bytes"]


def test_the_first_decision_of_an_epoch_begins_an_empty_table():
    table = DecisionTable()
    for i in range(100):
        table.decide(b"User:a", HOME, READ, TOPIC, b"%d" % i, allowed=True, epoch=1)
    table.new_epoch()
    table.decide(*ORDERS, allowed=True, epoch=2)
    assert table.count == 1


def test_an_address_has_16_bytes():
    with pytest.raises(ValueError, match="an address has 16 bytes, not 4"):
        DecisionTable().decided(b"", b"\x7f\0\0\1", READ, TOPIC, b"orders")


def test_many_threads_use_a_table_that_is_emptied():
    table, stop, wrong = DecisionTable(), threading.Event(), []

    def write():
        while not stop.is_set():
            table.decide(*ORDERS, allowed=True, epoch=table.epoch)
            table.new_epoch()

    def read():
        for _ in range(20_000):
            if table.decided(*ORDERS) not in (True, None):
                wrong.append(1)

    readers = [threading.Thread(target=read) for _ in range(2)]
    writer = threading.Thread(target=write)
    for thread in (writer, *readers):
        thread.start()
    for thread in readers:
        thread.join()
    stop.set()
    writer.join()
    assert not wrong
