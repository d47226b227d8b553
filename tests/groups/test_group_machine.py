"""Classic groups under random sequences of events: a state machine that is compared with a model.

Consumers join, sync, heartbeat, fall silent, leave, rejoin, commit; the journal is late, fails,
or loses unflushed records; time passes. What must hold at every step: a request has one
response; a generation is never used twice, nor are two members given the same part of one; an
acknowledged commit is there, and nothing else is; a member that kept its session
is known. And at the end, without new events, every consumer gets an assignment. Hypothesis prints
the steps of a failing run, and runs them again.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from long_form import pick
from oracle.group_rig import GROUP, SESSION_MS, Client, Rig, is_settled

from barnabas.errors import CoordinatorNotAvailable, KafkaError

CLIENTS = 4
PARTITIONS = 2
EXAMPLES = pick(short=25, long=1000)
STEPS = 120


class GroupMachine(RuleBasedStateMachine):
    @initialize(
        static=st.integers(0, CLIENTS),
        delay_ms=st.sampled_from([0, 0, 50]),
    )
    def begin(self, static, delay_ms):
        self.rig = Rig(immediately=False, initial_delay_ms=delay_ms)
        self.clients = [
            Client(self.rig, f"c{at}", instance=f"i{at}" if at < static else None)
            for at in range(CLIENTS)
        ]
        self.silent = set()
        self.model = dict.fromkeys(range(PARTITIONS))  # acknowledged commits
        self.unanswered = []
        self.next_offset = 1

    def client(self, at):
        return self.clients[at % CLIENTS]

    @rule(at=st.integers(0, CLIENTS - 1))
    def step(self, at):
        client = self.client(at)
        if at in self.silent:
            return
        known_before = client.errors["UNKNOWN_MEMBER_ID"] + client.errors["FENCED_INSTANCE_ID"]
        # Its session has not ended and no other member took its instance: it must be known.
        kept = (
            client.member
            and client.assignment is not None
            and self.rig.timers.now_ms() - client.heard_ms < SESSION_MS
            and client.member in self.members()
        )
        client.step()
        if kept:
            after = client.errors["UNKNOWN_MEMBER_ID"] + client.errors["FENCED_INSTANCE_ID"]
            assert after == known_before, f"{client.name} kept its session and is not known"

    @rule(rounds=st.integers(2, 6), then=st.sampled_from(["flush", "fail", "crash", "wait"]))
    def everybody_goes_on(self, rounds, then):
        """Without this rule a random sequence would seldom bring a group to an assignment, or its
        members to a commit that fails or is lost."""
        for _ in range(rounds):
            for at in range(CLIENTS):
                self.step(at)
            self.flush()
            self.rig.timers.advance(60)
        for at in range(CLIENTS):
            self.commit(at, at % PARTITIONS)
        if then == "flush":
            self.flush()
        elif then == "fail":
            self.fail_to_write()
        elif then == "crash":
            self.crash(0)

    def members(self):
        group = self.rig.coordinator.groups.get(GROUP)
        return group.members if group is not None else {}

    @rule(at=st.integers(0, 3 * CLIENTS))
    def fall_silent(self, at):
        if at >= CLIENTS:
            return
        self.silent.add(at)
        self.client(at).give_up()

    @rule(at=st.integers(0, CLIENTS - 1))
    def come_back(self, at):
        """A new process, which knows only its instance id."""
        at %= CLIENTS
        if at in self.silent:
            self.silent.discard(at)
            old = self.clients[at]
            self.clients[at] = Client(self.rig, old.name, instance=old.instance)

    @rule(at=st.integers(0, CLIENTS - 1))
    def leave(self, at):
        client = self.client(at)
        if client.member and client.assignment is not None and at not in self.silent:
            try:
                client.leave()
            except KafkaError as error:
                assert error.name == "UNKNOWN_MEMBER_ID"
                client.member, client.wants_join = "", True

    @rule(at=st.integers(0, CLIENTS - 1), partition=st.integers(0, PARTITIONS - 1))
    def commit(self, at, partition):
        client = self.client(at)
        if client.assignment is None or at in self.silent:
            return
        offset, self.next_offset = self.next_offset, self.next_offset + 1
        try:
            told = self.rig.commit(
                offset, client.member, client.generation, client.instance, partition=partition
            )
        except KafkaError as error:
            assert error.name in (
                "ILLEGAL_GENERATION",
                "UNKNOWN_MEMBER_ID",
                "REBALANCE_IN_PROGRESS",
                "FENCED_INSTANCE_ID",
            )
            return
        group = self.rig.group
        assert client.generation == group.generation and client.member in group.members
        self.unanswered.append((partition, offset, told))

    @rule(ms=st.sampled_from([1, 1, 60, 60, 1000, 1000, SESSION_MS // 2, 3 * SESSION_MS]))
    def pass_time(self, ms):
        self.rig.timers.advance(ms)

    @rule()
    def flush(self):
        self.rig.journal.flush()
        self.learn()

    @precondition(lambda self: self.rig.journal.waiting)
    @rule()
    def fail_to_write(self):
        self.rig.journal.flush(error=CoordinatorNotAvailable())
        self.learn()

    @rule(at=st.integers(0, 3))
    def crash(self, at):
        if at:
            return
        self.rig.crash()
        self.unanswered.clear()
        for client in self.clients:
            client.give_up()
            if client.assignment is None:
                client.wants_join = True

    def learn(self):
        for partition, offset, told in self.unanswered:
            ((error,),) = told
            if error is None:
                self.model[partition] = offset
        self.unanswered.clear()

    @invariant()
    def commits_are_as_they_were_answered(self):
        for partition, offset in self.model.items():
            assert self.rig.committed(partition) == offset

    @invariant()
    def generations_go_up_and_parts_have_one_owner(self):
        group = self.rig.coordinator.groups.get(GROUP)
        if group is None:
            return
        for member in group.members.values():
            # A leader assigns each member its own name; an instance keeps its assignment.
            if group.state == "Stable" and member.instance_id is None:
                assert member.assignment == member.member_id.encode()
        assert group.leader is None or group.leader in group.members
        assert set(group.instances.values()) <= set(group.members)
        assert group.state != "Empty" or not group.members
        assert group.pending_sync <= set(group.members)
        assert group.joined_count == sum(m.join is not None for m in group.members.values())

    @invariant()
    def generations_that_were_answered_are_not_given_again(self):
        for client in self.clients:
            ordered = sorted(client.generations)
            assert client.generations == ordered or self.rig.crashes

    def teardown(self):
        """No new events: the journal writes, time passes, all clients follow the protocol."""
        if not hasattr(self, "rig"):
            return
        self.rig.journal.flush()
        self.learn()
        self.rig.journal.immediately = True
        live = [client for at, client in enumerate(self.clients) if at not in self.silent]
        for _ in range(400):
            for client in live:
                client.step()
            self.rig.timers.advance(500)
            if live and is_settled(live) and set(self.members()) == {c.member for c in live}:
                break
            if not live and not self.members():
                break
        else:
            told = [(c.name, c.waits, c.generation, dict(c.errors)) for c in live]
            raise AssertionError((told, list(self.members())))
        self.commits_are_as_they_were_answered()


GroupMachine.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
test_groups_beside_a_model = GroupMachine.TestCase
