"""Consumer groups (KIP-848): joining, assigning, revoking, leaving, fencing, timeouts."""

import pytest
from oracle.consumer_rig import (
    INTERVAL_MS,
    REBALANCE_MS,
    SESSION_MS,
    Consumer,
    ConsumerRig,
    no_partition_twice,
    settle,
    together,
    topic_id,
)
from oracle.group_rig import GROUP

from barnabas.coordinator.groups.consumer_heartbeats import Heartbeat
from barnabas.coordinator.groups.group_writes import RETRY_MS
from barnabas.errors import CoordinatorNotAvailable, KafkaError, NonEmptyGroup
from barnabas.hooks import hookimpl


def ask(rig, **fields):
    """Sends one heartbeat. Returns the response."""
    told = []
    rig.coordinator.consumer_heartbeat(GROUP, Heartbeat(**fields), told.append)
    (result,) = told
    return result


def name_of(result):
    return None if result.error is None else result.error.name


FIRST = {
    "member_id": "m",
    "member_epoch": 0,
    "rebalance_timeout_ms": REBALANCE_MS,
    "topics": ("t",),
    "owned": {},
}


def test_a_member_alone_owns_everything_at_once():
    rig = ConsumerRig()
    consumer = Consumer(rig, "a")
    result = consumer.heartbeat()
    assert (result.member_id, result.member_epoch, result.interval_ms) == ("a", 2, INTERVAL_MS)
    assert consumer.owned == [0, 1, 2, 3, 4, 5]
    assert (rig.group.state, rig.group.epoch, rig.group.target_epoch) == ("Stable", 2, 2)
    assert consumer.heartbeat().assigned is None  # nothing has changed


def test_version_0_makes_the_id():
    rig = ConsumerRig()
    result = ask(rig, **FIRST | {"member_id": "", "version": 0})
    assert result.member_id and result.member_id in rig.group.members
    assert name_of(ask(rig, **FIRST | {"member_id": "", "version": 1})) == "INVALID_REQUEST"


def test_partitions_of_a_new_member_are_revoked_first():
    rig = ConsumerRig()
    first = Consumer(rig, "a", revokes_at_once=False)
    first.heartbeat()
    second = Consumer(rig, "b")
    second.heartbeat()
    assert second.owned == [] and second.epoch == 3 and rig.group.state == "Reconciling"
    first.heartbeat()  # must revoke three
    assert first.epoch == 2 and len(first.to_revoke) == 3 and len(first.owned) == 6
    for _ in range(3):
        first.heartbeat()
        second.heartbeat()
    assert second.owned == [] and first.epoch == 2, "nobody may read them before they are released"
    first.revoke()
    first.heartbeat()
    assert first.epoch == 3 and len(first.owned) == 3
    second.heartbeat()
    assert len(second.owned) == 3 and rig.group.state == "Stable"
    no_partition_twice([first, second])


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_three_consumers_that_join_at_once_share_and_one_leaves(assignor):
    rig = ConsumerRig()
    made = together(rig, 3, assignor=assignor)
    no_partition_twice(made)
    assert sorted(len(c.owned) for c in made) == [2, 2, 2]
    before = rig.group.epoch
    assert made[1].leave().member_epoch == -1
    settle(made[0], made[2])
    assert sorted(made[0].owned + made[2].owned) == [0, 1, 2, 3, 4, 5]
    assert rig.group.epoch == before + 1
    assert all(not c.errors for c in made)


def test_uniform_moves_no_more_than_it_must():
    rig = ConsumerRig({"t": 12})
    made = together(rig, 3)
    before = [set(c.owned) for c in made]
    settle(*made, Consumer(rig, "d"))
    assert all(
        set(c.owned) < old and len(c.owned) == 3 for c, old in zip(made, before, strict=True)
    )


def test_new_partitions_new_topics_and_deleted_ones_are_seen_with_a_heartbeat():
    rig = ConsumerRig({"t": 2})
    made = together(rig, 2, topics=("t", "later"))
    epoch = rig.group.epoch
    rig.set_topics(t=4)
    settle(*made)
    assert sorted(made[0].owned + made[1].owned) == [0, 1, 2, 3] and rig.group.epoch == epoch + 1
    rig.set_topics(later=2)
    settle(*made)
    assert {row for c in made for row in c.reading if row[0] == topic_id("later")} == {
        (topic_id("later"), 0),
        (topic_id("later"), 1),
    }
    assert rig.group.epoch == epoch + 2
    rig.set_topics(t=None)
    settle(*made)
    assert made[0].owned == made[1].owned == [] and rig.group.epoch == epoch + 3
    rig.set_topics(other=5)  # no member subscribes to it
    settle(*made)
    assert rig.group.epoch == epoch + 3


def test_a_changed_subscription_is_followed_at_once():
    rig = ConsumerRig({"t": 2, "u": 2})
    (consumer,) = together(rig, 1)
    consumer.subscribe("u")
    settle(consumer)
    assert {topic for topic, _ in consumer.reading} == {topic_id("u")}
    assert rig.group.names == {"u": 1}


def test_a_session_that_is_over_frees_the_partitions():
    rig = ConsumerRig()
    first, second = together(rig, 2)
    for _ in range(SESSION_MS // INTERVAL_MS + 1):
        rig.timers.advance(INTERVAL_MS)
        first.heartbeat()
    assert list(rig.group.members) == ["c0"] and len(first.owned) == 6
    second.heartbeat()
    assert second.errors == {"UNKNOWN_MEMBER_ID": 1} and second.epoch == 0


def test_a_member_that_does_not_revoke_in_its_rebalance_timeout_is_fenced():
    rig = ConsumerRig()
    first = Consumer(rig, "a", revokes_at_once=False)
    first.heartbeat()
    second = Consumer(rig, "b")
    for _ in range(REBALANCE_MS // INTERVAL_MS + 2):
        second.heartbeat()
        if "a" in rig.group.members:
            first.heartbeat()
        rig.timers.advance(INTERVAL_MS)
    assert list(rig.group.members) == ["b"]
    settle(second)
    assert len(second.owned) == 6


def test_group_timeouts_of_a_group_of_its_own():
    rig = ConsumerRig(timeouts={GROUP: (1000, 250)})
    consumer = Consumer(rig, "a")
    assert consumer.heartbeat().interval_ms == 250
    rig.timers.advance(999)
    assert rig.group.members
    rig.timers.advance(1)
    assert not rig.group.members and rig.group.state == "Empty"


def test_a_known_member_that_joins_again_gets_its_assignment():
    rig = ConsumerRig()
    first, second = together(rig, 2)
    before, epoch = first.owned, rig.group.epoch
    first.abandon()
    first.heartbeat()
    assert first.owned == before and first.epoch == rig.group.epoch == epoch
    settle(first, second)
    assert not first.errors


def test_a_later_join_waits_for_the_next_assignment():
    rig = ConsumerRig(assignment_ms=1000)
    made = [Consumer(rig, f"c{at}") for at in range(4)]
    for consumer in made:
        consumer.heartbeat()
    assert [len(c.owned) for c in made] == [6, 0, 0, 0]
    assert (rig.group.state, rig.group.epoch, rig.group.target_epoch) == ("Assigning", 5, 2)
    assert {c.epoch for c in made} == {2}
    rig.timers.advance(999)
    assert rig.group.target_epoch == 2
    rig.timers.advance(1)  # without a heartbeat
    assert (rig.group.state, rig.group.target_epoch) == ("Reconciling", 5)
    settle(*made)
    assert sorted(len(c.owned) for c in made) == [1, 1, 2, 2] and {c.epoch for c in made} == {5}
    before = rig.kept()
    rig.crash()
    assert rig.kept() == before


def test_epochs_that_are_fenced_and_the_one_whose_answer_was_lost():
    rig = ConsumerRig()
    ask(rig, **FIRST)
    everything = {topic_id("t"): set(range(6))}
    again = {"member_id": "m", "owned": everything}
    assert name_of(ask(rig, **again, member_epoch=3)) == "FENCED_MEMBER_EPOCH"
    assert name_of(ask(rig, **again, member_epoch=2)) is None
    ask(rig, **FIRST | {"member_id": "n"})
    told = ask(rig, member_id="m", member_epoch=2, owned=everything)
    kept = {t: set(rows) for t, rows in told.assigned.items()}
    assert ask(rig, member_id="m", member_epoch=2, owned=kept).member_epoch == 3
    # The last response was lost: the member sends the epoch before it.
    assert ask(rig, member_id="m", member_epoch=2, owned=kept).member_epoch == 3
    assert name_of(ask(rig, member_id="m", member_epoch=2, owned=everything)) == (
        "FENCED_MEMBER_EPOCH"
    )
    assert name_of(ask(rig, member_id="m", member_epoch=2)) == "FENCED_MEMBER_EPOCH"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"member_id": " "}, "INVALID_REQUEST"),
        ({"rebalance_timeout_ms": -1}, "INVALID_REQUEST"),
        ({"owned": None}, "INVALID_REQUEST"),
        ({"owned": {topic_id("t"): {0}}}, "INVALID_REQUEST"),
        ({"topics": None}, "INVALID_REQUEST"),
        ({"instance_id": ""}, "INVALID_REQUEST"),
        ({"rack_id": ""}, "INVALID_REQUEST"),
        ({"member_epoch": -3}, "INVALID_REQUEST"),
        ({"member_epoch": -2}, "INVALID_REQUEST"),
        ({"member_epoch": 1}, "GROUP_ID_NOT_FOUND"),
        ({"member_epoch": -1}, "GROUP_ID_NOT_FOUND"),
        ({"assignor": "mine"}, "UNSUPPORTED_ASSIGNOR"),
        ({"topics": None, "regex": "a("}, "INVALID_REGULAR_EXPRESSION"),
        ({"topics": None, "regex": "a" * 5000}, "INVALID_REGULAR_EXPRESSION"),
    ],
)
def test_requests_that_are_refused_leave_nothing_behind(change, error):
    rig = ConsumerRig()
    assert name_of(ask(rig, **FIRST | change)) == error
    assert rig.coordinator.groups == {} and rig.entries() == []


def test_a_group_is_full():
    rig = ConsumerRig(consumers_max=2)
    first, second = together(rig, 2)
    third = Consumer(rig, "c2")
    third.heartbeat()
    assert third.errors == {"GROUP_MAX_SIZE_REACHED": 1}
    first.heartbeat()
    assert not first.errors
    second.leave()
    third.heartbeat()
    assert third.epoch > 0


class TestStaticMembers:
    def test_a_returning_static_member_has_its_partitions_at_once_without_a_rebalance(self):
        rig = ConsumerRig()
        made = [Consumer(rig, f"c{at}", instance=f"i{at}") for at in range(2)]
        settle(*made)
        owned, epoch = made[0].owned, rig.group.epoch
        assert made[0].leave(epoch=-2).member_epoch == -2
        made[1].heartbeat()
        assert len(made[1].owned) == 3, "its partitions are kept"
        back = Consumer(rig, "new", instance="i0")
        back.heartbeat()
        assert back.owned == owned and rig.group.epoch == epoch and back.epoch == epoch
        assert "c0" not in rig.group.members and rig.group.instances["i0"] == "new"

    def test_a_static_member_that_stays_away_loses_its_partitions_with_its_session(self):
        rig = ConsumerRig()
        made = [Consumer(rig, f"c{at}", instance=f"i{at}") for at in range(2)]
        settle(*made)
        made[0].leave(epoch=-2)
        for _ in range(SESSION_MS // INTERVAL_MS + 1):
            made[1].heartbeat()
            rig.timers.advance(INTERVAL_MS)
        settle(made[1])
        assert len(made[1].owned) == 6 and list(rig.group.instances) == ["i1"]

    def test_an_instance_that_has_not_left_is_not_taken_over(self):
        rig = ConsumerRig()
        (first,) = together(rig, 1, instance="i")
        second = Consumer(rig, "b", instance="i")
        second.heartbeat()
        assert second.errors == {"UNRELEASED_INSTANCE_ID": 1}
        assert first.heartbeat().error is None

    def test_the_old_member_of_an_instance_is_fenced(self):
        rig = ConsumerRig()
        (first,) = together(rig, 1, instance="i")
        first_epoch = first.epoch
        first.leave(epoch=-2)
        Consumer(rig, "b", instance="i").heartbeat()
        told = ask(rig, member_id="c0", member_epoch=first_epoch, instance_id="i", owned={})
        assert name_of(told) == "FENCED_INSTANCE_ID"
        told = ask(rig, member_id="c0", member_epoch=1, instance_id="nobody", owned={})
        assert name_of(told) == "UNKNOWN_MEMBER_ID"

    def test_a_static_member_that_leaves_for_good_frees_its_instance(self):
        rig = ConsumerRig()
        (first,) = together(rig, 1, instance="i")
        first.leave(epoch=-1)
        assert rig.group.instances == {}
        second = Consumer(rig, "b", instance="i")
        second.heartbeat()
        assert len(second.owned) == 6


class TestRegularExpressions:
    def test_matching_topics_are_found_now_and_later(self):
        rig = ConsumerRig({"orders-a": 1, "orders-b": 1, "x-orders-c": 1})
        consumer = Consumer(rig, "a", topics=None, regex="orders-.*")
        settle(consumer)
        assert {t for t, _ in consumer.reading} == {topic_id("orders-a"), topic_id("orders-b")}
        rig.set_topics(**{"orders-new": 2})
        rig.timers.advance(2000)
        settle(consumer)
        settle(consumer)
        assert (topic_id("orders-new"), 1) in consumer.reading
        rig.set_topics(**{"orders-a": None})
        rig.timers.advance(2000)
        settle(consumer)
        settle(consumer)
        assert topic_id("orders-a") not in {t for t, _ in consumer.reading}

    def test_a_regular_expression_matches_no_topic_before_it_is_resolved(self):
        rig = ConsumerRig({"t": 2}, works_at_once=False)
        consumer = Consumer(rig, "a", topics=None, regex="t")
        result = consumer.heartbeat()
        assert result.member_epoch == 1 and consumer.owned == []  # the pattern is not resolved yet
        assert len(rig.work) == 1
        consumer.heartbeat()
        assert len(rig.work) == 1, "one look at a time"
        rig.do_work()
        settle(consumer)
        assert consumer.owned == [0, 1] and consumer.epoch == 2

    def test_a_member_may_subscribe_to_names_and_an_expression_and_change_to_neither(self):
        rig = ConsumerRig({"t": 1, "orders": 1})
        consumer = Consumer(rig, "a", topics=("t",), regex="ord.*")
        settle(consumer)
        settle(consumer)
        assert len(consumer.reading) == 2
        consumer.subscribe("t", regex="")
        settle(consumer)
        assert {t for t, _ in consumer.reading} == {topic_id("t")}
        assert rig.group.resolved == {}
        consumer.subscribe()
        settle(consumer)
        assert consumer.reading == set()

    def test_resolved_expressions_are_kept_over_a_restart(self):
        rig = ConsumerRig({"t": 2})
        consumer = Consumer(rig, "a", topics=None, regex="t")
        settle(consumer)
        settle(consumer)
        before = rig.kept()
        rig.crash()
        assert rig.kept() == before
        consumer.give_up()
        assert consumer.heartbeat().error is None and consumer.owned == [0, 1]


class TestAssignors:
    def test_a_failing_assignor_refuses_the_member_and_keeps_the_assignment(self):
        class Failing:
            @hookimpl(tryfirst=True)
            def assign_partitions(self, assignor):
                if assignor == "failing":
                    raise RuntimeError("planted")

        rig = ConsumerRig(assignors=("uniform", "failing"))
        rig.registry.register(Failing(), "failing")
        first, second = together(rig, 2)
        before = rig.kept()
        third = Consumer(rig, "c2", assignor="failing")
        fourth = Consumer(rig, "c3", assignor="failing")
        rig.group.assignors["failing"] = 9
        third.heartbeat()
        fourth.heartbeat()
        assert third.errors == fourth.errors == {"UNKNOWN_SERVER_ERROR": 1}
        rig.group.assignors.clear()
        assert rig.kept() == before and rig.registry.failures["failing"] == 2
        settle(first, second)

    @pytest.mark.parametrize(
        "answer",
        [
            {"stranger": {topic_id("t"): [0]}},
            {"c0": {topic_id("t"): [6]}},
            {"c0": {topic_id("t"): [-1]}},
            {"c0": {topic_id("u"): [0]}},
            {"c0": {topic_id("t"): [0]}, "c1": {topic_id("t"): [0]}},
            ["c0"],
        ],
    )
    def test_impossible_assignments_of_an_assignor_are_refused(self, answer):
        class Wrong:
            @hookimpl(tryfirst=True)
            def assign_partitions(self, group):
                return answer if "c1" in group.members else None

        rig = ConsumerRig({"t": 6, "u": 1})
        rig.registry.register(Wrong(), "wrong")
        (first,) = together(rig, 1)
        second = Consumer(rig, "c1")
        second.heartbeat()
        assert second.errors == {"UNKNOWN_SERVER_ERROR": 1}
        assert list(rig.group.members) == ["c0"] and len(first.owned) == 6


class TestWrites:
    def test_no_answer_comes_before_the_log_has_the_records(self):
        rig = ConsumerRig(immediately=False)
        first = Consumer(rig, "a")
        assert first.heartbeat() is None and first.waits
        second = Consumer(rig, "a")
        second.epoch, second._full = 2, False
        second.heartbeat()  # nothing new, but its state may be lost
        assert second.waits
        rig.journal.flush()
        assert not first.waits and not second.waits and len(first.owned) == 6

    def test_after_a_failed_write_the_whole_group_is_written_before_any_answer(self):
        rig = ConsumerRig(immediately=False)
        first, second = Consumer(rig, "a"), Consumer(rig, "b")
        first.heartbeat()
        rig.journal.flush()
        second.heartbeat()
        rig.journal.flush(error=CoordinatorNotAvailable())
        assert second.errors == {"COORDINATOR_NOT_AVAILABLE": 1}
        assert len(rig.journal.waiting) == 1, "the group catches up without being asked"
        rig.journal.flush()
        assert not rig.group.writes.behind
        rig.journal.immediately = True
        settle(first, second)
        before = rig.kept()
        rig.crash()
        assert rig.kept() == before

    def test_what_was_built_on_a_failed_write_waits(self):
        rig = ConsumerRig(immediately=False)
        first, second = Consumer(rig, "a"), Consumer(rig, "b")
        first.heartbeat()
        second.heartbeat()
        failing, later = rig.journal.waiting
        rig.journal.waiting = []
        failing[2](CoordinatorNotAvailable())
        rig.journal.durable.append(later[:2])
        later[2](None)
        assert first.errors and second.waits, "its answer stands on what the log does not have"
        rig.journal.flush()
        assert not second.waits and second.epoch == 3
        before = rig.kept()
        rig.crash()
        assert rig.kept() == before

    def test_a_member_that_left_while_writes_failed_does_not_come_back(self):
        rig = ConsumerRig()
        first, second = together(rig, 2)
        rig.journal.immediately = False
        second.leave()
        rig.journal.flush(error=CoordinatorNotAvailable())
        rig.journal.flush()
        rig.journal.immediately = True
        rig.crash()
        assert list(rig.group.members) == ["c0"]
        first.give_up()
        settle(first)
        assert len(first.owned) == 6

    def test_a_last_member_whose_leave_fails_twice_does_not_stay_in_the_log(self):
        """No later request writes the group."""
        rig = ConsumerRig()
        alone = Consumer(rig, "a")
        alone.heartbeat()
        rig.journal.immediately = False
        alone.leave()
        rig.journal.flush(error=CoordinatorNotAvailable())
        rig.journal.flush(error=CoordinatorNotAvailable())
        assert alone.errors == {"COORDINATOR_NOT_AVAILABLE": 1}
        rig.timers.advance(RETRY_MS)
        rig.journal.flush(error=CoordinatorNotAvailable())
        rig.timers.advance(RETRY_MS)
        rig.journal.flush()
        before = rig.kept()
        assert before[0] == "Empty" and not rig.group.writes.behind
        rig.timers.advance(10 * RETRY_MS)
        assert not rig.journal.waiting, "what the log has is not written again"
        rig.crash()
        assert rig.kept() == before

    def test_a_group_that_moves_away_is_not_written_again(self):
        rig = ConsumerRig()
        alone = Consumer(rig, "a")
        alone.heartbeat()
        rig.journal.immediately = False
        alone.leave()
        rig.journal.flush(error=CoordinatorNotAvailable())
        rig.journal.flush(error=CoordinatorNotAvailable())
        rig.coordinator.consumers.forget(rig.group)
        rig.timers.advance(RETRY_MS)
        assert not rig.journal.waiting

    @pytest.mark.parametrize("error", [None, CoordinatorNotAvailable()])
    def test_a_group_behind_its_log_is_not_written_behind_its_deletion(self, error):
        rig = ConsumerRig()
        alone = Consumer(rig, "a")
        alone.heartbeat()
        rig.journal.immediately = False
        alone.leave()
        rig.journal.flush(error=CoordinatorNotAvailable())
        rig.journal.flush(error=CoordinatorNotAvailable())
        answers = []
        rig.administration.delete_group(GROUP, answers.append)
        rig.timers.advance(RETRY_MS)
        rig.journal.flush(error=error)
        assert answers == [error]
        rig.timers.advance(RETRY_MS)
        rig.journal.flush()
        known = GROUP in rig.coordinator.groups
        assert known == (error is not None)
        before = rig.kept() if known else None
        rig.crash()
        assert (rig.kept() if GROUP in rig.coordinator.groups else None) == before

    def test_large_groups_are_written_in_parts(self):
        rig = ConsumerRig({"t": 1000})
        made = [Consumer(rig, f"c{at}" + "x" * 900) for at in range(200)]
        for consumer in made:
            consumer.heartbeat()
        rig.journal.immediately = False
        rig.group.writes.behind = True
        made[0].heartbeat()
        assert len(rig.journal.waiting) > 1
        rig.journal.flush()
        assert not made[0].waits
        before = rig.kept()
        rig.crash()
        assert rig.kept() == before


def test_a_restart_brings_everything_back_also_from_a_compacted_log():
    rig = ConsumerRig({"t": 6, "orders": 3})
    made = [Consumer(rig, f"c{at}", instance=f"i{at}" if at < 2 else None) for at in range(4)]
    made.append(Consumer(rig, "regex", topics=None, regex="ord.*", rack="r1", assignor="range"))
    for _ in range(4):
        for consumer in made:
            consumer.heartbeat()
    made[2].leave()
    made[0].leave(epoch=-2)
    made[3].heartbeat()
    before = rig.kept()
    assert rig.compacted().kept() == before
    rig.crash()
    assert rig.kept() == before
    rest = [made[1], made[3], made[4]]
    for consumer in rest:
        consumer.give_up()
    for _ in range(4):
        for consumer in rest:
            consumer.heartbeat()
    assert rig.group.members["c0"].epoch == -2, "it is away, and its place is kept"
    no_partition_twice(rest)
    assert all(not consumer.errors for consumer in rest)


def test_an_empty_group_is_deleted_with_everything():
    rig = ConsumerRig({"t": 2, "orders": 1})
    first = Consumer(rig, "a", topics=("t",), regex="ord.*")
    settle(first)
    told = []
    rig.administration.delete_group(GROUP, told.append)
    assert isinstance(told.pop(), NonEmptyGroup)
    first.leave()
    rig.administration.delete_group(GROUP, told.append)
    assert told == [None] and rig.coordinator.groups == {}
    last = dict(rig.entries())
    assert set(last.values()) == {None}, "every record has its tombstone"
    rig.crash()
    assert rig.coordinator.groups == {}


class TestOffsets:
    def commit(self, rig, *args, **more):
        try:
            ((error,),) = rig.commit(*args, **more)
        except KafkaError as refused:
            error = refused
        return None if error is None else error.name

    def test_members_commit_with_their_epoch(self):
        rig = ConsumerRig()
        first, second = together(rig, 2)
        assert self.commit(rig, 5, "c0", first.epoch, partition=first.owned[0]) is None
        assert self.commit(rig, 5, "c0", first.epoch + 1) == "STALE_MEMBER_EPOCH"
        assert self.commit(rig, 5, "nobody", 1) == "UNKNOWN_MEMBER_ID"
        assert self.commit(rig, 5) == "UNKNOWN_MEMBER_ID"  # without a member id
        told = self.commit(rig, 5, "c0", first.epoch, version=8)
        assert told == "UNSUPPORTED_VERSION"
        first.leave()
        second.leave()
        assert self.commit(rig, 5) is None

    def test_an_epoch_that_was_overtaken_may_commit_for_what_it_had(self):
        rig = ConsumerRig()
        (first,) = together(rig, 1)
        second = Consumer(rig, "c1")
        settle(first, second)
        kept, gone = first.owned[0], second.owned[0]
        assert first.epoch == 3
        assert self.commit(rig, 7, "c0", 2, partition=kept) is None
        assert self.commit(rig, 7, "c0", 2, partition=gone) == "STALE_MEMBER_EPOCH"
        # A partition of the later epoch was not owned in the earlier one.
        assert self.commit(rig, 7, "c1", 2, partition=gone) == "STALE_MEMBER_EPOCH"

    def test_readers_are_checked(self):
        rig = ConsumerRig()
        (first,) = together(rig, 1)
        check = rig.coordinator.check_reader
        check(GROUP, None, -1)
        check(GROUP, "c0", first.epoch)
        with pytest.raises(KafkaError) as caught:
            check(GROUP, "c0", first.epoch + 1)
        assert caught.value.name == "STALE_MEMBER_EPOCH"
        with pytest.raises(KafkaError) as caught:
            check(GROUP, "nobody", 1)
        assert caught.value.name == "UNKNOWN_MEMBER_ID"

    def test_offsets_of_unsubscribed_topics_may_be_deleted_and_expire(self):
        rig = ConsumerRig({"t": 2, "u": 1})
        (first,) = together(rig, 1)
        assert self.commit(rig, 5, "c0", first.epoch) is None
        told = []
        rig.administration.delete_offsets(GROUP, [("t", 0), ("u", 0)], told.append)
        assert [None if e is None else e.name for e in told[0]] == [
            "GROUP_SUBSCRIBED_TO_TOPIC",
            None,
        ]
        for _ in range(200):
            rig.timers.advance(10_000)
            first.heartbeat()
        assert rig.administration.expire() == 0 and rig.committed() == 5
        first.leave()
        assert rig.administration.expire() == 1
        assert rig.coordinator.groups == {} and set(dict(rig.entries()).values()) == {None}


def test_listing_and_describing():
    rig = ConsumerRig(immediately=True)
    first, _second = together(rig, 2, rack="r")
    (row,) = rig.administration.list_groups([], ["CONSUMER"])
    assert (row.group_id, row.protocol_type, row.state, row.group_type) == (
        GROUP,
        "consumer",
        "Stable",
        "consumer",
    )
    assert rig.administration.list_groups(["stable"], ["consumer"]) == [row]
    assert rig.administration.list_groups([], ["classic"]) == []
    assert rig.administration.list_groups(["reconciling"], []) == []
    told = rig.administration.describe_consumers(GROUP)
    assert (told.state, told.epoch, told.target_epoch, told.assignor) == (
        "Stable",
        rig.group.epoch,
        rig.group.epoch,
        "uniform",
    )
    assert [sorted(m.assigned[topic_id("t")]) for m in told.members][0] == first.owned
    with pytest.raises(KafkaError) as caught:
        rig.administration.describe(GROUP)
    assert caught.value.name == "GROUP_ID_NOT_FOUND"
