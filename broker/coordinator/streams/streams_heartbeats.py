"""Heartbeats of the streams protocol (KIP-1071): joining, assignment, revocation, leaving.

Every change of a group is the result of a heartbeat. A member joins with its topology. A heartbeat
that adds or changes a member, or that sees other topics or settings, increases the group epoch, and
computes a new target assignment when the topology is ready (topic_configuration.py). With each
heartbeat a member makes a step towards its target (streams_member.py); the response has its tasks
and is sent when they are durable (groups/group_writes.py). A heartbeat that is refused changes
nothing. Its result names the internal topics that are missing: the caller creates them, and a later
heartbeat finds them.

The first assignment of an empty group waits `streams.initial.rebalance.delay.ms` for more members;
later ones are `streams.assignment.interval.ms` apart.

Timers: a session timeout for each member, and a rebalance timeout while it must revoke tasks. A
member that exceeds either is fenced: it leaves the group and its tasks become free. The code runs
under the coordinator's lock and uses no I/O and no clock of its own. Kafka: GroupMetadataManager.
Next: streams_records.py, broker/api/k88_streams_group_heartbeat.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.coordinator.groups.classic_group import EMPTY
from barnabas.coordinator.groups.group_records import Entry
from barnabas.coordinator.groups.group_writes import Done, GroupWrites, answering
from barnabas.coordinator.groups.member_position import (
    JOIN,
    LEAVE,
    LEAVE_STATIC,
    description,
    holds_all,
    in_place_of,
    position,
)
from barnabas.coordinator.groups.member_records import (
    MemberRecord,
    beginning,
    take_target,
    target_epoch_entry,
)
from barnabas.coordinator.groups.member_timers import REBALANCE, SESSION, MemberTimers
from barnabas.coordinator.groups.membership import checked_member, fenced, is_fenced
from barnabas.coordinator.groups.target_assignment import wait_ms
from barnabas.coordinator.groups.topic_views import TopicViews
from barnabas.coordinator.streams import streams_records as records
from barnabas.coordinator.streams.endpoints import EndpointPartitions, partitions_by_endpoint
from barnabas.coordinator.streams.streams_group import (
    NO_EPOCH,
    Offsets,
    StreamsGroup,
    forgotten_epochs,
)
from barnabas.coordinator.streams.streams_member import (
    Endpoint,
    StreamsMember,
    check_state,
    reconciled,
)
from barnabas.coordinator.streams.streams_settings import StreamsSettings
from barnabas.coordinator.streams.task_assignor import Assignee, SubtopologyTasks, assigned
from barnabas.coordinator.streams.tasks import (
    NO_TARGET,
    NOTHING_OWNED,
    OwnedTasks,
    TaskSets,
    each,
)
from barnabas.coordinator.streams.topic_configuration import (
    ASSIGNMENT_DELAYED,
    MISSING_CLIENT_TAGS,
    SHUTDOWN_APPLICATION,
    STALE_TOPOLOGY,
    Configured,
    Status,
    configured,
)
from barnabas.coordinator.streams.topology import InternalTopic, Topology
from barnabas.coordinator.timers import after_locked, cancel
from barnabas.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidRequest,
    KafkaError,
    UnreleasedInstanceId,
)

if TYPE_CHECKING:
    from barnabas.coordinator.groups.coordinator import GroupCoordinator
    from barnabas.coordinator.streams.streams_settings import StreamsDependencies

log = logging.getLogger("barnabas.groups")

TAGS_FROM = 1  # the first version with the status MISSING_CLIENT_TAGS
EXPIRED = {
    SESSION: "group %s: removed member %s: no heartbeat within its session timeout"
    " (group.streams.session.timeout.ms)",
    REBALANCE: "group %s: removed member %s: it did not revoke its tasks within its rebalance"
    " timeout",
}


class Heartbeat(NamedTuple):
    """One StreamsGroupHeartbeat request. A field is None when the request lacks it."""

    member_id: str
    member_epoch: int
    endpoint_epoch: int = -1  # of the endpoints that the member knows
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    owned: TaskSets | None = None
    process_id: str | None = None
    endpoint: Endpoint | None = None
    tags: tuple[tuple[str, str], ...] | None = None
    offsets: Offsets | None = None
    end_offsets: Offsets | None = None
    shuts_down: bool = False
    client_id: str = ""
    client_host: str = ""
    version: int = 1


class HeartbeatResult(NamedTuple):
    """The result of a heartbeat."""

    error: KafkaError | None = None
    member_id: str = ""
    member_epoch: int = 0
    settings: StreamsSettings | None = None  # None for a member that leaves
    statuses: Sequence[Status] = ()
    assigned: OwnedTasks | None = None  # None: unchanged
    endpoint_epoch: int = 0
    endpoints: Sequence[EndpointPartitions] | None = None  # None: unchanged
    missing: Mapping[str, InternalTopic] = {}  # internal topics to create


AnswerHeartbeat = Callable[[HeartbeatResult], object]


class GroupDescription(NamedTuple):
    """Describes one streams group."""

    state: str
    epoch: int
    target_epoch: int
    topology: Topology | None
    configured: Configured | None
    members: Sequence[StreamsMember]
    targets: Sequence[TaskSets]  # of each member
    offsets: Sequence[tuple[Offsets, Offsets]]  # of each member: of its tasks, and the ends


class StreamsHeartbeats:
    """All streams groups of one coordinator."""

    def __init__(self, coordinator: GroupCoordinator, dependencies: StreamsDependencies) -> None:
        self._coordinator = coordinator
        self._dependencies = dependencies
        self._after = partial(after_locked, coordinator.timers, coordinator.lock)
        self._timers: MemberTimers[StreamsGroup] = MemberTimers(
            coordinator.timers.now_ms, self._after, self._expire
        )
        partition_of = coordinator.journal.partition_of
        self._writes = GroupWrites(
            coordinator.append, partition_of, self._after, records.whole_group
        )

    # -- the request ----------------------------------------------------------------------------

    def heartbeat(self, group_id: str, asked: Heartbeat, answer: AnswerHeartbeat) -> None:
        """Handles StreamsGroupHeartbeat. Calls `answer` once: with an error at once, or when the
        state in the response is durable."""
        try:
            _check(group_id, asked)
            with self._coordinator.lock:
                partition = self._coordinator.check(group_id)
                if asked.member_epoch in (LEAVE, LEAVE_STATIC):
                    self._leave(group_id, asked, answer)
                else:
                    self._beat(group_id, partition, asked, answer)
        except KafkaError as error:
            answer(HeartbeatResult(error))

    def group(self, group_id: str) -> StreamsGroup:
        """Returns the group. Raises GroupIdNotFound, also for a group of another protocol. The
        caller holds the lock."""
        found = self._coordinator.groups.get(group_id)
        if found is None:
            raise GroupIdNotFound(f"Streams group {group_id} not found.")
        if not isinstance(found, StreamsGroup):
            raise GroupIdNotFound(f"Group {group_id} is not a streams group.")
        return found

    def describe(self, group_id: str) -> GroupDescription:
        """Describes a group. Raises GroupIdNotFound, NotCoordinator, CoordinatorLoadInProgress."""
        with self._coordinator.lock:
            self._coordinator.check(group_id)
            group = self.group(group_id)
            members = list(group.members.values())
            return GroupDescription(
                group.state,
                group.epoch,
                group.target_epoch,
                group.topology,
                group.configured,
                members,
                [group.target_of(member.member_id) for member in members],
                [
                    (group.offsets.get(m.member_id, {}), group.end_offsets.get(m.member_id, {}))
                    for m in members
                ],
            )

    def _group_for(self, group_id: str, joins: bool) -> StreamsGroup:
        """Returns the group, which may be new and not yet registered."""
        found = self._coordinator.groups.get(group_id)
        if not joins or isinstance(found, StreamsGroup):
            return self.group(group_id)
        is_empty_classic = found is None or (found.group_type == "classic" and found.state == EMPTY)
        if not is_empty_classic or self._coordinator.is_other(group_id):
            raise GroupIdNotFound(f"Group {group_id} is not a streams group.")
        return StreamsGroup(group_id)

    # -- a heartbeat ----------------------------------------------------------------------------

    def _beat(
        self, group_id: str, partition: int, asked: Heartbeat, answer: AnswerHeartbeat
    ) -> None:
        """Handles the heartbeat of a member. Raises the error of a refused request before it
        changes anything."""
        joins = asked.member_epoch == JOIN
        group = self._group_for(group_id, joins)
        if joins:
            self._check_capacity(group, asked)
        before, replaced = self._member_for(group, asked)
        check_state(before, asked.owned)
        topology = _topology_for(group, asked)
        views = self._dependencies.topics()
        made, metadata_hash = _configuration(group, topology, views)
        if made.is_ready and asked.owned is not None:
            _check_tasks(made, asked.owned)
        settings = self._dependencies.settings(group_id)
        is_registered = self._coordinator.groups.get(group_id) is group
        head = [] if is_registered else beginning(group)
        entries: list[Entry] = []
        was_empty = not group.members
        if group.topology is None:
            entries.append(records.topology_entry(group_id, topology))
            group.topology = topology
        member, bumps = self._enter(group, before, replaced, asked, entries)
        group.configure(made, views, metadata_hash)
        if self._next_epoch(group, bumps, metadata_hash, settings):
            head.append(records.group_entry(group))
        if was_empty:
            self._delay_first_assignment(group, settings.initial_delay_ms)
        delayed = self._assign(group, settings, entries)
        after = self._step(group, before, member, asked.owned, entries)
        self._coordinator.adopt(group, partition)
        self._timers.extend_session(group, after.member_id, settings.session_ms)
        self._timers.watch_rebalance(group, after)
        if asked.shuts_down:
            self._shut_down(group, after.member_id)
        has_other_tasks = after.assigned != before.assigned
        if before.endpoint != after.endpoint or (has_other_tasks and after.endpoint is not None):
            group.endpoint_epoch += 1
        rack_tags = settings.rack_tags if asked.version >= TAGS_FROM else ()
        result = HeartbeatResult(
            None,
            after.member_id,
            after.epoch,
            settings,
            _statuses(group, made, after, delayed, rack_tags),
            after.assigned if joins or has_other_tasks or _misses(asked.owned, after) else None,
            group.endpoint_epoch if is_registered else 0,
            partitions_by_endpoint(group) if group.endpoint_epoch != asked.endpoint_epoch else None,
            made.missing,
        )
        self._writes.write(group, [*head, *entries], answering(answer, result, HeartbeatResult))

    def _enter(
        self,
        group: StreamsGroup,
        before: StreamsMember,
        replaced: StreamsMember | None,
        asked: Heartbeat,
        entries: list[Entry],
    ) -> tuple[StreamsMember, bool]:
        """Puts what the request says about the member into the group. Returns the member, and
        whether the group epoch increases."""
        if replaced is not None:
            self._replace(group, before, replaced, entries)
        member = _updated(before, asked)
        known = group.members.get(member.member_id)
        has_changed = known is None or description(known) != description(member)
        if has_changed:
            entries.append(records.member_entry(group.group_id, member))
        group.put(member)
        if asked.offsets is not None:
            group.offsets[member.member_id] = asked.offsets
        if asked.end_offsets is not None:
            group.end_offsets[member.member_id] = asked.end_offsets
        is_decisive = member.instance_id is None or before.decisive != member.decisive
        return member, known is None or (has_changed and is_decisive)

    def _step(
        self,
        group: StreamsGroup,
        before: StreamsMember,
        member: StreamsMember,
        owned: TaskSets | None,
        entries: list[Entry],
    ) -> StreamsMember:
        """Makes the member's step towards its target, and adds its record if it has moved."""
        target = group.target_of(member.member_id) if group.initial_delay is None else NO_TARGET
        after = reconciled(member, group.target_epoch, target, group.holders, owned)
        group.put(after)
        if position(before) != position(after) or before.epoch == JOIN:
            entries.append(records.current_entry(group.group_id, after))
        return after

    def _check_capacity(self, group: StreamsGroup, asked: Heartbeat) -> None:
        most = self._dependencies.members_max()
        is_known = asked.member_id in group.members or asked.instance_id in group.instances
        if len(group.members) >= most and not is_known:
            raise GroupMaxSizeReached(
                f"The streams group has reached its maximum capacity of {most} members."
            )

    def _member_for(
        self, group: StreamsGroup, asked: Heartbeat
    ) -> tuple[StreamsMember, StreamsMember | None]:
        """Returns the member that sent the request, or a new one, and the static member that it
        replaces. A known member that joins again has abandoned its tasks."""
        member_id, instance_id = asked.member_id, asked.instance_id
        if asked.member_epoch != JOIN:
            found = checked_member(group, member_id, instance_id)
            _check_epoch(found, asked)
            return found, None
        holder = group.instances.get(instance_id) if instance_id is not None else None
        if holder is None:
            return group.members.get(member_id) or StreamsMember(member_id), None
        old = group.members[holder]
        if old.epoch != LEAVE_STATIC:
            raise UnreleasedInstanceId(
                f"Static member {member_id} with instance id {instance_id} cannot join the group"
                f" because the instance id is owned by {holder} member."
            )
        return in_place_of(old, member_id), old

    def _replace(
        self,
        group: StreamsGroup,
        member: StreamsMember,
        replaced: StreamsMember,
        entries: list[Entry],
    ) -> None:
        """Puts a member in the place of a static member that was away, with its tasks."""
        target = group.target_of(replaced.member_id)
        group.remove(replaced.member_id)
        self._timers.forget(group, replaced.member_id)
        group.put(member)
        group.target[member.member_id] = target
        if replaced.member_id != member.member_id:
            group.writes.removed_members.add(replaced.member_id)
            entries += records.member_tombstones(group.group_id, replaced.member_id)
        entries.append(records.member_entry(group.group_id, member))
        entries.append(records.target_entry(group.group_id, member.member_id, target))

    def _next_epoch(
        self, group: StreamsGroup, bumps: bool, metadata_hash: int, settings: StreamsSettings
    ) -> bool:
        """Increases the group epoch when its members, topics or settings have changed. Returns
        whether it has."""
        assert group.topology is not None and group.configured is not None
        validated_epoch = group.topology.epoch if group.configured.is_ready else NO_EPOCH
        configs = settings.assignment_configs
        is_same = (group.metadata_hash, group.validated_epoch, group.assignment_configs) == (
            metadata_hash,
            validated_epoch,
            configs,
        )
        if is_same and not bumps:
            return False
        self._begin_epoch(group)
        group.metadata_hash, group.validated_epoch = metadata_hash, validated_epoch
        group.assignment_configs = configs
        return True

    def _begin_epoch(self, group: StreamsGroup) -> None:
        group.epoch += 1
        self._coordinator.counts.streams_epochs += 1

    # -- assignment -----------------------------------------------------------------------------

    def _assign(self, group: StreamsGroup, settings: StreamsSettings, entries: list[Entry]) -> str:
        """Computes the target assignment if it is older than the group. Returns what delays it;
        "": nothing."""
        if group.initial_delay is not None:
            return "configured initial rebalance delay"
        if group.epoch <= group.target_epoch:
            return ""
        left_ms = wait_ms(group.assigned_ms, settings.assignment_ms, self._coordinator.wall_ms())
        if group.assigned_ms and left_ms > 0:
            if group.assigns_later is None:
                group.assigns_later = self._after(left_ms, lambda: self._interval_over(group))
            return "configured assignment interval"
        entries += self._take_target(group, settings)
        return ""

    def _delay_first_assignment(self, group: StreamsGroup, delay_ms: int) -> None:
        """Delays the first assignment of a group without members, unless it is delayed already."""
        if delay_ms > 0 and group.initial_delay is None:
            group.initial_delay = self._after(delay_ms, lambda: self._initial_delay_over(group))

    def _initial_delay_over(self, group: StreamsGroup) -> None:
        group.initial_delay = None
        self._assign_now(group)

    def _interval_over(self, group: StreamsGroup) -> None:
        group.assigns_later = None
        self._assign_now(group)

    def _assign_now(self, group: StreamsGroup) -> None:
        """Makes a delayed assignment. Members get it with their next heartbeats."""
        waits = group.initial_delay is not None or group.configured is None
        if group.dead or waits or not group.members or group.epoch <= group.target_epoch:
            return
        settings = self._dependencies.settings(group.group_id)
        self._writes.write(group, self._take_target(group, settings), None)

    def _take_target(self, group: StreamsGroup, settings: StreamsSettings) -> list[Entry]:
        """Computes the target of the group's epoch. Returns its records."""
        target, now_ms = _new_target(group, settings), self._coordinator.wall_ms()
        return take_target(records.KIND, group, target, group.epoch, now_ms)

    # -- leaving --------------------------------------------------------------------------------

    def _leave(self, group_id: str, asked: Heartbeat, answer: AnswerHeartbeat) -> None:
        group = self.group(group_id)
        member = checked_member(group, asked.member_id, asked.instance_id)
        if asked.shuts_down:
            self._shut_down(group, member.member_id)
        result = HeartbeatResult(None, member.member_id, asked.member_epoch)
        done = answering(answer, result, HeartbeatResult)
        if asked.instance_id is not None and asked.member_epoch == LEAVE_STATIC:
            # Its place and its tasks are kept until its session ends.
            away = member._replace(
                epoch=LEAVE_STATIC,
                assigned=forgotten_epochs(member.assigned),
                revoking=NOTHING_OWNED,
            )
            group.put(away)
            self._timers.watch_rebalance(group, away)
            self._writes.write(group, [records.current_entry(group_id, away)], done)
        else:
            self._fence(group, member, done)

    def _fence(self, group: StreamsGroup, member: StreamsMember, done: Done | None = None) -> None:
        """Removes a member; its tasks become free. Calls `done` when that is durable."""
        group.remove(member.member_id)
        self._timers.forget(group, member.member_id)
        group.writes.removed_members.add(member.member_id)
        self._begin_epoch(group)
        entries = [
            records.group_entry(group),
            *records.member_tombstones(group.group_id, member.member_id),
        ]
        if not group.members:  # the next member's assignment need not wait for the interval
            group.target_epoch, group.assigned_ms = group.epoch, 0
            entries.append(target_epoch_entry(records.KIND, group))
        self._writes.write(group, entries, done)

    def _shut_down(self, group: StreamsGroup, member_id: str) -> None:
        if group.shutdown_by is None:
            log.info(
                "group %s: member %s requested the shutdown of the application",
                group.group_id,
                member_id,
            )
            group.shutdown_by = member_id

    def _expire(self, group: StreamsGroup, member: StreamsMember, timeout: str) -> None:
        """Removes a member that has exceeded a timeout."""
        log.info(EXPIRED[timeout], group.group_id, member.member_id)
        self._fence(group, member)

    # -- the coordinator's calls ----------------------------------------------------------------

    def resume(self, group: StreamsGroup) -> None:
        """Starts the sessions of a group's members after it was read from the log."""
        if group.topology is not None:
            views = self._dependencies.topics()
            # The next heartbeat says that no topics fit any more, or that the log is damaged.
            with suppress(KafkaError, IndexError, ValueError):
                made = configured(group.topology, partial(_partition_count, views))
                group.configure(made, views, views.hash_of(group.topology.required_topics()))
            group.views = None  # the next heartbeat compares the hash of the topics
        session_ms = self._dependencies.settings(group.group_id).session_ms
        for member in group.members.values():
            self._timers.extend_session(group, member.member_id, session_ms)
            self._timers.watch_rebalance(group, member)

    def forget(self, group: StreamsGroup) -> None:
        """Drops a group that was deleted or moved. The journal answers its waiting requests."""
        group.table = None
        group.dead = True
        cancel(group.assigns_later, group.initial_delay, group.writes.catches_up_later)
        group.assigns_later = group.initial_delay = group.writes.catches_up_later = None
        self._timers.forget_all(group)

    def tombstones(self, group: StreamsGroup) -> list[Entry]:
        """Returns the tombstones of a group, without those of its offsets."""
        return records.group_tombstones(group)

    def loaded_group(self, group_id: str) -> StreamsGroup:
        """Returns a group that is read from the log."""
        group = StreamsGroup(group_id)
        group.writes.fresh = False
        return group

    def replay(self, group: StreamsGroup, record: MemberRecord) -> None:
        """Applies a record to a group that is being loaded."""
        records.replay(group, record)


# -- checks of a request --------------------------------------------------------------------------


def _check(group_id: str, asked: Heartbeat) -> None:
    """Checks the request alone, without the state of the group. Raises InvalidRequest."""
    named = (
        ("MemberId", asked.member_id),
        ("GroupId", group_id),
        ("InstanceId", asked.instance_id),
        ("RackId", asked.rack_id),
    )
    for what, text in named:
        if text is not None and not text.strip():
            raise InvalidRequest(f"{what} can't be empty.")
    epoch = asked.member_epoch
    if epoch == JOIN:
        if asked.rebalance_timeout_ms == -1:
            raise InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
        for what, tasks in zip(("Active", "Standby", "Warmup"), asked.owned or (), strict=False):
            if tasks:
                raise InvalidRequest(f"{what}Tasks must be empty when (re-)joining.")
        if asked.topology is None:
            raise InvalidRequest("Topology must be non-null when (re-)joining.")
    elif epoch == LEAVE_STATIC:
        if asked.instance_id is None:
            raise InvalidRequest("InstanceId can't be null.")
    elif epoch < LEAVE_STATIC:
        raise InvalidRequest(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    if epoch != JOIN and asked.topology is not None:
        raise InvalidRequest("Topology can only be provided when (re-)joining.")


def _check_epoch(member: StreamsMember, asked: Heartbeat) -> None:
    """Checks the epoch of a request. A member that may have lost a response owns only tasks of its
    assignment."""

    def owns_no_other() -> bool:
        return asked.owned is not None and all(map(holds_all, asked.owned, member.assigned))

    if is_fenced(member, asked.member_epoch, owns_no_other):
        raise fenced("streams", member, asked.member_epoch)


def _check_tasks(made: Configured, owned: TaskSets) -> None:
    for tasks in owned:
        for subtopology, partition in each(tasks):
            row = made.subtopologies.get(subtopology)
            if row is None:
                raise InvalidRequest(f"Subtopology {subtopology} does not exist in the topology.")
            if not 0 <= partition < row.task_count:
                raise InvalidRequest(
                    f"Task {partition} for subtopology {subtopology} is invalid. Number of tasks"
                    f" for this subtopology: {row.task_count}"
                )


def _topology_for(group: StreamsGroup, asked: Heartbeat) -> Topology:
    """Returns the group's topology; that of its first member if it has none. Raises
    InvalidRequest."""
    if group.topology is None:
        if asked.topology is None:
            raise FencedMemberEpoch("The group has lost its topology. The member must rejoin.")
        return asked.topology
    if asked.topology is None or asked.topology.epoch < group.topology.epoch:
        return group.topology
    if asked.topology != group.topology:
        raise InvalidRequest("Topology updates are not supported yet.")
    return group.topology


def _configuration(
    group: StreamsGroup, topology: Topology, views: TopicViews
) -> tuple[Configured, int]:
    """Returns the configured topology and the hash of its topics' metadata. Raises
    StreamsInvalidTopology."""
    if group.configured is not None and group.views is views:
        return group.configured, group.metadata_hash
    metadata_hash = views.hash_of(topology.required_topics())
    if group.configured is not None and metadata_hash == group.configured_hash:
        return group.configured, metadata_hash
    return configured(topology, partial(_partition_count, views)), metadata_hash


def _partition_count(views: TopicViews, name: str) -> int | None:
    view = views.named(name)
    return None if view is None else view.partition_count


# -- parts of a heartbeat -------------------------------------------------------------------------


def _updated(before: StreamsMember, asked: Heartbeat) -> StreamsMember:
    """Returns the member with what the request says about it."""

    def given(value: Any, otherwise: Any) -> Any:
        return otherwise if value is None else value

    timeout_ms = asked.rebalance_timeout_ms
    return before._replace(
        instance_id=given(asked.instance_id, before.instance_id),
        rack_id=given(asked.rack_id, before.rack_id),
        client_id=asked.client_id,
        client_host=asked.client_host,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topology_epoch=before.topology_epoch if asked.topology is None else asked.topology.epoch,
        process_id=given(asked.process_id, before.process_id),
        endpoint=asked.endpoint
        if asked.member_epoch == JOIN
        else given(asked.endpoint, before.endpoint),
        tags=given(asked.tags, before.tags),
    )


def _new_target(group: StreamsGroup, settings: StreamsSettings) -> dict[str, TaskSets]:
    """Returns the target of every member; no tasks until the topology is ready."""
    assert group.configured is not None
    if not group.configured.is_ready:
        return dict.fromkeys(group.members, NO_TARGET)
    members = [
        Assignee(
            member.member_id,
            member.process_id,
            dict(member.tags),
            group.target_of(member.member_id),
            group.offsets.get(member.member_id, {}),
        )
        for member in group.members.values()
    ]
    tasks = [
        SubtopologyTasks(name, row.task_count, bool(row.changelogs))
        for name, row in group.configured.subtopologies.items()
    ]
    return assigned(members, tasks, settings.standby_count, settings.rack_tags)


def _statuses(
    group: StreamsGroup,
    made: Configured,
    member: StreamsMember,
    delayed: str,
    rack_tags: Collection[str],
) -> list[Status]:
    """Returns what the response says about the group. `delayed`: what delays its assignment."""
    found: list[Status] = []
    assert group.topology is not None
    if member.topology_epoch < group.topology.epoch:
        detail = (
            f"The member's topology epoch {member.topology_epoch} is behind the group's topology"
            f" epoch {group.topology.epoch}."
        )
        found.append(Status(STALE_TOPOLOGY, detail))
    if delayed:
        found.append(Status(ASSIGNMENT_DELAYED, f"Assignment delayed due to the {delayed}."))
    if made.problem is not None:
        found.append(made.problem)
    if group.shutdown_by is not None:
        detail = (
            f"Streams group member {group.shutdown_by} encountered a fatal error and requested a"
            " shutdown for the entire application."
        )
        found.append(Status(SHUTDOWN_APPLICATION, detail))
    missing = [tag for tag in rack_tags if tag not in dict(member.tags)]
    if missing:
        detail = (
            f"Missing required client tags for rack-aware standby assignment: [{', '.join(missing)}"
            "]. Configure them via 'client.tag.<tagKey>' in your Streams config."
        )
        found.append(Status(MISSING_CLIENT_TAGS, detail))
    return found


def _misses(owned: TaskSets | None, member: StreamsMember) -> bool:
    """Returns whether a member reports other tasks than it was sent: an answer was lost, or it has
    not carried the last one out."""
    return owned is not None and not (
        all(map(holds_all, owned, member.assigned)) and all(map(holds_all, member.assigned, owned))
    )
