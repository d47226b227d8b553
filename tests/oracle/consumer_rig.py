"""Consumer groups (KIP-848) that a test controls: topics, members that follow the protocol,
crashes.

A Consumer reads the partitions that it owns: `reading` has those it would fetch from now. It
revokes partitions if `revokes_at_once`, or when the test calls `revoke`; only then its heartbeats
say so.
"""

from collections import Counter
from functools import partial

from oracle.group_rig import GROUP, Asker, Rig, topic_id
from oracle.group_rig import SESSION_MS as CLASSIC_SESSION_MS

from barnabas.cext.record.records import Record
from barnabas.coordinator.groups.consumer_access import ConsumerSettings, Timeouts
from barnabas.coordinator.groups.consumer_heartbeats import Heartbeat
from barnabas.coordinator.groups.consumer_protocol import assignment_bytes, assignment_of
from barnabas.coordinator.groups.rebalance import Join
from barnabas.errors import KafkaError
from barnabas.hooks.registry import Registry
from barnabas.plugins.assignor_range import AssignorRange
from barnabas.plugins.assignor_uniform import AssignorUniform
from barnabas.wire.batches import decode_batches, encode_batch
from barnabas.wire.messages import by_name

SESSION_MS = 45_000
INTERVAL_MS = 5_000
REBALANCE_MS = 30_000


class ConsumerRig(Rig):
    def __init__(self, topics=None, *, immediately=True, works_at_once=True, **settings):
        self.consumer_settings = ConsumerSettings(
            members_max=settings.pop("consumers_max", 1000),
            assignors=settings.pop("assignors", ("uniform", "range")),
            migration=settings.pop("migration", "bidirectional"),
        )
        self.timeouts_of = settings.pop("timeouts", {})
        self.registry = Registry()
        self.registry.register(AssignorRange(), "assignor_range")
        self.registry.register(AssignorUniform(), "assignor_uniform")
        self.works_at_once = works_at_once
        self.assignment_ms = settings.pop("assignment_ms", 0)
        self.work = []
        self.gathers = False  # joins wait for join_all()
        self.joins = []
        super().__init__(topics or {"t": 6}, immediately=immediately, **settings)

    def dependencies(self):
        return _Around(self)

    def do_work(self):
        waiting, self.work = self.work, []
        for call in waiting:
            call()

    def join_all(self):
        waiting, self.joins = self.joins, []
        for call in waiting:
            call()

    def crash(self):
        self.work.clear()
        self.joins.clear()
        super().crash()

    def entries(self):
        """All durable records, in order: (key, value)."""
        return [
            (record.key, record.value)
            for _, encoded in self.journal.durable
            for batch in decode_batches(encoded, size_max=1 << 22)
            for record in batch.records
        ]

    def compacted(self):
        """A rig that loads the records that compaction would keep: the last value of each key."""
        last = {}
        for at, (key, value) in enumerate(self.entries()):
            last[key] = at, value
        other = ConsumerRig(self.topics)
        records = [
            Record(value, key, timestamp=1)
            for key, (_, value) in sorted(last.items(), key=lambda row: row[1][0])
        ]
        if records:
            other.journal.durable.append((0, encode_batch(records)))
        other.crash()
        return other

    def kept(self):
        """The state of the group that a restart must restore."""
        group = self.group
        return (
            group.state,
            group.epoch,
            group.target_epoch,
            group.metadata_hash,
            group.members,
            {m: row for m, row in group.target.items() if row},
            group.owners,
            group.instances,
            {regex: row.topics for regex, row in group.resolved.items()},
        )


class _Around:
    def __init__(self, rig):
        self.rig = rig
        self.settings = rig.consumer_settings

    def topics(self):
        return self.rig.views

    def timeouts(self, group_id):
        session_ms, heartbeat_ms = self.rig.timeouts_of.get(group_id, (SESSION_MS, INTERVAL_MS))
        return Timeouts(session_ms, heartbeat_ms, self.rig.assignment_ms)

    def assign(self, assignor, view):
        return self.rig.registry.assign_partitions(assignor, view)

    def run(self, call):
        if self.rig.works_at_once:
            call()
        else:
            self.rig.work.append(call)

    def gather(self, call, count):
        assert count() == 1
        if self.rig.gathers:
            self.rig.joins.append(call)
        else:
            call()


class Consumer(Asker):
    """A member that follows the protocol."""

    def __init__(
        self,
        rig,
        name,
        topics=("t",),
        instance=None,
        *,
        regex=None,
        assignor=None,
        rack=None,
        revokes_at_once=True,
        group=GROUP,
    ):
        super().__init__(rig, name)
        self.member = name
        self.topics = tuple(topics) if topics is not None else None
        self.instance = instance
        self.regex = regex
        self.assignor = assignor
        self.rack = rack
        self.group = group
        self.revokes_at_once = revokes_at_once
        self.epoch = 0
        self.reading = set()  # (topic id, partition)
        self.to_revoke = set()
        self.errors = Counter()
        self.epochs = []
        self.heard_ms = 0
        self._full = True  # the next heartbeat has all fields

    @property
    def owned(self):
        """Partitions of topic t, sorted."""
        return sorted(p for t, p in self.reading if t == topic_id("t"))

    def heartbeat(self):
        """Sends a heartbeat. Returns the response, if it comes at once."""
        if self.waits:
            return None
        asked = Heartbeat(
            member_id=self.member,
            member_epoch=self.epoch,
            instance_id=self.instance,
            rack_id=self.rack,
            client_id=self.name,
            client_host="/127.0.0.1",
            owned=_by_topic(self.reading),
        )
        if self._full or self.epoch == 0:
            asked = asked._replace(
                rebalance_timeout_ms=REBALANCE_MS,
                topics=self.topics,
                regex=self.regex,
                assignor=self.assignor,
                owned={} if self.epoch == 0 else asked.owned,
            )
        return self._ask(asked)

    def subscribe(self, *topics, regex=None):
        self.topics, self.regex = tuple(topics), regex
        self._full = True
        return self.heartbeat()

    def _ask(self, asked):
        send = partial(self.rig.coordinator.consumer_heartbeat, self.group, asked)
        return self.ask("heartbeat", send, self._take)

    def give_up(self):
        super().give_up()
        self._full = True

    def _take(self, result):
        self.heard_ms = self.rig.timers.now_ms()
        if result.error is not None:
            name = result.error.name
            self.errors[name] += 1
            self._full = True
            if name in ("FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID", "GROUP_ID_NOT_FOUND"):
                self.abandon()
            return
        self._full = False
        self.member, self.epoch = result.member_id, result.member_epoch
        self.epochs.append(self.epoch)
        if result.assigned is None:
            return
        given = {(t, p) for t, rows in result.assigned.items() for p in rows}
        self.to_revoke = self.reading - given
        self.reading |= given
        if self.revokes_at_once:
            self.revoke()

    def revoke(self):
        self.reading -= self.to_revoke
        self.to_revoke = set()

    def abandon(self):
        self.epoch = 0
        self.reading, self.to_revoke = set(), set()

    def leave(self, epoch=-1):
        self.abandon()
        self.give_up()
        return self._ask(
            Heartbeat(member_id=self.member, member_epoch=epoch, instance_id=self.instance)
        )


def _by_topic(partitions):
    found = {}
    for topic, partition in partitions:
        found.setdefault(topic, set()).add(partition)
    return found


def subscription(topics=("t",), owned=None, version=1, rack=None):
    message = by_name("ConsumerProtocolSubscription")
    row = message.struct("ownedPartitions")
    fields = {"topics": list(topics)}
    if version >= 1:
        rows = [row(topic=t, partitions=sorted(p)) for t, p in (owned or {}).items()]
        fields["ownedPartitions"] = rows
    if version >= 3:
        fields["rackId"] = rack
    return version.to_bytes(2, "big") + message.encode(message.cls(**fields), version)


class Classic(Asker):
    """A consumer of the classic protocol: it assigns by itself when it leads a classic group."""

    def __init__(self, rig, name, *, instance=None, topics=("t",), version=1, strategy="range"):
        super().__init__(rig, name)
        self.instance = instance
        self.topics = topics
        self.version = version
        self.strategy = strategy
        self.member, self.generation = "", -1
        self.owned = {}
        self.view = None
        self.wants = "join"
        self.errors = []

    @property
    def reading(self):
        return {(topic_id(t), p) for t, rows in self.owned.items() for p in rows}

    def step(self):
        if self.waits:
            return
        if self.wants == "join":
            self.join()
        elif self.wants == "sync":
            self.sync()
        else:
            self.heartbeat()

    def join(self):
        if self.version == 0:
            self.owned = {}  # eager: it revokes all partitions before it joins
        metadata = subscription(self.topics, self.owned, self.version)
        asked = Join(
            member_id=self.member,
            instance_id=self.instance,
            client_id=self.name,
            client_host="/127.0.0.1",
            session_timeout_ms=CLASSIC_SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=[(self.strategy, metadata)],
            id_required=True,
            can_skip_assignment=True,
        )
        self.ask("join", partial(self.rig.coordinator.join, GROUP, asked), self._joined)

    def _failed(self, name, member_id=""):
        self.errors.append(name)
        if name == "MEMBER_ID_REQUIRED":
            self.member = member_id
        elif name in ("UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID"):
            self.member, self.owned = "", {}
        elif name == "ILLEGAL_GENERATION":
            self.owned = {}
        self.wants = "join"

    def _joined(self, result):
        if result.error is not None:
            self._failed(result.error.name, result.member_id)
            return
        self.member, self.generation = result.member_id, result.generation
        self.view = result.members if result.leader == self.member else None
        self.wants = "sync"

    def sync(self):
        given = []
        if self.view:
            names = sorted(row.member_id for row in self.view)
            count = self.rig.topics["t"]
            for at, name in enumerate(names):
                mine = {"t": range(at * count // len(names), (at + 1) * count // len(names))}
                given.append((name, assignment_bytes(mine, self.version)))
        who = GROUP, self.member, self.instance, self.generation
        send = partial(self.rig.coordinator.sync, *who, (None, None), given)
        self.ask("sync", send, self._synced)

    def _synced(self, result):
        if result.error is not None:
            self._failed(result.error.name)
            return
        given = assignment_of(result.assignment)
        lost = {t: p - given.get(t, frozenset()) for t, p in self.owned.items()}
        self.owned = given
        # A cooperative consumer that revoked partitions joins again at once.
        self.wants = "join" if any(lost.values()) else "heartbeat"

    def give_up(self):
        super().give_up()
        self.wants = "join"

    def heartbeat(self):
        try:
            self.rig.coordinator.heartbeat(GROUP, self.member, self.instance, self.generation)
        except KafkaError as error:
            self._failed(error.name)

    def leave(self):
        (outcome,) = self.rig.coordinator.leave(GROUP, [(self.member, self.instance)])
        self.owned, self.member, self.wants = {}, "", "join"
        return outcome


def settle(*consumers, rounds=12):
    """All members send heartbeats until nothing changes."""
    before = None
    for _ in range(rounds):
        for consumer in consumers:
            consumer.heartbeat()
        now = [(c.epoch, frozenset(c.reading)) for c in consumers]
        if now == before and consumers[0].rig.group.state in ("Stable", "Empty"):
            return
        before = now
    raise AssertionError([(c.name, c.epoch, c.owned, dict(c.errors)) for c in consumers])


def together(rig, count, **more):
    made = [Consumer(rig, f"c{at}", **more) for at in range(count)]
    settle(*made)
    return made


def no_partition_twice(consumers):
    seen = {}
    for consumer in consumers:
        for row in consumer.reading:
            assert row not in seen, f"{row} is read by {seen[row]} and by {consumer.name}"
            seen[row] = consumer.name
