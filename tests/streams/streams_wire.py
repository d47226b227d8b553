"""A member of a streams group on the wire."""

import time
from contextlib import closing

from compat.support import Wire

from barnabas.wire import request

PATIENCE_S = 30
HEARTBEAT, DESCRIBE = 88, 89
COORDINATOR_CODES = (14, 15, 16)


def topology(*sources, changelogs=(), epoch=0):
    """A topology with one subtopology, 0."""
    made = request(HEARTBEAT)
    log = made.struct("topology.subtopologies.stateChangelogTopics")
    row = made.struct("topology.subtopologies")(
        subtopologyId="0",
        sourceTopics=list(sources),
        stateChangelogTopics=[log(name=name) for name in changelogs],
    )
    return made.struct("topology")(epoch=epoch, subtopologies=[row])


class StreamsMember:
    """One member; `active` and `standby` have the partitions of its tasks."""

    def __init__(self, address, group, *sources, member="m1", changelogs=(), version=1, **more):
        self.address, self.group, self.member, self.version = address, group, member, version
        self.first = {
            "rebalanceTimeoutMs": 60_000,
            "processId": f"process-{member}",
            "topology": topology(*sources, changelogs=changelogs),
            "clientTags": [],
            **more,
        }
        self.epoch = 0
        self.active, self.standby = [], []
        self.statuses = {}

    def beat(self, **more):
        """Sends a heartbeat. Returns the response."""
        ask = request(HEARTBEAT)
        fields = {"groupId": self.group, "memberId": self.member, "memberEpoch": self.epoch}
        if self.epoch >= 0:
            fields["activeTasks"] = self._tasks("activeTasks", self.active)
            fields["standbyTasks"] = self._tasks("standbyTasks", self.standby)
            fields["warmupTasks"] = []
        if self.epoch == 0:
            fields |= self.first | {"activeTasks": [], "standbyTasks": []}
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with closing(Wire(self.address)) as wire:
                wire.call(10, 0, request(10).cls(key=self.group))
                told = wire.call(HEARTBEAT, self.version, ask.cls(**fields | more))
            if told.errorCode not in COORDINATOR_CODES or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        if told.errorCode == 0:
            self.epoch = told.memberEpoch
            self.statuses = {row.statusCode: row.statusDetail for row in told.status}
            if told.activeTasks is not None:
                self.active = _partitions(told.activeTasks)
                self.standby = _partitions(told.standbyTasks)
        return told

    def _tasks(self, field, partitions):
        row = request(HEARTBEAT).struct(field)
        return [row(subtopologyId="0", partitions=partitions)] if partitions else []

    def join(self):
        """Sends heartbeats until it has tasks."""
        deadline = time.monotonic() + PATIENCE_S
        told = self.beat()
        while told.errorCode == 0 and not self.active and time.monotonic() < deadline:
            time.sleep(0.02)
            told = self.beat()
        assert self.active, (told.errorCode, told.errorMessage, self.statuses)
        return self

    def commit(self, topic, offsets):
        """Commits offsets by partition. Returns the first error code, or 0."""
        ask = request(8)
        row = ask.struct("topics.partitions")
        rows = [row(partitionIndex=p, committedOffset=offset) for p, offset in offsets.items()]
        topics = [ask.struct("topics")(name=topic, partitions=rows)]
        fields = {"groupId": self.group, "memberId": self.member}
        fields["generationIdOrMemberEpoch"] = self.epoch
        with closing(Wire(self.address)) as wire:
            told = wire.call(8, 9, ask.cls(topics=topics, **fields))
        return max(row.errorCode for row in told.topics[0].partitions)

    def leave(self):
        self.epoch = -1
        return self.beat().errorCode


def _partitions(rows):
    return sorted(partition for row in rows for partition in row.partitions)


def described(address, *groups, version=1, **more):
    with closing(Wire(address)) as wire:
        return wire.call(
            DESCRIBE, version, request(DESCRIBE).cls(groupIds=list(groups), **more)
        ).groups
