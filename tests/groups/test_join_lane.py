"""Joins that come to Python without its dispatch: answered as others are, and as many at once."""

import re
import time
from contextlib import suppress

import pytest
from compat.support import Wire
from groups.member_talk import (
    JOIN,
    SYNC,
    Member,
    Talker,
    group_of,
    join_body,
    joined_together,
    lane_of,
    settle,
    started,
    sync_body,
    through_python,
)

from barnabas.cext.coordinator.join_group import JoinQueue
from barnabas.coordinator.coordinators import RANDOM_TOGETHER, RandomUuids
from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.errors import GroupMaxSizeReached
from barnabas.wire.headers import encode_request

UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
ID_REQUIRED, UNKNOWN_MEMBER, INCONSISTENT, INVALID_SESSION, INVALID_GROUP = 79, 25, 23, 26, 24
UNKNOWN_SERVER_ERROR, COORDINATOR_NOT_AVAILABLE = -1, 15


@pytest.fixture
def broker(tmp_path):
    with started(tmp_path) as broker:
        yield broker


def joins_of(broker) -> JoinQueue:
    return broker.node._coordinators._joins._queue


def taken(broker):
    """How many were answered without the dispatch."""
    return joins_of(broker).counters()["done"]


def answers(path, version, all_python):
    """The bytes of what a group of two is told, its members' ids apart, and how many joins went
    around the dispatch."""
    told = []
    with started(path, {"group.max.size": "3"}, all_python=all_python) as broker:
        with Talker(broker) as one, Talker(broker) as two:

            def ask(talker, member="", **more):
                frame = talker.raw(JOIN, version, join_body(member, **more))
                told.append(UUID.sub(b"-", frame))
                return frame

            for wrong in (
                {"group": ""},
                {"sessionTimeoutMs": 1},
                {"member": "nobody"},
                {"protocolType": ""},
                {"protocols": ()},
            ):
                ask(one, **wrong)
            if version >= 5:
                ask(one, instance="first", reason="new")
                ask(one, instance="first", reason=None)  # it came back, and leads
                member = group_of(broker).instances["first"]
                generation = group_of(broker).generation
                one.ask(SYNC, 5, sync_body(member, generation, [(member, b"all")]))
                ask(one, instance="first")  # and again, with nothing to assign
                member = group_of(broker).instances["first"]
            elif version == 4:
                member = UUID.search(ask(one)).group()
                ask(one, f"talker-{member.decode()}")
                member = next(iter(group_of(broker).members))
            else:
                ask(one)
                member = next(iter(group_of(broker).members))
            ask(one, member, protocols=[("range", b"m"), ("sticky", b"\0" * 300)])
            ask(one, member, protocols=[("other", b"")], protocolType="connect")
            # Another comes, and both are told when the first has joined again.
            if version >= 4:
                second = two.ask(JOIN, version, join_body())
                assert second.errorCode == ID_REQUIRED
                two.send(JOIN, version, join_body(second.memberId))
            else:
                two.send(JOIN, version, join_body())
            assert two.waits()
            ask(one, member)
            told.append(UUID.sub(b"-", two.wire._frame()))
        return told, taken(broker)


@pytest.mark.parametrize("version", range(10))
def test_answers_are_those_of_python(tmp_path, version):
    by_python, through_the_lane = answers(tmp_path / "python", version, True)
    assert through_the_lane == 0
    here, through_the_lane = answers(tmp_path / "lane", version, False)
    assert here == by_python
    assert through_the_lane >= len(here)


@pytest.mark.parametrize(
    "more",
    [{"group": "gr\u00fcn"}, {"instance": "\u00e9"}, {"protocols": [("r\u00e4", b"")]}],
    ids=["group", "instance", "protocol"],
)
def test_text_beyond_ascii_goes_the_other_way(broker, more):
    with Talker(broker) as talker:
        assert talker.ask(JOIN, 9, join_body(**more)).errorCode in (0, ID_REQUIRED)
        assert taken(broker) == 0


def test_so_does_what_is_large(broker):
    with Talker(broker) as talker:
        for size, by_lane in ((60_000, 1), (70_000, 1), (80, 2)):
            told = talker.ask(
                JOIN, 3, join_body(protocols=[("range", b"m" * size)], group=f"{size}")
            )
            assert told.errorCode == 0 and bytes(told.members[0].metadata) == b"m" * size
            assert taken(broker) == by_lane


@pytest.mark.parametrize("version", [0, 5, 9])
def test_damage_closes_the_connection(broker, version):
    whole = encode_request(JOIN, version, 1, "c", join_body(reason="why"))[4:]
    for at in range(len(whole) - 1, 14, -3):
        with Wire(broker.bootstrap_servers) as wire, suppress(ConnectionError):
            wire.call_raw(at.to_bytes(4, "big") + whole[:at])
            pytest.fail(f"{at} bytes of {len(whole)} were answered")
    assert taken(broker) == 0 and "g" not in broker.node.rooms.groups.groups


def test_an_id_too_long_to_be_told_ends_that_connection_alone(broker):
    """A client id has up to 32,767 bytes, and its member's id is longer."""
    with Talker(broker, "c" * 32_760) as long, Talker(broker) as talker:
        long.send(JOIN, 3, join_body(group="long"))
        assert long.wire.hangs_up()
        assert taken(broker) == 1
        assert talker.ask(JOIN, 3, join_body()).errorCode == 0


def test_a_client_that_goes_while_it_waits_costs_nothing(broker):
    with Member(broker) as first:
        settle(first)
        gone = Member(broker, version=3)
        gone.join()
        assert gone.waits()
        gone.close()
        time.sleep(0.1)
        first.join()
        assert first.joined().generationId == 2 and len(first.told) == 2
    assert taken(broker) >= 3


def test_a_join_nobody_answers_closes_its_connection(broker, monkeypatch):
    monkeypatch.setattr(GroupCoordinator, "join", lambda *_: None)
    with Talker(broker) as talker:
        talker.send(JOIN, 3, join_body())
        assert talker.wire.hangs_up()
    monkeypatch.undo()
    with Talker(broker) as talker:
        assert talker.ask(JOIN, 3, join_body()).errorCode == 0


def test_trouble_with_one_join_is_not_that_of_the_next(broker, monkeypatch):
    def fails(_self, _group_id, asked, answer):
        if asked.client_id == "unlucky":
            answer_first = asked.member_id == "told"
            if answer_first:
                answer(_refused())
            raise ValueError("planted")
        return real(_self, _group_id, asked, answer)

    real = GroupCoordinator.join
    monkeypatch.setattr(GroupCoordinator, "join", fails)
    with Talker(broker, "unlucky") as unlucky, Talker(broker) as talker:
        assert unlucky.ask(JOIN, 3, join_body()).errorCode == UNKNOWN_SERVER_ERROR
        assert unlucky.ask(JOIN, 3, join_body("told")).errorCode == GroupMaxSizeReached.code
        assert talker.ask(JOIN, 3, join_body()).errorCode == 0


def _refused():
    from barnabas.coordinator.groups.classic_group import JoinResult

    return JoinResult(GroupMaxSizeReached())


def test_an_answer_is_given_once(broker, monkeypatch):
    jobs = []
    monkeypatch.setattr(
        GroupCoordinator, "join", lambda _self, _group, _asked, job: jobs.append(job)
    )
    with Talker(broker, "c") as talker:
        talker.send(JOIN, 5, join_body("m", instance="i", protocols=[("a", b"1"), ("b", b"")]))
        while not jobs:
            time.sleep(0.01)
        (job,) = jobs
        assert (job.group_id, job.member_id, job.instance_id) == ("g", "m", "i")
        assert (job.client_id, job.client_host) == ("c", "/127.0.0.1")
        assert (job.session_timeout_ms, job.rebalance_timeout_ms) == (10_000, 20_000)
        assert (job.protocol_type, job.protocols) == ("consumer", [("a", b"1"), ("b", b"")])
        assert (job.id_required, job.can_skip_assignment) == (True, False)
        job(_refused())
        assert talker.answer().errorCode == GroupMaxSizeReached.code
        with pytest.raises(RuntimeError):
            job(_refused())


@pytest.mark.parametrize("all_python", [True, False])
def test_a_broker_that_stops_tells_those_who_wait(tmp_path, all_python):
    with started(tmp_path, all_python=all_python) as broker:
        members = [Member(broker) for _ in range(2)]
        joined_together(*members)
        follower = next(member for member in members if not member.leads)
        follower.sync()
        with Talker(broker) as other:
            assert other.ask(JOIN, 3, join_body(group="other")).errorCode == 0
        late = Talker(broker)
        late.send(JOIN, 3, join_body(group="other"))
        assert late.waits() and follower.waits()
        began = time.monotonic()
    assert time.monotonic() - began < 3
    assert follower.synced() == (COORDINATOR_NOT_AVAILABLE, b"")
    assert late.answer().errorCode == COORDINATOR_NOT_AVAILABLE


def test_members_that_join_at_once_are_a_group(broker):
    members = [Member(broker, version=3) for _ in range(40)]
    first = members[0]
    settle(first)
    for member in members[1:]:
        member.join()
    while len(group_of(broker).members) < 40:
        time.sleep(0.01)
    first.join()
    assert len({member.joined().generationId for member in members}) == 1
    for member in members[1:]:
        member.sync()
    first.sync([(member.id, member.id.encode()) for member in members])
    for member in members:
        assert member.synced() == (0, member.id.encode())
        member.close()
    assert taken(broker) == 41 and lane_of(broker).members == 40


def test_both_ways_meet_in_one_group(broker):
    with Member(broker, version=3) as one, Member(broker, version=3) as two:
        settle(one)
        through_python(broker)
        group_of(broker).dismiss()
        settle(one, two)
        assert set(group_of(broker).members) == {one.id, two.id}


def test_each_new_member_has_a_random_uuid_of_its_own():
    new_id = RandomUuids()
    given = [new_id() for _ in range(3 * RANDOM_TOGETHER)]
    assert len(set(given)) == len(given)
    assert all(UUID.fullmatch(each.encode()) for each in given)
    assert {each[19] for each in given} == set("89ab")
    other = RandomUuids()
    assert other() not in given
