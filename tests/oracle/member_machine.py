"""Random sequences of events for groups whose members send heartbeats: what all kinds share.

A machine for one kind (tests/groups/test_consumer_group_machine.py,
tests/streams/test_streams_group_machine.py) makes the rig and its members, and adds the events and
invariants of its own. Members join, heartbeat, revoke late, fall silent, leave, rejoin; the journal
is late, fails, or loses unflushed records; time passes.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from oracle.consumer_rig import INTERVAL_MS, REBALANCE_MS
from oracle.group_rig import GROUP

from barnabas.errors import CoordinatorNotAvailable

MEMBERS = 4
REFUSALS = ("UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "FENCED_INSTANCE_ID")
MEMBER = st.integers(0, MEMBERS - 1)


class MemberMachine(RuleBasedStateMachine):
    """Override `new`, `nothing_is_held_twice` and `has_converged`; call `start`, and `settle` at
    the end."""

    group_type = ""  # of the groups whose epochs are checked

    def start(self, rig):
        self.rig = rig
        self.made = 0
        self.members = [self.new(at) for at in range(MEMBERS)]
        self.silent = set()
        self.troubled = False
        self.seen, self.epoch = None, 0

    def new(self, at):
        """A new member in this place, which knows only its instance id."""
        raise NotImplementedError

    def name(self, at):
        self.made += 1
        return f"m{at}-{self.made}"

    def is_classic(self, member):
        """Whether the member follows the classic protocol: `step` is its next step."""
        return False

    @property
    def group(self):
        return self.rig.coordinator.groups.get(GROUP)

    def known(self, member):
        return self.group is not None and member.member in self.group.members

    def live(self):
        return [member for at, member in enumerate(self.members) if at not in self.silent]

    # -- events ---------------------------------------------------------------------------------

    @rule(at=MEMBER)
    def step(self, at):
        member = self.members[at]
        if at in self.silent or member.waits:
            return
        if self.is_classic(member):
            member.step()
            return
        kept = member.epoch > 0 and self.known(member)
        before = sum(member.errors[name] for name in REFUSALS)
        member.heartbeat()
        if kept and not member.waits:
            refused = sum(member.errors[name] for name in REFUSALS) - before
            # A member whose heartbeats failed is behind by more than the one epoch that is
            # accepted.
            assert not refused or self.troubled, f"{member.name} was known and is refused"

    @rule(at=MEMBER)
    def revoke(self, at):
        if not self.is_classic(self.members[at]):
            self.members[at].revoke()

    @rule(rounds=st.integers(1, 5), then=st.sampled_from(["flush", "fail", "crash", "wait"]))
    def everybody_goes_on(self, rounds, then):
        for _ in range(rounds):
            for at in range(MEMBERS):
                self.step(at)
            self.flush()
            self.nothing_is_held_twice()
            for at in range(MEMBERS):
                self.revoke(at)
            self.rig.timers.advance(60)
        for at in range(MEMBERS):
            self.step(at)
        if then == "flush":
            self.flush()
        elif then == "fail":
            self.troubled = True
            self.rig.journal.flush(error=CoordinatorNotAvailable())
        elif then == "crash":
            self.crash(0)

    @rule(at=st.integers(0, 3 * MEMBERS))
    def fall_silent(self, at):
        if at < MEMBERS:
            self.silent.add(at)
            self.members[at].give_up()

    @rule(at=MEMBER)
    def come_back(self, at):
        """A new process, which knows only its instance id."""
        if at in self.silent:
            self.silent.discard(at)
            self.members[at] = self.new(at)

    @rule(at=MEMBER, epoch=st.sampled_from([-1, -2]))
    def leave(self, at, epoch):
        member = self.members[at]
        if at in self.silent or member.waits or not self.known(member):
            return
        if self.is_classic(member):
            member.leave()
        elif member.epoch > 0:
            member.leave(epoch if member.instance else -1)
            self.silent.add(at)

    @rule(ms=st.sampled_from([1, 60, 1000, INTERVAL_MS, REBALANCE_MS, 50_000]))
    def pass_time(self, ms):
        self.rig.timers.advance(ms)

    @rule()
    def flush(self):
        self.rig.journal.flush()

    @precondition(lambda self: self.rig.journal.waiting)
    @rule(count=st.integers(1, 3))
    def fail_to_write(self, count):
        """Some writes fail, and those after them do not."""
        self.troubled = True
        failing = self.rig.journal.waiting[:count]
        self.rig.journal.waiting = self.rig.journal.waiting[count:]
        for _, _, done in failing:
            done(CoordinatorNotAvailable())

    @rule(at=st.integers(0, 3))
    def crash(self, at):
        if at:
            return
        self.rig.crash()
        self.troubled = True
        for member in self.members:
            member.give_up()

    # -- what must hold at every step -----------------------------------------------------------

    @invariant()
    def nothing_is_held_twice(self):
        """No partition or task is used by two members of the group."""
        raise NotImplementedError

    @invariant()
    def epochs_go_up(self):
        group = self.group
        if group is None or group.group_type != self.group_type:
            return
        if group is not self.seen:  # a new group: one without members starts again
            self.seen, self.epoch = group, 0
        assert group.epoch >= self.epoch and group.target_epoch <= group.epoch
        self.epoch = group.epoch
        for member in group.members.values():
            assert member.epoch <= group.epoch and member.previous_epoch <= group.epoch
        for member in self.members:
            if not self.is_classic(member) and member.epoch > 0 and member.epochs:
                assert member.epoch == member.epochs[-1]

    # -- the end --------------------------------------------------------------------------------

    def settle(self):
        """No new events: the journal writes, time passes, all members follow the protocol. The
        group converges, and a restart loads the same state."""
        self.rig.journal.flush()
        self.rig.journal.immediately = True
        live = self.live()
        for _ in range(400):
            for member in live:
                if self.is_classic(member):
                    member.step()
                else:
                    member.revoke()
                    member.heartbeat()
            self.nothing_is_held_twice()
            self.rig.timers.advance(500)
            if self.has_converged(live):
                break
        else:
            raise AssertionError(([vars(m) for m in live], self.group and self.group.state))
        before = self.group and self.kept()
        self.rig.crash()
        assert (self.group and self.kept()) == before

    def has_converged(self, live):
        """Whether these members have everything, and the group has no others."""
        raise NotImplementedError

    def kept(self):
        """The state of the group that a restart must restore."""
        return self.rig.kept()


def run_settings(examples, steps):
    """Hypothesis's settings of a machine."""
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
