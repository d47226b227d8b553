"""A group of the streams protocol (KIP-1071): members, epochs, topology, targets. Plain state.

It has the epochs of a consumer group (groups/consumer_group.py), and the epoch of the topology that
was last found ready: until it is the topology's, the group is NOT_READY and assigns no tasks.
`holders` says which members have a task in which role, also while they must revoke it; `put` and
`remove` update it. What is lost with the process: offsets that members report, the request to shut
the application down, and the epoch of the endpoints. Next: streams_heartbeats.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from barnabas.cext.coordinator.group_table import GroupTable
from barnabas.coordinator.groups.commit_checks import held_partitions
from barnabas.coordinator.groups.group_writes import WriteState
from barnabas.coordinator.groups.member_timers import Watch
from barnabas.coordinator.groups.membership import state_of
from barnabas.coordinator.groups.topic_views import NO_TOPICS_HASH, TopicViews
from barnabas.coordinator.streams.streams_member import StreamsMember
from barnabas.coordinator.streams.tasks import NO_TARGET, OwnedTasks, Task, TaskSets, each
from barnabas.coordinator.streams.topic_configuration import Configured
from barnabas.coordinator.streams.topology import Topology

NOT_READY = "NotReady"
FIRST_EPOCH = 1  # of a group, before its first member raises it
NO_EPOCH = -1
NOBODY: Mapping[str, str] = {}

Offsets = Mapping[Task, int]


class TaskHolders:
    """Which members have a task: for each role, process id by member id."""

    __slots__ = ("_roles",)

    def __init__(self) -> None:
        self._roles: tuple[dict[Task, dict[str, str]], ...] = ({}, {}, {})

    def active(self, task: Task) -> Mapping[str, str]:
        return self._roles[0].get(task, NOBODY)

    def standby(self, task: Task) -> Mapping[str, str]:
        return self._roles[1].get(task, NOBODY)

    def warmup(self, task: Task) -> Mapping[str, str]:
        return self._roles[2].get(task, NOBODY)

    def add(self, member: StreamsMember, is_replay: bool) -> None:
        """Adds the tasks of a member. A log that was compacted half-way may name two members that
        run a task; otherwise that is an error."""
        for owned in (member.assigned, member.revoking):
            for holders, tasks in zip(self._roles, owned, strict=True):
                for task in each(tasks):
                    found = holders.setdefault(task, {})
                    assert is_replay or holders is not self._roles[0] or not found, (
                        f"task {task} would run in two members"
                    )
                    found[member.member_id] = member.process_id

    def discard(self, member: StreamsMember) -> None:
        """Removes the tasks of a member."""
        for owned in (member.assigned, member.revoking):
            for holders, tasks in zip(self._roles, owned, strict=True):
                for task in each(tasks):
                    found = holders.get(task)
                    if found is not None:
                        found.pop(member.member_id, None)
                        if not found:
                            del holders[task]


class StreamsGroup:
    """The state of one streams group (Kafka: StreamsGroup)."""

    __slots__ = (
        "assigned_ms",
        "assigns_later",
        "assignment_configs",
        "configured",
        "configured_hash",
        "dead",
        "endpoint_epoch",
        "epoch",
        "failed_description_epoch",
        "group_id",
        "holders",
        "initial_delay",
        "instances",
        "members",
        "metadata_hash",
        "offsets",
        "end_offsets",
        "shutdown_by",
        "source_ids",
        "stored_description_epoch",
        "table",
        "target",
        "target_epoch",
        "topology",
        "validated_epoch",
        "views",
        "watches",
        "writes",
    )

    group_type: Literal["streams"] = "streams"
    protocol_type = "streams"
    empty_since_ms: int | None = None  # None: offsets age from their commit

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.target_epoch = FIRST_EPOCH
        self.assigned_ms = 0  # when the target was computed, wall clock; 0: at once
        self.metadata_hash = NO_TOPICS_HASH
        self.validated_epoch = NO_EPOCH  # of the topology that was ready
        self.stored_description_epoch = self.failed_description_epoch = NO_EPOCH
        self.assignment_configs: Mapping[str, str] = {}  # those of the last epoch
        self.topology: Topology | None = None
        self.members: dict[str, StreamsMember] = {}
        self.instances: dict[str, str] = {}
        self.target: dict[str, TaskSets] = {}
        self.dead = False
        self.holders = TaskHolders()  # derived from the members
        # These fields are not in the log.
        self.configured: Configured | None = None  # of topics with `configured_hash`
        self.configured_hash = NO_TOPICS_HASH
        self.views: TopicViews | None = None  # the topics at the last heartbeat
        self.source_ids: Mapping[str, tuple[bytes, ...]] = {}  # of each subtopology's inputs
        self.shutdown_by: str | None = None  # the member that requested it
        self.endpoint_epoch = 0
        self.offsets: dict[str, Offsets] = {}  # by member: of the state that it has
        self.end_offsets: dict[str, Offsets] = {}  # by member: the ends of the changelogs
        self.table: GroupTable | None = None  # None: commits are not checked against it
        self.assigns_later: Any = None  # a timer
        self.initial_delay: Any = None  # a timer: the first assignment waits for more members
        self.watches: dict[str, Watch] = {}  # member id: its timers
        self.writes = WriteState()

    # -- state ----------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """Returns Kafka's name of the state, which follows from the epochs."""
        is_ready = self.topology is not None and self.topology.epoch == self.validated_epoch
        if self.members and not is_ready and not self.dead:
            return NOT_READY
        return state_of(self)

    def is_subscribed_to(self, topic: str) -> bool:
        """Returns whether a task of the group reads the topic."""
        return bool(self.members) and self.topology is not None and self.topology.reads(topic)

    def target_of(self, member_id: str) -> TaskSets:
        """Returns the target of a member."""
        return self.target.get(member_id, NO_TARGET)

    # -- changes --------------------------------------------------------------------------------

    def configure(self, configured: Configured, views: TopicViews, metadata_hash: int) -> None:
        """Takes the configured topology, and the topics that it was made from with their hash."""
        self.configured, self.views, self.configured_hash = configured, views, metadata_hash
        assert self.topology is not None
        source_ids = {
            row.subtopology_id: tuple(
                view.topic_id for name in row.inputs if (view := views.named(name)) is not None
            )
            for row in self.topology.subtopologies.values()
        }
        if source_ids != self.source_ids:
            self.source_ids = source_ids
            for member in self.members.values():
                self._expose_member(member)

    def put(self, member: StreamsMember, is_replay: bool = False) -> None:
        """Adds a member, or replaces it by its new version."""
        before = self.members.get(member.member_id)
        if before is not None:
            self.holders.discard(before)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        self.holders.add(member, is_replay)
        self._expose_member(member)

    def remove(self, member_id: str) -> StreamsMember | None:
        """Removes a member and its target. Returns the member, or None when there is none."""
        self.target.pop(member_id, None)
        self.offsets.pop(member_id, None)
        self.end_offsets.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if self.table is not None:
            self.table.remove_member(self.group_id, member_id)
        if member is None:
            return None
        self.holders.discard(member)
        if member.instance_id is not None and self.instances.get(member.instance_id) == member_id:
            del self.instances[member.instance_id]
        if not self.members:
            self.shutdown_by = None
        return member

    # -- commits, which native code checks ------------------------------------------------------

    def expose(self, table: GroupTable, partition: int) -> None:
        """Writes the group into the table that commits are checked against, in place of any other
        of its name. Later changes write to the table too, until `self.table` is None. The rules are
        those of consumer groups."""
        rows = [
            (m.member_id, m.instance_id, m.epoch, False, self.held_by(m))
            for m in self.members.values()
        ]
        table.put(self.group_id, partition, rows, kind="consumer")
        self.table = table

    def _expose_member(self, member: StreamsMember) -> None:
        if self.table is not None:
            held = self.held_by(member)
            self.table.put_member(
                self.group_id, member.member_id, member.instance_id, member.epoch, False, held
            )

    def held_by(self, member: StreamsMember) -> bytes:
        """Returns the partitions that a member's active tasks read, encoded for
        GroupTable.put_member."""
        return held_partitions(
            (topic_id, partition, epoch)
            for owned in (member.assigned, member.revoking)
            for subtopology, epochs in owned.active.items()
            for topic_id in self.source_ids.get(subtopology, ())
            for partition, epoch in epochs.items()
        )


def forgotten_epochs(owned: OwnedTasks) -> OwnedTasks:
    """Returns the tasks of a static member that is away: commits in any epoch may follow."""
    active = {name: dict.fromkeys(epochs, 0) for name, epochs in owned.active.items()}
    return owned._replace(active=active)
