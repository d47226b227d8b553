"""Streams groups (KIP-1071): joining, assigning, revoking, standbys, leaving, timeouts."""

import pytest
from oracle.group_rig import GROUP
from oracle.streams_rig import (
    INTERVAL_MS,
    REBALANCE_MS,
    SESSION_MS,
    Instance,
    StreamsRig,
    no_task_twice,
    settle,
    subtopology,
    topology,
)

from barnabas.coordinator.groups.group_writes import RETRY_MS
from barnabas.coordinator.streams.streams_member import Endpoint
from barnabas.coordinator.streams.streams_records import topology_entry
from barnabas.coordinator.streams.tasks import TaskSets, grouped
from barnabas.coordinator.streams.topic_configuration import (
    ASSIGNMENT_DELAYED,
    MISSING_INTERNAL_TOPICS,
    MISSING_SOURCE_TOPICS,
    SHUTDOWN_APPLICATION,
    STALE_TOPOLOGY,
)
from barnabas.coordinator.streams.topology import Copartition
from barnabas.errors import CoordinatorNotAvailable, KafkaError, NonEmptyGroup

STATEFUL = topology(subtopology("0", ("t",), changelogs=("log",)))


def codes(instance):
    return [row.code for row in instance.last.statuses]


def test_a_member_alone_runs_every_task_at_once():
    rig = StreamsRig()
    one = Instance(rig, "a")
    result = one.heartbeat()
    assert (result.member_epoch, result.settings.heartbeat_ms) == (2, INTERVAL_MS)
    assert one.active == [0, 1, 2, 3] and rig.group.state == "Stable"
    assert one.heartbeat().assigned is None


def test_tasks_of_a_new_member_are_revoked_first():
    rig = StreamsRig()
    first, second = Instance(rig, "a", revokes_at_once=False), Instance(rig, "b")
    first.heartbeat()
    second.heartbeat()
    for _ in range(3):
        first.heartbeat()
        second.heartbeat()
    assert second.active == [] and first.epoch == 2 and rig.group.state == "Reconciling"
    first.revoke()
    settle(first, second)
    assert first.active == [0, 1] and second.active == [2, 3] and rig.group.state == "Stable"
    no_task_twice([first, second])


def test_standbys_are_in_other_processes_and_take_over():
    rig = StreamsRig({"t": 4, "log": 4}, standby_count=1)
    made = [Instance(rig, name, of=STATEFUL) for name in "ab"]
    settle(*made)
    first, second = made
    assert first.running.standby == second.running.active
    assert second.running.standby == first.running.active
    first.leave()
    settle(second)
    assert second.active == [0, 1, 2, 3] and not second.running.standby


def test_members_of_one_process_are_no_standbys_of_each_other():
    rig = StreamsRig({"t": 4, "log": 4}, standby_count=1)
    made = [Instance(rig, name, "p", of=STATEFUL) for name in "ab"]
    settle(*made)
    assert [len(one.running.active) for one in made] == [2, 2]
    assert not any(one.running.standby for one in made)


def test_the_group_waits_for_its_internal_topics():
    rig = StreamsRig({"t": 4})
    one = Instance(rig, "a", of=STATEFUL)
    result = one.heartbeat()
    assert codes(one) == [MISSING_INTERNAL_TOPICS] and one.active == []
    assert {name: row.partition_count for name, row in result.missing.items()} == {"log": 4}
    assert rig.group.state == "NotReady"
    rig.set_topics(log=4)
    settle(one)
    assert one.active == [0, 1, 2, 3] and codes(one) == []
    rig.set_topics(t=None)
    settle(one)
    assert codes(one) == [MISSING_SOURCE_TOPICS] and one.active == []
    assert rig.group.state == "NotReady"


def test_the_first_assignment_waits_for_more_members():
    rig = StreamsRig(initial_delay_ms=3000)
    first, second = Instance(rig, "a"), Instance(rig, "b")
    first.heartbeat()
    rig.timers.advance(2000)
    second.heartbeat()
    assert codes(first) == codes(second) == [ASSIGNMENT_DELAYED] and first.active == []
    rig.timers.advance(1000)
    first.heartbeat()
    second.heartbeat()
    assert first.active == [0, 2] and second.active == [1, 3]


def test_assignments_are_an_interval_apart():
    rig = StreamsRig(assignment_ms=1000)
    first, second = Instance(rig, "a"), Instance(rig, "b")
    first.heartbeat()
    second.heartbeat()
    first.heartbeat()
    assert ASSIGNMENT_DELAYED in codes(second) and first.active == [0, 1, 2, 3]
    rig.timers.advance(1000)
    settle(first, second)
    assert first.active == [0, 1] and second.active == [2, 3]


def test_a_changed_setting_makes_a_new_assignment():
    rig = StreamsRig({"t": 4, "log": 4})
    made = [Instance(rig, name, of=STATEFUL) for name in "ab"]
    settle(*made)
    epoch = rig.group.epoch
    rig.configure(standby_count=1)
    settle(*made)
    assert rig.group.epoch == epoch + 1 and all(len(one.running.standby) == 2 for one in made)


def test_a_session_that_is_over_frees_the_tasks():
    rig = StreamsRig()
    first, second = Instance(rig, "a"), Instance(rig, "b")
    settle(first, second)
    for _ in range(SESSION_MS // INTERVAL_MS + 1):
        rig.timers.advance(INTERVAL_MS)
        first.heartbeat()
    assert list(rig.group.members) == ["a"] and first.active == [0, 1, 2, 3]
    second.heartbeat()
    assert second.errors == {"UNKNOWN_MEMBER_ID": 1}


def test_a_member_that_does_not_revoke_in_its_rebalance_timeout_is_fenced():
    rig = StreamsRig()
    first, second = Instance(rig, "a", revokes_at_once=False), Instance(rig, "b")
    first.heartbeat()
    for _ in range(REBALANCE_MS // INTERVAL_MS + 2):
        second.heartbeat()
        if "a" in rig.group.members:
            first.heartbeat()
        rig.timers.advance(INTERVAL_MS)
    settle(second)
    assert list(rig.group.members) == ["b"] and second.active == [0, 1, 2, 3]


def test_a_static_member_comes_back_to_its_tasks():
    rig = StreamsRig()
    first, second = Instance(rig, "a", instance="i"), Instance(rig, "b")
    settle(first, second)
    epoch, tasks = rig.group.epoch, first.active
    first.leave(-2)
    settle(second)
    assert second.active == [2, 3]
    again = Instance(rig, "c", "p-a", instance="i")
    settle(again, second)
    assert again.active == tasks and rig.group.epoch == epoch and "a" not in rig.group.members
    rig.crash()
    assert set(rig.group.members) == {"b", "c"}


def test_an_answer_that_was_lost_is_given_again():
    rig = StreamsRig()
    first, second = Instance(rig, "a"), Instance(rig, "b")
    first.heartbeat()
    second.heartbeat()
    first.heartbeat()
    first.heartbeat()
    old = second.epoch
    second.heartbeat()
    second.epoch, second.running = old, second.running._replace(active=set())
    second.heartbeat()
    assert second.active == [2, 3] and not second.errors


def test_epochs_that_are_fenced_and_the_one_whose_answer_was_lost():
    rig = StreamsRig()
    first, second = Instance(rig, "a"), Instance(rig, "b")
    settle(first, second)
    known = rig.group.members["a"]
    assert known.previous_epoch < known.epoch == first.epoch
    lost = first.heartbeat(member_epoch=known.previous_epoch)
    assert lost.error is None and lost.member_epoch == known.epoch
    of_others = TaskSets(active=grouped(second.running.active))
    for asked in (
        {"member_epoch": known.epoch + 1},
        {"member_epoch": known.previous_epoch - 1},
        {"member_epoch": known.previous_epoch, "owned": of_others},
        {"member_epoch": known.previous_epoch, "owned": None},
    ):
        first.epoch = known.epoch  # it does not join again
        assert first.heartbeat(**asked).error.name == "FENCED_MEMBER_EPOCH", asked
    assert rig.group.members["a"] == known


def test_the_topology_of_a_group_is_its_first_members():
    rig = StreamsRig({"t": 2, "u": 2})
    newer = topology(subtopology("0", ("t",)), epoch=3)
    first = Instance(rig, "a", of=newer)
    first.heartbeat()
    late = Instance(rig, "b", of=topology(subtopology("0", ("u",)), epoch=1))
    late.heartbeat()
    assert codes(late) == [STALE_TOPOLOGY] and rig.group.topology == newer
    other = Instance(rig, "c", of=topology(subtopology("0", ("u",)), epoch=3))
    assert other.heartbeat().error.name == "INVALID_REQUEST" and "c" not in rig.group.members


def test_a_member_asks_all_to_shut_down():
    rig = StreamsRig()
    first, second = Instance(rig, "a"), Instance(rig, "b")
    settle(first, second)
    first.heartbeat(shuts_down=True)
    second.heartbeat()
    assert codes(second) == [SHUTDOWN_APPLICATION]
    first.leave()
    second.leave()
    again = Instance(rig, "c")
    again.heartbeat()
    assert codes(again) == []


def test_endpoints_are_told_when_they_change():
    rig = StreamsRig({"t": 4, "log": 4}, standby_count=1)
    first = Instance(rig, "a", of=STATEFUL, endpoint=Endpoint("h", 1))
    second = Instance(rig, "b", of=STATEFUL, endpoint=Endpoint("h", 2))
    settle(first, second)
    second.heartbeat()
    first.endpoint_epoch = -1
    rows = {row.endpoint.port: row for row in first.heartbeat().endpoints}
    assert rows[1].active == {"t": [0, 1]} and rows[1].standby == {"t": [2, 3]}
    assert rows[2].active == {"t": [2, 3]} and rows[2].standby == {"t": [0, 1]}
    assert first.heartbeat().endpoints is None


def test_everything_survives_a_crash():
    rig = StreamsRig({"t": 4, "log": 4}, standby_count=1)
    made = [
        Instance(rig, "a", of=STATEFUL, endpoint=Endpoint("h", 1), rack_id="r"),
        Instance(rig, "b", of=STATEFUL, instance="i", tags=(("zone", "z"),)),
    ]
    settle(*made)
    before = rig.kept()
    rig.crash()
    assert rig.kept() == before
    settle(*made)
    assert rig.kept() == before and all(not one.errors for one in made)


def test_a_stored_topology_that_nothing_fits_does_not_stop_the_load():
    """Kafka stores copartition groups without a look at their indexes."""
    rig = StreamsRig()
    one = Instance(rig, "a")
    one.heartbeat()
    broken = subtopology("0", ("t",), copartitions=[Copartition((7,), (), ())])
    rig.group.topology = topology(broken)
    rig.coordinator.append(0, [topology_entry(GROUP, rig.group.topology)], lambda error: None)
    rig.crash()
    assert set(rig.group.members) == {"a"} and rig.group.configured is None


def test_topics_that_change_while_the_group_loads_are_seen():
    """The topology was configured for the topics of the load, and they changed back."""
    rig = StreamsRig({"t": 4})
    one = Instance(rig, "a")
    settle(one)
    rig.set_topics(t=2)
    rig.crash()
    rig.set_topics(t=4)
    settle(one)
    assert one.active == [0, 1, 2, 3]
    second = Instance(rig, "b")
    settle(one, second)
    assert (one.active, second.active) == ([0, 1], [2, 3])


def test_a_write_that_fails_is_written_again():
    rig = StreamsRig(immediately=False)
    one = Instance(rig, "a")
    one.heartbeat()
    rig.journal.flush(error=CoordinatorNotAvailable())
    assert one.errors == {"COORDINATOR_NOT_AVAILABLE": 1}
    rig.journal.flush(error=CoordinatorNotAvailable())
    rig.timers.advance(RETRY_MS)
    rig.journal.flush()
    before = rig.kept()
    rig.crash()
    assert rig.kept() == before and set(rig.group.members) == {"a"}


def test_other_groups_and_this_one():
    rig = StreamsRig()
    rig.commit(7)
    one = Instance(rig, "a")
    settle(one)  # a group without members becomes a streams group and keeps its offsets
    assert rig.group.group_type == "streams"
    assert rig.coordinator.committed(GROUP)["t"][0].offset == 7
    told = []
    rig.administration.delete_group(GROUP, told.append)
    assert isinstance(told.pop(), NonEmptyGroup)
    one.leave()
    rig.administration.delete_group(GROUP, told.append)
    assert told == [None] and GROUP not in rig.coordinator.groups
    rig.crash()
    assert GROUP not in rig.coordinator.groups


def test_commits_are_checked_with_the_epochs_of_tasks():
    rig = StreamsRig()
    first, second = Instance(rig, "a"), Instance(rig, "b")
    first.heartbeat()
    old = first.epoch
    settle(first, second)
    assert first.epoch > old and first.active == [0, 1]

    def commit(*member, partition=0):
        try:
            rig.commit(5, *member, partition=partition)
        except KafkaError as error:
            return error.name

    assert commit("a", first.epoch) is None
    assert commit("a", old) is None  # it has had partition 0 since then
    assert commit("a", old, partition=3) == "STALE_MEMBER_EPOCH"
    assert commit("a", first.epoch + 1) == "STALE_MEMBER_EPOCH"
    assert commit("nobody", 2) == "UNKNOWN_MEMBER_ID"
    assert commit() == "UNKNOWN_MEMBER_ID"


@pytest.mark.parametrize("members_max", [1, 2])
def test_a_full_group_takes_nobody(members_max):
    rig = StreamsRig(members_max=members_max)
    made = [Instance(rig, name) for name in "abc"]
    for one in made:
        one.heartbeat()
    assert len(rig.group.members) == members_max
    assert made[-1].errors == {"GROUP_MAX_SIZE_REACHED": 1}
