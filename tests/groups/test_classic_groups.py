"""Classic groups: joining, rebalancing, leaving, fencing, sessions; bugs of earlier versions."""

import pytest
from oracle.group_rig import GROUP, REBALANCE_MS, SESSION_MS, Client, Rig, settle

from barnabas.coordinator.groups.rebalance import NEW_MEMBER_TIMEOUT_MS
from barnabas.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupIdNotFound,
    IllegalGeneration,
    KafkaError,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMemberId,
)


def clients(rig, count, **more):
    return [Client(rig, f"c{at}", **more) for at in range(count)]


def together(rig, count, **more):
    made = clients(rig, count, **more)
    settle(*made)
    return made


def error_of_commit(rig, *args, **more):
    """The error of a commit, either of the request or of the partition."""
    try:
        ((error,),) = rig.commit(*args, **more)
        return error
    except KafkaError as error:
        return error


def test_one_member_leads_itself():
    rig = Rig()
    (client,) = together(rig, 1)
    assert client.errors == {"MEMBER_ID_REQUIRED": 1}
    assert client.assignment == client.member.encode()
    assert (rig.group.state, rig.group.generation, rig.group.leader) == (
        "Stable",
        1,
        client.member,
    )


def test_three_consumers_that_join_at_once_are_known_to_the_end():
    """Earlier versions answered UNKNOWN_MEMBER_ID to known members."""
    rig = Rig(initial_delay_ms=100)
    made = clients(rig, 3)
    for client in made:
        client.join()  # each must join again with its new id
    for client in made:
        client.join()
    rig.timers.advance(200)  # extended once, because members joined
    settle(*made)
    assert {client.generation for client in made} == {1}
    assert all(client.errors == {"MEMBER_ID_REQUIRED": 1} for client in made)
    assert {client.assignment for client in made} == {c.member.encode() for c in made}


def left_alone(rig):
    """Brings the group into its first join phase and lets its only member leave."""
    first = Client(rig, "c0")
    first.join()
    first.join()
    assert first.leave() is None
    assert (rig.group.state, dict(rig.group.members)) == ("PreparingRebalance", {})


def test_a_group_whose_only_member_left_before_the_first_rebalance_takes_another_protocol():
    rig = Rig(initial_delay_ms=100)
    left_alone(rig)
    other = Client(rig, "c1", protocols=("sticky",))
    other.join()
    other.join()
    rig.timers.advance(200)
    settle(other)
    assert other.errors == {"MEMBER_ID_REQUIRED": 1}


def test_a_group_whose_only_member_left_before_the_first_rebalance_keeps_its_protocol_type():
    """Asked of Kafka 4.3.1 with group.initial.rebalance.delay.ms=9000."""
    rig = Rig(initial_delay_ms=100)
    left_alone(rig)
    connect = Client(rig, "c1", protocol_type="connect")
    connect.join()
    assert connect.errors == {"INCONSISTENT_GROUP_PROTOCOL": 1}
    rig.timers.advance(200)
    assert rig.group.state == "Empty"
    connect.settle()
    assert connect.errors == {"INCONSISTENT_GROUP_PROTOCOL": 1, "MEMBER_ID_REQUIRED": 1}
    assert (rig.group.state, rig.group.protocol_type) == ("PreparingRebalance", "connect")


def test_the_last_pending_member_that_expires_ends_a_first_join_phase():
    """Asked of Kafka 4.3.1: it does not wait for the end of group.initial.rebalance.delay.ms."""
    rig = Rig(initial_delay_ms=SESSION_MS * 2)
    first, second = clients(rig, 2)
    first.settle()
    second.join()
    rig.timers.advance(SESSION_MS - 1)
    assert rig.group.state == "PreparingRebalance"
    rig.timers.advance(1)
    settle(first)
    assert (rig.group.state, list(rig.group.members)) == ("Stable", [first.member])


def test_a_pending_member_that_leaves_does_not_end_a_first_join_phase():
    """Asked of Kafka 4.3.1."""
    rig = Rig(initial_delay_ms=1000)
    first, second = clients(rig, 2)
    first.settle()
    second.join()
    assert second.leave() is None
    assert rig.group.state == "PreparingRebalance"
    rig.timers.advance(2000)
    settle(first)
    assert (rig.group.state, list(rig.group.members)) == ("Stable", [first.member])


def test_a_pending_member_that_leaves_costs_a_rebalance_and_one_that_expires_none():
    """Asked of Kafka 4.3.1."""
    rig = Rig()
    (first,) = together(rig, 1)
    second, third = Client(rig, "c1"), Client(rig, "c2")
    second.join()
    rig.timers.advance(SESSION_MS - 1)
    first.heartbeat()
    rig.timers.advance(1)
    assert not rig.group.pending and rig.group.state == "Stable"
    third.join()
    assert third.leave() is None
    assert rig.group.state == "PreparingRebalance"
    first.heartbeat()
    assert first.errors["REBALANCE_IN_PROGRESS"] == 1
    settle(first)
    assert (rig.group.state, rig.group.generation) == ("Stable", 2)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_three_static_members_that_join_at_once_are_known_to_the_end(order):
    rig = Rig()
    made = [Client(rig, f"c{at}", instance=f"i{at}") for at in range(3)]
    for at in order:
        made[at].join()
    settle(*made)
    assert all(client.errors["UNKNOWN_MEMBER_ID"] == 0 for client in made)
    assert set(rig.group.instances) == {"i0", "i1", "i2"}


def test_a_repeated_join_does_not_get_unknown_member_id():
    rig = Rig()
    first, second = together(rig, 2)
    first.wants_join = True
    first.join()
    answers = []
    waiting = rig.group.members[first.member].join
    assert waiting is not None
    rig.group.members[first.member].join = answers.append
    first.give_up()
    first.join()  # the client gave up its first request and sends it again
    assert [answer.error.name for answer in answers] == ["REBALANCE_IN_PROGRESS"]
    settle(first, second)
    assert first.errors["UNKNOWN_MEMBER_ID"] == 0


def test_a_member_that_exceeded_max_poll_costs_one_rebalance_each_way():
    """It leaves and the others continue; it joins again and all share again. There are no more
    rebalances."""
    rig = Rig()
    first, second = together(rig, 2)
    before = rig.group.generation
    assert second.leave() is None
    settle(first)
    assert first.generation == before + 1
    for _ in range(5):
        first.heartbeat()
        rig.timers.advance(1000)
    assert rig.group.generation == before + 1
    settle(second, first)
    assert rig.group.generation == before + 2
    for _ in range(20):
        for client in (first, second):
            client.heartbeat()
        rig.timers.advance(1000)
    assert (rig.group.state, rig.group.generation) == ("Stable", before + 2)


def test_a_commit_during_a_rebalance_or_of_an_old_generation_gets_an_error():
    """PREPARING takes commits of its generation; COMPLETING says REBALANCE_IN_PROGRESS."""
    rig = Rig()
    first, second = together(rig, 2)
    third = Client(rig, "c2")
    third.settle()
    assert rig.group.state == "PreparingRebalance"
    assert error_of_commit(rig, 5, first.member, first.generation) is None
    for client in (first, second):
        client.heartbeat()
        client.join()
    assert rig.group.state == "CompletingRebalance"
    old = first.generation - 1
    assert isinstance(error_of_commit(rig, 6, first.member, first.generation), RebalanceInProgress)
    assert isinstance(error_of_commit(rig, 6, first.member, old), IllegalGeneration)
    assert isinstance(error_of_commit(rig, 6, "nobody", first.generation), UnknownMemberId)
    settle(first, second, third)
    assert error_of_commit(rig, 7, first.member, first.generation) is None
    assert rig.committed() == 7


def test_a_silent_member_is_out_after_its_session_and_the_rest_go_on():
    rig = Rig()
    first, second = together(rig, 2)
    first.errors.clear()
    for _ in range(12):
        rig.timers.advance(SESSION_MS // 10)
        if first.wants_join:
            break
        first.heartbeat()
    assert first.errors == {"REBALANCE_IN_PROGRESS": 1}
    settle(first)
    assert list(rig.group.members) == [first.member]
    second.heartbeat()
    assert second.errors["UNKNOWN_MEMBER_ID"] == 1


def test_heartbeats_keep_a_session_and_cost_no_timers():
    rig = Rig()
    (client,) = together(rig, 1)
    before = len(rig.timers._heap)
    for _ in range(100):
        client.heartbeat()
    assert len(rig.timers._heap) == before
    for _ in range(50):
        rig.timers.advance(SESSION_MS - 1)
        client.heartbeat()
    assert client.errors == {"MEMBER_ID_REQUIRED": 1}


def test_each_member_has_its_own_session():
    """One timer checks all of them: in time for the shortest session, and again for the others."""
    rig = Rig()
    sessions = {"c0": 9_000, "c1": 3_000, "c2": 6_000, "c3": 3_000}
    clients = [Client(rig, name, session_ms=ms) for name, ms in sessions.items()]
    settle(*clients)
    keeper = clients[0]
    members = {client.member: client.name for client in clients}
    gone = {}
    for _ in range(70):
        rig.timers.advance(100)
        rig.commits.table.heard(GROUP, keeper.member)
        for member in members.keys() - rig.group.members.keys() - gone.keys():
            gone[member] = rig.timers.time_ms
    assert set(rig.group.members) == {keeper.member}
    began = min(gone.values()) - 3_000
    late = {members[member]: at_ms - began for member, at_ms in gone.items()}
    assert late == {"c1": 3_000, "c3": 3_000, "c2": 6_000}


def test_a_member_that_does_not_rejoin_within_the_rebalance_timeout_is_removed():
    rig = Rig()
    first, second = together(rig, 2)
    third = Client(rig, "c2")
    third.settle()
    first.heartbeat()
    first.join()
    for _ in range(REBALANCE_MS // 1000):
        rig.commits.table.heard(GROUP, second.member)
        rig.timers.advance(1000)
    settle(first, third)
    assert second.member not in rig.group.members


def test_a_rebalance_waits_for_the_longest_timeout_of_its_members():
    rig = Rig()
    first, second = together(rig, 2)
    rig.group.members[second.member].rebalance_timeout_ms = 3 * REBALANCE_MS
    third = Client(rig, "c2")
    third.settle()
    first.heartbeat()
    first.join()
    for at in range(1, 3 * REBALANCE_MS // 1000 + 1):
        assert second.member in rig.group.members, f"out after {at} s"
        rig.commits.table.heard(GROUP, second.member)
        rig.timers.advance(1000)
    assert second.member not in rig.group.members


def test_a_member_that_does_not_sync_is_removed():
    rig = Rig()
    first, second = clients(rig, 2)
    for client in (first, second):
        client.settle()
    first.heartbeat()
    first.join()  # now both are in the next generation
    leader, other = (first, second) if first.view else (second, first)
    leader.sync()
    if other.assignment is None and not other.wants_join:
        for _ in range(REBALANCE_MS // 1000 + 1):
            rig.timers.advance(1000)
            leader.step()
    settle(leader)
    assert list(rig.group.members) == [leader.member]


def test_a_pending_id_that_is_never_used_expires():
    rig = Rig()
    client = Client(rig, "c0")
    client.join()
    assert list(rig.group.pending) == [client.member]
    rig.timers.advance(SESSION_MS)
    assert not rig.group.pending
    client.join()
    assert client.errors["UNKNOWN_MEMBER_ID"] == 1


def test_pending_members_hold_a_rebalance_up_only_until_they_expire():
    rig = Rig()
    (first,) = together(rig, 1)
    second = Client(rig, "c1")
    second.join()
    third = Client(rig, "c2")
    third.settle()
    first.heartbeat()
    first.join()
    assert rig.group.state == "PreparingRebalance"
    rig.timers.advance(SESSION_MS)
    assert rig.group.state == "CompletingRebalance"


def test_a_static_member_comes_back_into_its_place_without_a_rebalance():
    rig = Rig()
    first = Client(rig, "c0", instance="one")
    second = Client(rig, "c1", instance="two")
    settle(first, second)
    generation, old_id = rig.group.generation, second.member
    first.errors.clear()
    again = Client(rig, "c1", instance="two")
    again.settle()
    assert again.generation == generation and rig.group.state == "Stable"
    assert again.assignment == old_id.encode()  # the assignment of its instance
    second.heartbeat()
    assert second.errors["FENCED_INSTANCE_ID"] == 1
    first.heartbeat()
    assert not first.errors
    rig.crash()
    assert rig.group.instances == {"one": first.member, "two": again.member}


def test_a_static_leader_that_comes_back_keeps_the_assignment():
    rig = Rig()
    leader = Client(rig, "c0", instance="one")
    other = Client(rig, "c1", instance="two")
    settle(leader, other)
    name = rig.group.members[rig.group.leader].instance_id
    answers = []
    from barnabas.coordinator.groups.rebalance import Join

    asked = Join("", name, "c", "/", 1000, 1000, "consumer", [("range", b"")], True, True)
    rig.coordinator.join(GROUP, asked, answers.append)
    (result,) = answers
    assert result.skip_assignment and result.leader == result.member_id
    assert {view.instance_id for view in result.members} == {"one", "two"}
    rig.coordinator.join(GROUP, asked._replace(can_skip_assignment=False), answers.append)
    assert not answers[1].skip_assignment and answers[1].leader != answers[1].member_id


def test_a_fenced_member_commits_nothing():
    rig = Rig()
    first = Client(rig, "c0", instance="one")
    first.settle()
    second = Client(rig, "c0", instance="one")
    second.settle()
    error = error_of_commit(rig, 9, first.member, first.generation, instance="one")
    assert isinstance(error, FencedInstanceId)
    assert rig.committed() is None
    assert error_of_commit(rig, 9, second.member, second.generation, instance="one") is None


def test_static_members_keep_their_place_over_a_restart_and_dynamic_ones_their_session():
    rig = Rig()
    static = Client(rig, "c0", instance="one")
    dynamic = Client(rig, "c1")
    settle(static, dynamic)
    rig.crash()
    assert rig.group.state == "Stable"
    for client in (static, dynamic):
        client.heartbeat()
        assert client.assignment is not None
    rig.timers.advance(SESSION_MS + 1)
    assert rig.group.state == "PreparingRebalance" or not rig.group.members


def test_the_protocol_is_the_one_that_most_members_want():
    rig = Rig()
    first = Client(rig, "c0", protocols=("range", "sticky"))
    second = Client(rig, "c1", protocols=("sticky", "range"))
    third = Client(rig, "c2", protocols=("sticky", "range"))
    settle(first, second, third)
    assert rig.group.protocol_name == "sticky"
    stranger = Client(rig, "c3", protocols=("odd",))
    stranger.join()
    assert stranger.errors == {"INCONSISTENT_GROUP_PROTOCOL": 1}


def test_a_full_group_accepts_no_more_members():
    rig = Rig(members_max=2)
    together(rig, 2)
    third = Client(rig, "c2")
    third.join()
    assert third.errors == {"GROUP_MAX_SIZE_REACHED": 1}


def test_joins_extend_the_initial_delay():
    rig = Rig(initial_delay_ms=3000)
    made = clients(rig, 3)
    for client in made:
        client.settle()
        rig.timers.advance(2000)
    assert rig.group.state == "PreparingRebalance"
    rig.timers.advance(3000)
    settle(*made)
    assert rig.group.generation == 1


def test_a_new_member_whose_client_went_away_does_not_stay_for_ever():
    rig = Rig(initial_delay_ms=NEW_MEMBER_TIMEOUT_MS * 2)
    client = Client(rig, "c0")
    client.settle()
    assert client.waits == "join"
    rig.timers.advance(NEW_MEMBER_TIMEOUT_MS + 1)
    assert not rig.group.members


def test_an_assignment_counts_when_it_is_durable():
    rig = Rig(immediately=False)
    client = Client(rig, "c0")
    client.settle()
    assert client.waits == "sync" and rig.group.state == "CompletingRebalance"
    rig.journal.flush()
    assert client.assignment == client.member.encode()
    rig.crash()
    assert rig.group.members[client.member].assignment == client.assignment


def test_an_assignment_that_cannot_be_written_begins_anew():
    rig = Rig(immediately=False)
    client = Client(rig, "c0")
    client.settle()
    rig.journal.flush(error=CoordinatorNotAvailable())
    assert rig.group.state == "PreparingRebalance" and client.wants_join
    client.settle()
    rig.journal.flush()
    assert client.assignment is not None and rig.group.generation == 2


def test_leaving_of_several_at_once_is_one_rebalance():
    rig = Rig()
    first, second, third = together(rig, 3)
    generation = rig.group.generation
    outcomes = rig.coordinator.leave(
        GROUP, [(second.member, None), (third.member, None), ("nobody", None)]
    )
    assert [error and error.name for _, _, error in outcomes] == [None, None, "UNKNOWN_MEMBER_ID"]
    first.heartbeat()
    settle(first)
    assert rig.group.generation == generation + 1


def test_the_group_is_empty_when_all_have_left_and_may_be_deleted():
    rig = Rig()
    (client,) = together(rig, 1)
    rig.commit(3, client.member, client.generation)
    told = []
    rig.administration.delete_group(GROUP, told.append)
    assert isinstance(told[0], NonEmptyGroup)
    client.leave()
    assert rig.group.state == "Empty"
    rig.administration.delete_group(GROUP, told.append)
    assert told[1] is None
    with pytest.raises(GroupIdNotFound):
        rig.administration.describe(GROUP)
    rig.crash()
    assert rig.coordinator.groups == {} and rig.committed() is None
