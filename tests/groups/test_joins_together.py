"""Joins of the consumer protocol that arrive together: one assignment, and a response for each."""

import pytest
from oracle.consumer_rig import REBALANCE_MS, ConsumerRig, topic_id
from oracle.group_rig import GROUP

from barnabas.api.later import Later
from barnabas.coordinator.groups.consumer_heartbeats import Heartbeat
from barnabas.errors import CoordinatorNotAvailable
from barnabas.hooks import hookimpl


def joining(name, **fields):
    first = Heartbeat(name, 0, rebalance_timeout_ms=REBALANCE_MS, topics=("t",), owned={})
    return first._replace(**fields)


def at_once(rig, asked, group=GROUP):
    """Sends heartbeats that all arrive before the first is handled. Returns their responses."""
    told = [[] for _ in asked]
    rig.gathers = True
    for one, answers in zip(asked, told, strict=True):
        rig.coordinator.consumer_heartbeat(group, one, answers.append)
    assert not any(told)
    assert len(rig.joins) == 1, "one call sees to all of them"
    rig.join_all()
    assert [len(answers) for answers in told] == [1] * len(asked)
    return [answers[0] for answers in told]


class Counted:
    """Counts the assignments of the group, with the number of members of each."""

    def __init__(self, rig):
        self.sizes = []
        assign = rig.registry.assign_partitions

        def counted(assignor, view):
            self.sizes.append(len(view.members))
            return assign(assignor, view)

        rig.registry.assign_partitions = counted


@pytest.fixture
def rig():
    return ConsumerRig({"t": 8})


def partitions(result):
    return sorted(result.assigned.get(topic_id("t"), ()))


def test_joins_at_once_get_one_assignment(rig):
    counted = Counted(rig)
    results = at_once(rig, [joining(f"m{at}") for at in range(4)])
    assert counted.sizes == [4]
    assert sorted(p for result in results for p in partitions(result)) == list(range(8))
    assert [len(partitions(result)) for result in results] == [2, 2, 2, 2]
    assert {result.member_epoch for result in results} == {5} == {rig.group.epoch}
    assert rig.group.state == "Stable"
    before = rig.kept()
    rig.crash()
    assert rig.kept() == before


def test_joins_one_after_the_other_make_the_same_group(rig):
    counted = Counted(rig)
    for at in range(4):
        at_once(rig, [joining(f"m{at}")])
    assert counted.sizes == [1, 2, 3, 4] and rig.group.epoch == 5


def test_later_members_wait_until_the_first_has_revoked(rig):
    (first,) = at_once(rig, [joining("m0")])
    assert len(partitions(first)) == 8
    later = at_once(rig, [joining("m1"), joining("m2"), joining("m3")])
    assert [partitions(result) for result in later] == [[], [], []]
    assert {result.member_epoch for result in later} == {5}


def test_groups_do_not_mix(rig):
    told = []
    rig.gathers = True
    for group in ("one", "two"):
        rig.coordinator.consumer_heartbeat(group, joining("m"), told.append)
    rig.join_all()
    assert [partitions(result) for result in told] == [list(range(8))] * 2
    assert {"one", "two"} <= rig.coordinator.groups.keys()


def test_the_group_is_full_for_the_last_join():
    rig = ConsumerRig({"t": 8}, consumers_max=3)
    *others, last = at_once(rig, [joining(f"m{at}") for at in range(4)])
    assert last.error.name == "GROUP_MAX_SIZE_REACHED"
    assert sorted(p for result in others for p in partitions(result)) == list(range(8))
    assert len(rig.group.members) == 3 and rig.group.epoch == 4


def test_two_joins_that_claim_one_instance(rig):
    first, second = at_once(rig, [joining("m0", instance_id="i"), joining("m1", instance_id="i")])
    assert partitions(first) == list(range(8))
    assert second.error.name == "UNRELEASED_INSTANCE_ID"
    assert rig.group.instances == {"i": "m0"}


def test_a_join_that_is_sent_again_is_one_member(rig):
    counted = Counted(rig)
    first, second = at_once(rig, [joining("m0"), joining("m0")])
    assert partitions(first) == partitions(second) == list(range(8))
    assert counted.sizes == [1] and rig.group.members.keys() == {"m0"} and rig.group.epoch == 2


def test_a_join_on_which_an_assignor_fails_does_not_affect_the_others(rig):
    class Picky:
        @hookimpl(tryfirst=True)
        def assign_partitions(self, assignor, group):
            if "m1" in group.members:
                raise ValueError("not m1")

    rig.registry.register(Picky(), "picky")
    first, second, third = at_once(rig, [joining(f"m{at}") for at in range(3)])
    assert second.error.name == "UNKNOWN_SERVER_ERROR"
    assert rig.group.members.keys() == {"m0", "m2"} and rig.group.epoch == 3
    assert first.error is None and third.error is None
    before = rig.kept()
    rig.crash()
    assert rig.kept() == before


def test_unexpected_errors_are_answered_to_each(rig, monkeypatch):
    def broken(*_):
        raise RuntimeError("planted")

    monkeypatch.setattr(rig.coordinator.consumers, "advance", broken)
    results = at_once(rig, [joining("m0"), joining("m1")])
    assert [result.error.name for result in results] == ["UNKNOWN_SERVER_ERROR"] * 2


def test_an_error_after_an_answer_does_not_delay_other_groups(rig, monkeypatch):
    told = {"one": Later(), "two": Later()}
    rig.gathers = True
    for group, later in told.items():
        rig.coordinator.consumer_heartbeat(group, joining("m"), later.settle)

    def broken(*_):
        raise RuntimeError("planted, after the answer")

    monkeypatch.setattr(rig.coordinator.consumers.regexes, "resolve", broken)
    rig.join_all()
    results = []
    for later in told.values():
        later.when_settled(results.append)
    assert [partitions(result) for result in results] == [list(range(8))] * 2


def test_each_waiting_caller_gets_the_error_of_a_failed_journal():
    rig = ConsumerRig({"t": 8}, immediately=False)
    told = []
    rig.gathers = True
    for name in ("m0", "m1"):
        rig.coordinator.consumer_heartbeat(GROUP, joining(name), told.append)
    rig.join_all()
    assert told == [], "nobody is told before it is durable"
    rig.journal.flush(CoordinatorNotAvailable())
    assert [result.error is not None for result in told] == [True, True]
