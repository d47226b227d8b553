"""Consumer groups under random sequences of events: a state machine that is compared with a model.

The events are those of oracle/member_machine.py; the members are of both protocols, and topics
grow, are created and deleted. What must hold at every step: no partition is read by two members of
the group; epochs increase, those of the group and those in a member's responses; a member that kept
its session, and revoked in time, is known and not fenced. And at the end, without new events, the
group has converged: every partition has one reader. Hypothesis prints the steps of a failing run,
and runs them again.
"""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from long_form import pick
from oracle.consumer_rig import Classic, Consumer, ConsumerRig, no_partition_twice
from oracle.member_machine import MEMBERS, MemberMachine, run_settings

EXAMPLES = pick(short=25, long=1000)
pytestmark = pytest.mark.timeout(pick(short=300, long=3600))
STEPS = 100


class ConsumerGroupMachine(MemberMachine):
    group_type = "consumer"

    @initialize(
        static=st.integers(0, 2),
        classic=st.integers(0, 2),
        regex=st.booleans(),
        assignor=st.sampled_from([None, "uniform", "range"]),
        assignment_ms=st.sampled_from([0, 0, 100, 1000]),
    )
    def begin(self, static, classic, regex, assignor, assignment_ms):
        self.kinds = []
        for at in range(MEMBERS):
            instance = f"i{at}" if at < static else None
            kind = "classic" if at >= MEMBERS - classic else "regex" if regex else "consumer"
            self.kinds.append((kind, instance, assignor))
        self.start(ConsumerRig({"t": 4}, immediately=False, assignment_ms=assignment_ms))

    def new(self, at):
        kind, instance, assignor = self.kinds[at]
        name = self.name(at)
        if kind == "classic":
            return Classic(self.rig, name, instance=instance, version=0)
        regex = "t|u" if kind == "regex" else None
        return Consumer(
            self.rig,
            name,
            topics=None if regex else ("t", "u"),
            regex=regex,
            instance=instance,
            assignor=assignor,
            revokes_at_once=False,
        )

    def is_classic(self, member):
        return isinstance(member, Classic)

    @rule(count=st.integers(1, 7), other=st.sampled_from([None, 1, 3]))
    def change_topics(self, count, other):
        """Topic t only gets partitions; u is created and deleted."""
        self.rig.set_topics(t=max(count, self.rig.topics["t"]), u=other)

    @invariant()
    def nothing_is_held_twice(self):
        # A member that was fenced learns it with its next heartbeat.
        no_partition_twice([member for member in self.members if self.known(member)])

    @invariant()
    def counts_are_those_of_the_members(self):
        group = self.group
        if group is None or group.group_type != "consumer":
            return
        members = group.members.values()
        assert group.classic_count == sum(m.classic is not None for m in members)
        assert set(group.instances.values()) <= set(group.members)
        owners = {
            (t, p): m.member_id
            for m in members
            for owned in (m.assigned, m.revoking)
            for t, rows in owned.items()
            for p in rows
        }
        assert owners == {(t, p): m for t, rows in group.owners.items() for p, m in rows.items()}
        assert set(group.names) == {name for m in members for name in m.topics}

    def teardown(self):
        if hasattr(self, "rig"):
            self.settle()

    def kept(self):
        if self.group.group_type == "consumer":
            return self.rig.kept()
        return self.group.generation, set(self.group.members)

    def has_converged(self, live):
        group = self.group
        if not live:
            return group is None or not group.members
        reading = sum(len(member.reading) for member in live)
        if group is None or set(group.members) != {member.member for member in live}:
            return False
        if group.group_type == "classic":  # its leader knows only topic t
            return group.state == "Stable" and reading == self.rig.topics["t"]
        only_t = all(isinstance(member, Classic) for member in live)
        wanted = self.rig.topics["t"] if only_t else sum(self.rig.topics.values())
        return group.state == "Stable" and reading == wanted


ConsumerGroupMachine.TestCase.settings = run_settings(EXAMPLES, STEPS)
test_consumer_groups_beside_a_model = ConsumerGroupMachine.TestCase


def test_a_last_member_whose_leave_fails_twice_beside_a_model():
    """The steps of a failing run that Hypothesis found, with the invariants after the last."""
    machine = ConsumerGroupMachine()
    machine.begin(static=0, classic=0, regex=False, assignor=None, assignment_ms=0)
    for at in (0, 2, 3):
        machine.fall_silent(at=at)
    machine.everybody_goes_on(rounds=1, then="flush")
    machine.leave(at=1, epoch=-1)
    machine.fail_to_write(count=1)
    machine.fail_to_write(count=1)
    machine.counts_are_those_of_the_members()
    machine.epochs_go_up()
    machine.nothing_is_held_twice()
    assert machine.rig.group.writes.behind and not machine.rig.journal.waiting
    machine.teardown()


def test_the_checker_sees_a_partition_that_is_given_away_too_early():
    """The same invariant, on a coordinator that does not wait for a release."""
    rig = ConsumerRig({"t": 2})
    first, second = Consumer(rig, "a", revokes_at_once=False), Consumer(rig, "b")
    first.heartbeat()
    machine = object.__new__(ConsumerGroupMachine)
    machine.rig, machine.members = rig, [first, second]
    machine.nothing_is_held_twice()
    rig.group.owners.clear()  # the planted bug: as if all partitions had been released
    second.heartbeat()
    try:
        machine.nothing_is_held_twice()
    except AssertionError:
        return
    raise AssertionError("two readers of one partition were not seen")
