"""Classic members over the wire: joins and syncs that wait always get a response in the end."""

import random
import re
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
    settle,
    started,
    sync_body,
)
from waiting import soon

from barnabas.coordinator.coordinators import RANDOM_TOGETHER, RandomUuids
from barnabas.coordinator.groups.classic_group import PREPARING
from barnabas.wire import request
from barnabas.wire.headers import encode_request

UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
NONE, ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCE, FENCED = 0, 22, 25, 27, 82
COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 15, 16


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
    """A leader and its followers, none of which has synced."""
    members = [Member(broker) for _ in range(count)]
    joined_together(*members)
    leader = next(member for member in members if member.leads)
    return leader, *(member for member in members if member is not leader)


@pytest.mark.parametrize("key", [JOIN, HEARTBEAT, SYNC])
def test_damage_closes_the_connection(broker, pair, key):
    _, follower = pair
    bodies = {
        JOIN: join_body(follower.id, reason="why"),
        HEARTBEAT: heartbeat_body(follower.id, follower.generation),
        SYNC: sync_body(follower.id, follower.generation),
    }
    whole = encode_request(key, 4, 1, "c", bodies[key])[4:]
    for at in range(len(whole) - 1, 14, -3):
        with Wire(broker.bootstrap_servers) as wire, suppress(ConnectionError):
            wire.call_raw(at.to_bytes(4, "big") + whole[:at])
            pytest.fail(f"{at} bytes of {len(whole)} were answered")
    assert follower.heartbeat() == NONE


def test_a_sync_waits_for_its_leader(broker):
    members = leader, late, *early = joined(broker, 4)
    for member in early:
        member.sync()
    assert all(member.waits() for member in early)
    assert leader.heartbeat() == NONE == late.heartbeat()
    leader.sync([(member.id, member.id.encode()) for member in members])
    for member in (*early, leader):
        assert member.synced() == (NONE, member.id.encode())
    late.sync()
    assert late.synced() == (NONE, late.id.encode())


def test_a_member_without_partitions_has_an_empty_assignment(broker):
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


def test_a_sync_that_waits_ends_with_a_rebalance(broker):
    members = joined(broker, 3)
    followers = members[1:]
    for member in followers:
        member.sync()
        assert member.waits()
    with Member(broker, version=3) as new:  # a new member, without an id, joins
        new.join()
        for member in followers:
            assert member.synced() == (REBALANCE, b"")
        for member in members:
            assert member.heartbeat() == REBALANCE
            member.join()
        assert {member.joined().generationId for member in members} == {new.joined().generationId}


def test_a_group_that_moves_to_another_broker_leaves_no_sync_waiting(broker):
    leader, follower = joined(broker, 2)
    follower.sync()
    assert follower.waits()
    groups = broker.node.serving.coordinators.groups
    groups.unloaded(groups.journal.partition_of("g"))
    assert follower.synced() == (NOT_COORDINATOR, b"")


def leave(broker, *members):
    ask = request(LEAVE)
    rows = [ask.struct("members")(memberId=member.id) for member in members]
    with Talker(broker) as talker:
        assert talker.ask(LEAVE, 4, ask.cls(groupId="g", members=rows)).errorCode == 0


def test_a_removed_waiting_member_is_unknown(broker):
    _, follower, _ = joined(broker, 3)
    follower.sync()
    assert follower.waits()
    leave(broker, follower)
    assert follower.synced() == (UNKNOWN_MEMBER, b"")


def test_a_heartbeat_after_a_member_left_answers_rebalance(broker, pair):
    leader, follower = pair
    assert follower.heartbeat() == NONE
    leave(broker, leader)
    assert follower.heartbeat() == REBALANCE
    assert follower.ask(SYNC, 5, follower.sync_body()).errorCode == REBALANCE


def test_a_leader_that_joins_again_is_waited_for_by_all(broker, pair):
    leader, follower = pair
    leader.join()
    assert leader.waits()
    assert follower.heartbeat() == REBALANCE
    follower.join()
    assert leader.joined().generationId == follower.joined().generationId


def test_a_static_member_that_came_back_fences_the_one_before(broker, pair):
    leader, before = pair
    with Member(broker, instance="two") as again:
        told = again.ask(JOIN, 5, join_body(instance="two"))
        assert (told.errorCode, told.generationId) == (NONE, before.generation)
        again.id, again.generation = told.memberId, told.generationId
        assert before.heartbeat() == FENCED
        assert again.heartbeat() == NONE
        assert again.heartbeat() == NONE and before.heartbeat() == FENCED
        assert leader.heartbeat() == NONE
        again.sync()
        assert again.synced() == (NONE, before.id.encode())


def test_heartbeats_keep_a_member_and_silence_does_not(broker, pair):
    leader, follower = pair
    for _ in range(5):
        broker.clock.advance(seconds=4)
        assert leader.heartbeat() == NONE == follower.heartbeat()
    for _ in range(3):
        broker.clock.advance(seconds=4)
        if leader.heartbeat() != NONE:
            break
    soon(lambda: set(group_of(broker).members) == {leader.id})
    assert follower.heartbeat() == UNKNOWN_MEMBER


def test_a_waiting_member_is_not_silent(broker):
    """The broker does not read from its connection, so that it cannot send a heartbeat."""
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


def test_a_synced_member_is_not_late(broker):
    """The rebalance timeout runs until all members have synced."""
    members = leader, synced, late = joined(broker, 3)
    synced.sync()
    leader.sync([(member.id, b"x") for member in members])
    assert synced.synced() == (NONE, b"x") == leader.synced()
    for _ in range(3):
        broker.clock.advance(seconds=7)
        for member in members:
            member.heartbeat()
    soon(lambda: set(group_of(broker).members) == {leader.id, synced.id})
    assert late.heartbeat() == UNKNOWN_MEMBER


def test_a_client_that_goes_while_its_join_waits_is_not_waited_for(broker):
    with Member(broker) as first:
        settle(first)
        gone = Member(broker, version=3)
        gone.join()
        assert gone.waits()
        gone.close()
        time.sleep(0.1)
        first.join()
        assert first.joined().generationId == 2 and len(first.told) == 2


def test_a_stopping_broker_answers_waiting_requests(tmp_path):
    with started(tmp_path) as broker:
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
    assert time.monotonic() - began < 8
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


def test_each_new_member_has_a_random_uuid_of_its_own():
    new_id = RandomUuids()
    given = [new_id() for _ in range(3 * RANDOM_TOGETHER)]
    assert len(set(given)) == len(given)
    assert all(UUID.fullmatch(each.encode()) for each in given)
    assert {each[19] for each in given} == set("89ab")
    other = RandomUuids()
    assert other() not in given


SEEN_MIN = 100  # assignments of restless members


class Restless(threading.Thread):
    """A member that joins, syncs, sends heartbeats, leaves and rejoins, and records its
    assignments."""

    def __init__(self, broker, seed, until, seen):
        super().__init__()
        self.broker, self.random, self.until, self.seen = broker, random.Random(seed), until, seen
        self.failure = None
        self.code = None

    def run(self):
        try:
            while self.goes_on():
                with Member(self.broker, version=self.random.choice((3, 5))) as member:
                    self.live(member)
        except Exception as error:
            self.failure = error

    def goes_on(self):
        return time.monotonic() < self.until or len(self.seen) <= SEEN_MIN

    def live(self, member):
        while self.goes_on():
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
        leave(self.broker, member)  # so that no member waits for it

    def beat(self, member):
        """Sends heartbeats until it has to join again; None: it has left."""
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
    assert len(seen) > SEEN_MIN and all(seen)
    assert group_of(broker).state != PREPARING or group_of(broker).members
