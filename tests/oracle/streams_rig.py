"""Streams groups (KIP-1071) that a test controls: topics, members that follow the protocol,
crashes.

An Instance runs tasks: `running` has those it runs now, in each role. It gives up tasks, or their
roles, if `revokes_at_once`, or when the test calls `revoke`; only then its heartbeats say so.
"""

from collections import Counter
from functools import partial

from oracle.group_rig import GROUP, Asker, Rig

from barnabas.coordinator.streams.streams_heartbeats import Heartbeat, StreamsHeartbeats
from barnabas.coordinator.streams.streams_settings import StreamsSettings
from barnabas.coordinator.streams.tasks import TaskSets, each, grouped
from barnabas.coordinator.streams.topology import InternalTopic, Subtopology, Topology

SESSION_MS = 45_000
INTERVAL_MS = 5_000
REBALANCE_MS = 30_000
ROLES = ("active", "standby", "warmup")


def changelog(name):
    return InternalTopic(name, 0, 0, ())


def subtopology(name="0", sources=("t",), changelogs=(), sinks=(), repartition=(), copartitions=()):
    return Subtopology(
        name,
        tuple(sources),
        (),
        tuple(map(changelog, changelogs)),
        tuple(sinks),
        tuple(repartition),
        tuple(copartitions),
    )


def topology(*rows, epoch=0):
    rows = rows or (subtopology(),)
    return Topology(epoch, {row.subtopology_id: row for row in sorted(rows)})


class StreamsRig(Rig):
    def __init__(self, topics=None, *, immediately=True, members_max=1000, **settings):
        of_groups = {
            "session_ms": SESSION_MS,
            "heartbeat_ms": INTERVAL_MS,
            "assignment_ms": 0,
            "initial_delay_ms": 0,
            "standby_count": 0,
            "rack_tags": (),
            "offset_interval_ms": 60_000,
            "recovery_lag": 10_000,
        }
        self.group_settings = StreamsSettings(**of_groups | settings)
        self.members_max = members_max
        super().__init__(topics or {"t": 4}, immediately=immediately)

    def _open(self):
        self._streams = None
        super()._open()

    def streams(self):
        if self._streams is None:
            self._streams = StreamsHeartbeats(self.coordinator, _Around(self))
        return self._streams

    def configure(self, **settings):
        self.group_settings = self.group_settings._replace(**settings)

    def kept(self):
        """The state of the group that a restart must restore."""
        group = self.group
        return (
            group.state,
            group.epoch,
            group.target_epoch,
            group.assigned_ms,
            group.metadata_hash,
            group.validated_epoch,
            group.assignment_configs,
            group.topology,
            group.members,
            {m: row for m, row in group.target.items() if any(row)},
            group.instances,
        )


class _Around:
    def __init__(self, rig):
        self.rig = rig

    def topics(self):
        return self.rig.views

    def settings(self, group_id):
        return self.rig.group_settings

    def members_max(self):
        return self.rig.members_max


class Instance(Asker):
    """A member that follows the protocol: one thread of an application."""

    def __init__(
        self, rig, name, process=None, *, of=None, instance=None, revokes_at_once=True, **more
    ):
        super().__init__(rig, name)
        self.member, self.process = name, process or f"p-{name}"
        self.topology = of or topology()
        self.instance = instance
        self.more = more
        self.revokes_at_once = revokes_at_once
        self.epoch = 0
        self.told = TaskSets(*map(frozenset, [()] * 3))
        self.running = TaskSets(set(), set(), set())
        self.errors = Counter()
        self.epochs = []
        self.endpoint_epoch = -1
        self.last = None  # the last result

    def heartbeat(self, **more):
        """Sends a heartbeat. Returns the result, if it comes at once."""
        if self.waits:
            return None
        asked = Heartbeat(
            member_id=self.member,
            member_epoch=self.epoch,
            endpoint_epoch=self.endpoint_epoch,
            instance_id=self.instance,
            owned=TaskSets(*map(grouped, self.running)),
            client_id=self.name,
            client_host="/127.0.0.1",
        )
        if self.epoch == 0:
            asked = asked._replace(
                rebalance_timeout_ms=REBALANCE_MS,
                topology=self.topology,
                owned=TaskSets(),
                process_id=self.process,
                **{"tags": (), **self.more},
            )
        return self._ask(asked._replace(**more))

    def _ask(self, asked):
        send = partial(self.rig.streams().heartbeat, GROUP, asked)
        return self.ask("heartbeat", send, self._take)

    def _take(self, result):
        self.last = result
        if result.error is not None:
            name = result.error.name
            self.errors[name] += 1
            if name in ("FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID", "GROUP_ID_NOT_FOUND"):
                self.abandon()
            return
        self.member, self.epoch = result.member_id, result.member_epoch
        self.epochs.append(self.epoch)
        if result.endpoints is not None:
            self.endpoint_epoch = result.endpoint_epoch
        if result.assigned is None:
            return
        self.told = TaskSets(*(frozenset(each(tasks)) for tasks in result.assigned))
        everything = self.running.active | self.running.standby | self.running.warmup
        for running, told in zip(self.running, self.told, strict=True):
            running |= told - everything
        if self.revokes_at_once:
            self.revoke()

    def revoke(self):
        """Gives up tasks that it must not run any more, and starts those whose role changes."""
        self.running = TaskSets(*map(set, self.told))

    def abandon(self):
        self.epoch = 0
        self.told = TaskSets(*map(frozenset, [()] * 3))
        self.running = TaskSets(set(), set(), set())

    def leave(self, epoch=-1):
        self.abandon()
        self.give_up()
        asked = Heartbeat(member_id=self.member, member_epoch=epoch, instance_id=self.instance)
        return self._ask(asked)

    @property
    def active(self):
        """Partitions of its active tasks of subtopology 0, sorted."""
        return sorted(p for name, p in self.running.active if name == "0")


def settle(*instances, rounds=20):
    """Sends heartbeats until nothing changes."""
    for _ in range(rounds):
        before = [(one.epoch, one.told) for one in instances]
        for one in instances:
            one.heartbeat()
        if before == [(one.epoch, one.told) for one in instances]:
            return
    raise AssertionError("the members do not settle")


def no_task_twice(instances):
    """No task is active in two members, and a process has a task in one member only."""
    active, in_process = {}, {}
    for one in instances:
        for task in one.running.active:
            assert task not in active, f"{task} runs in {active[task]} and {one.name}"
            active[task] = one.name
        for task in one.running.active | one.running.standby | one.running.warmup:
            holder = in_process.setdefault((one.process, task), one.name)
            assert holder == one.name, f"{task} is in {holder} and {one.name} of {one.process}"
