"""Syncs and heartbeats that network threads answer: as Python answers them, and none after a group
has changed. Who waits there for an assignment is not forgotten."""

import random
import threading
import time
from contextlib import suppress

import pytest
from compat.support import Wire
from groups.member_talk import (
    HEARTBEAT,
    JOIN,
    LEAVE,
    SYNC,
    WAIT_S,
    Member,
    Talker,
    group_of,
    heartbeat_body,
    join_body,
    joined_together,
    lane_of,
    settle,
    started,
    sync_body,
)

from barnabas.cext.coordinator.membership import MembershipLane
from barnabas.cext.memory.sys import SystemCalls
from barnabas.coordinator.groups.classic_group import PREPARING, STABLE
from barnabas.wire import request
from barnabas.wire.headers import encode_request

NONE, ILLEGAL_GENERATION, INCONSISTENT, UNKNOWN_MEMBER, REBALANCE, FENCED = 0, 22, 23, 25, 27, 82


@pytest.fixture
def broker(tmp_path):
    with started(tmp_path) as broker:
        yield broker


@pytest.fixture
def pair(broker):
    """A leader and a follower of a group that is stable."""
    with Member(broker) as leader, Member(broker, instance="two") as follower:
        settle(leader)
        settle(leader, follower)
        assert leader.leads
        yield leader, follower


def joined(broker, count):
    """A leader and its followers, none of whom has synced."""
    members = [Member(broker) for _ in range(count)]
    joined_together(*members)
    leader = next(member for member in members if member.leads)
    return leader, *(member for member in members if member is not leader)


def questions(member):
    """What a member may ask in a stable generation, right and wrong."""
    for version in range(5):
        for generation in (member.generation, member.generation - 1):
            yield HEARTBEAT, version, heartbeat_body(member.id, generation)
    for instance in (None, "two", "three"):
        yield HEARTBEAT, 4, heartbeat_body(member.id, member.generation, instance=instance)
    yield HEARTBEAT, 4, heartbeat_body("nobody", member.generation)
    yield HEARTBEAT, 4, heartbeat_body(member.id, member.generation, group="another")
    for version in range(6):
        yield SYNC, version, sync_body(member.id, member.generation)
    for named in ({"protocolName": "other"}, {"protocolType": "connect"}, {"protocolName": None}):
        yield SYNC, 5, sync_body(member.id, member.generation, **named)
    for instance in ("two", "three"):
        yield SYNC, 5, sync_body(member.id, member.generation, groupInstanceId=instance)
    yield SYNC, 5, sync_body(member.id, member.generation + 1)
    yield SYNC, 5, sync_body("nobody", member.generation)
    yield SYNC, 3, sync_body(member.id, member.generation, [(member.id, b"not its own to say")])


def test_answers_are_those_of_python(broker, pair):
    lane = lane_of(broker)
    asked = [
        (member, key, version, body) for member in pair for key, version, body in questions(member)
    ]
    before = lane.served
    here = [member.raw(key, version, body) for member, key, version, body in asked]
    served = lane.served - before
    # Heartbeats of the generation: five versions and, of the static one, that with its instance id;
    # the follower's syncs: six versions, and that with its instance id.
    assert served == (5 + 1) + (5 + 2) + (6 + 1)
    broker.node.rooms.groups._rebalances._membership = None
    group_of(broker).dismiss()
    assert [member.raw(key, version, body) for member, key, version, body in asked] == here
    assert lane.served - before == served


@pytest.mark.parametrize("key", [HEARTBEAT, SYNC])
def test_damage_closes_the_connection(broker, pair, key):
    _, follower = pair
    bodies = {
        HEARTBEAT: heartbeat_body(follower.id, follower.generation),
        SYNC: sync_body(follower.id, follower.generation),
    }
    whole = encode_request(key, 4, 1, "c", bodies[key])[4:]
    before = lane_of(broker).served
    for at in range(len(whole) - 1, 14, -3):
        with Wire(broker.bootstrap_servers) as wire, suppress(ConnectionError):
            wire.call_raw(at.to_bytes(4, "big") + whole[:at])
            pytest.fail(f"{at} bytes of {len(whole)} were answered")
    assert lane_of(broker).served == before
    assert follower.heartbeat() == NONE


def test_a_sync_waits_for_its_leader(broker):
    members = leader, late, *early = joined(broker, 4)
    before = lane_of(broker).served
    for member in early:
        member.sync()
    assert all(member.waits() for member in early)
    assert leader.heartbeat() == NONE == late.heartbeat()
    leader.sync([(member.id, member.id.encode()) for member in members])
    for member in (*early, leader):
        assert member.synced() == (NONE, member.id.encode())
    late.sync()
    assert late.synced() == (NONE, late.id.encode())
    assert lane_of(broker).served - before == 2 + 2 + 1


def test_who_is_given_nothing_has_an_empty_assignment(broker):
    leader, follower = joined(broker, 2)
    follower.sync()
    leader.sync([(leader.id, b"all")])
    assert leader.synced() == (NONE, b"all") and follower.synced() == (NONE, b"")


def test_a_sync_that_is_sent_again_ends_the_one_that_waits(broker):
    leader, follower = joined(broker, 2)
    follower.sync()
    assert follower.waits()
    with Talker(broker) as again:
        again.send(SYNC, 5, follower.sync_body())
        assert follower.synced() == (REBALANCE, b"")
        assert again.waits()
        leader.sync([(follower.id, b"x")])
        assert again.answer().assignment == b"x"


def test_a_client_that_goes_while_it_waits_leaves_nothing_behind(broker):
    leader, gone, stays = joined(broker, 3)
    for member in (gone, stays):
        member.sync()
        assert member.waits()
    gone.close()
    time.sleep(0.1)
    leader.sync([(stays.id, b"x"), (gone.id, b"y")])
    assert stays.synced() == (NONE, b"x")
    with Talker(broker) as again:
        assert again.ask(SYNC, 5, gone.sync_body()).assignment == b"y"


def test_who_waits_is_told_of_a_rebalance(broker):
    members = joined(broker, 3)
    followers = members[1:]
    for member in followers:
        member.sync()
        assert member.waits()
    with Member(broker, version=3) as new:  # joins without an id of its own
        new.join()
        for member in followers:
            assert member.synced() == (REBALANCE, b"")
        assert lane_of(broker).members == 0
        for member in members:
            assert member.heartbeat() == REBALANCE
            member.join()
        assert {member.joined().generationId for member in members} == {new.joined().generationId}


def test_a_group_that_moves_to_another_broker_leaves_nobody_waiting(broker):
    leader, follower = joined(broker, 2)
    follower.sync()
    assert follower.waits()
    groups = broker.node.rooms.groups
    groups.unloaded(groups.journal.partition_of("g"))
    assert follower.synced() == (UNKNOWN_MEMBER, b"")  # of the group as it is in the log here
    assert lane_of(broker).members == 0 and leader.heartbeat() == UNKNOWN_MEMBER


def leave(broker, *members):
    ask = request(LEAVE)
    rows = [ask.struct("members")(memberId=member.id) for member in members]
    with Talker(broker) as talker:
        assert talker.ask(LEAVE, 4, ask.cls(groupId="g", members=rows)).errorCode == 0


def test_who_waits_and_is_removed_is_unknown(broker):
    _, follower, _ = joined(broker, 3)
    follower.sync()
    assert follower.waits()
    leave(broker, follower)
    assert follower.synced() == (UNKNOWN_MEMBER, b"")


def test_nobody_is_answered_after_a_group_has_changed(broker, pair):
    leader, follower = pair
    assert follower.heartbeat() == NONE and lane_of(broker).members == 2
    leave(broker, leader)
    assert follower.heartbeat() == REBALANCE and lane_of(broker).members == 0
    assert follower.ask(SYNC, 5, follower.sync_body()).errorCode == REBALANCE


def test_a_leader_that_joins_again_is_waited_for_by_all(broker, pair):
    leader, follower = pair
    leader.join()
    assert leader.waits() and lane_of(broker).members == 0
    assert follower.heartbeat() == REBALANCE
    follower.join()
    assert leader.joined().generationId == follower.joined().generationId


def test_a_static_member_that_came_back_fences_the_one_before(broker, pair):
    leader, before = pair
    with Member(broker, instance="two") as again:
        told = again.ask(JOIN, 5, join_body(instance="two"))
        assert (told.errorCode, told.generationId) == (NONE, before.generation)
        again.id, again.generation = told.memberId, told.generationId
        served = lane_of(broker).served
        assert before.heartbeat() == FENCED and lane_of(broker).members == 0
        assert again.heartbeat() == NONE
        assert lane_of(broker).members == 2, "Python has handed the generation over again"
        assert again.heartbeat() == NONE and before.heartbeat() == FENCED
        assert leader.heartbeat() == NONE
        assert lane_of(broker).served == served + 2
        again.sync()
        assert again.synced() == (NONE, before.id.encode())


def test_heartbeats_keep_a_member_and_silence_does_not(broker, pair):
    leader, follower = pair
    before = lane_of(broker).served
    for _ in range(5):
        broker.clock.advance(seconds=4)
        assert leader.heartbeat() == NONE == follower.heartbeat()
    # One may come to Python after the rebalance timeout, when that looks who has not synced.
    assert lane_of(broker).served - before >= 9
    for _ in range(3):
        broker.clock.advance(seconds=4)
        if leader.heartbeat() != NONE:
            break
    assert eventually(lambda: set(group_of(broker).members) == {leader.id})
    assert follower.heartbeat() == UNKNOWN_MEMBER


def eventually(true):
    deadline = time.monotonic() + WAIT_S
    while not true() and time.monotonic() < deadline:
        time.sleep(0.01)
    return true()


def test_who_waits_is_not_silent(broker):
    """Its connection is not read from, so that it cannot send a heartbeat."""
    leader, follower = joined(broker, 2)
    follower.sync()
    for _ in range(3):
        broker.clock.advance(seconds=6)
        assert leader.heartbeat() == NONE
    leader.sync([(follower.id, b"x")])
    assert follower.synced() == (NONE, b"x")
    assert follower.heartbeat() == NONE and set(group_of(broker).members) == {
        leader.id,
        follower.id,
    }


def test_who_has_synced_is_not_late(broker):
    """The rebalance timeout runs until all have synced, whoever answered them."""
    members = leader, synced, late = joined(broker, 3)
    synced.sync()
    leader.sync([(member.id, b"x") for member in members])
    assert synced.synced() == (NONE, b"x") == leader.synced()
    for _ in range(3):
        broker.clock.advance(seconds=7)
        for member in members:
            member.heartbeat()
    assert eventually(lambda: set(group_of(broker).members) == {leader.id, synced.id})
    assert late.heartbeat() == UNKNOWN_MEMBER


def test_a_group_for_which_there_is_no_room_is_pythons(broker):
    lane = lane_of(broker)
    crowd = [(f"m{at}", None) for at in range(65_535)]
    assert lane.begin("crowd", 1, "consumer", "range", "m0", crowd)
    members = [Member(broker) for _ in range(2)]
    settle(*members)
    for member in members:
        assert member.heartbeat() == NONE
    assert lane.members == 65_535 and lane.served == 0
    assert group_of(broker).finds_no_room and group_of(broker).state == STABLE
    assert len(lane.dismiss("crowd")) == 0 == lane.members
    with Member(broker) as third:
        settle(*members, third)
    assert lane.members == 3 and lane.served > 0


def test_heartbeats_that_come_to_python_take_no_more_room(broker, pair):
    leader, follower = pair
    joined_together(*pair)
    follower.sync()
    leader.sync([(follower.id, bytes(700_000))])
    assert leader.synced() == (NONE, b"") and len(follower.synced()[1]) == 700_000
    plain = encode_request(HEARTBEAT, 4, 7, "c", heartbeat_body(leader.id, leader.generation))
    surplus = (len(plain) - 4 + 1).to_bytes(4, "big") + plain[4:] + b"\0"  # Python passes it over
    served = lane_of(broker).served
    for _ in range(100):
        assert leader.wire.call_raw(surplus)[-3:] == b"\0\0\0"
    assert lane_of(broker).served == served, "they did come to Python"
    assert lane_of(broker).members == 2 and not group_of(broker).finds_no_room


def test_limits_of_a_lane_by_itself():
    lane = MembershipLane(SystemCalls())
    assert lane.begin("a", 1, "consumer", "range", "x", [("x", None), ("y", "i")])
    assert not lane.begin("a", 2, "consumer", "range", "x", [("z", None)]), "it has one"
    assert not lane.begin("b", 1, "consumer", "range", "x", [("x", None), ("x", None)])
    assert lane.members == 2 and lane.dismiss("b") == [] and not lane.assign("b", {})
    assert not lane.assign("a", {"x": bytes(65 << 20)})
    assert lane.assign("a", {"x": bytes(60 << 20), "nobody": b"x"})
    assert lane.begin("c", 1, "consumer", "range", "x", [("x", None)])
    assert not lane.assign("c", {"x": bytes(5 << 20)})
    assert lane.heard_ms("a", "x") == -1 == lane.heard_ms("d", "x")
    assert lane.dismiss("a") == [] and lane.assign("c", {"x": bytes(5 << 20)})
    assert lane.members == 1


class Restless(threading.Thread):
    """A member that joins, syncs, beats, leaves and comes back, and notes what it is assigned."""

    def __init__(self, broker, seed, until, seen):
        super().__init__()
        self.broker, self.random, self.until, self.seen = broker, random.Random(seed), until, seen
        self.failure = None
        self.code = None

    def run(self):
        try:
            while time.monotonic() < self.until:
                with Member(self.broker, version=self.random.choice((3, 5))) as member:
                    self.live(member)
        except Exception as error:
            self.failure = error

    def live(self, member):
        while time.monotonic() < self.until:
            member.send(JOIN, member.version, join_body(member.id))
            told = member.answer()
            member.id = told.memberId
            if told.errorCode == 79:
                continue
            if told.errorCode:
                assert told.errorCode == UNKNOWN_MEMBER, told
                return
            member.generation = told.generationId
            names = [row.memberId for row in told.members]
            given = [(name, f"{told.generationId}/{name}".encode()) for name in names]
            member.sync(given)
            code, assignment = member.synced()
            if code == NONE:
                self.seen.append(assignment == f"{member.generation}/{member.id}".encode())
                code = self.beat(member)
            if code is None:
                return
            assert code in (ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCE), code
            if code == UNKNOWN_MEMBER:
                return
        leave(self.broker, member)  # nobody is to wait for it

    def beat(self, member):
        """Until it has to join again; None: it went."""
        for _ in range(self.random.randrange(60)):
            code = member.heartbeat()
            if code != NONE:
                return code
            if self.random.random() < 0.1:
                member.sync()
                code, assignment = member.synced()
                if code != NONE:
                    return code
                self.seen.append(assignment == f"{member.generation}/{member.id}".encode())
        leave(self.broker, member)
        return None


@pytest.mark.parametrize("seed", range(3))
def test_restless_members_have_what_their_leader_gave_them(broker, seed):
    seen = []
    until = time.monotonic() + 3
    members = [Restless(broker, seed * 100 + at, until, seen) for at in range(12)]
    for member in members:
        member.start()
    for member in members:
        member.join(WAIT_S + 10)
    assert not [member for member in members if member.is_alive()], "somebody waits for ever"
    assert [member.failure for member in members if member.failure] == []
    assert len(seen) > 100 and all(seen)
    assert lane_of(broker).served > 200
    assert group_of(broker).state != PREPARING or group_of(broker).members
