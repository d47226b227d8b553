"""A member of a streams group (KIP-1071), and one step of it towards its target assignment.

A member has a position (groups/member_position.py): its tasks (`assigned`; active ones with the
epoch at which they were assigned), and the tasks that it must revoke (`revoking`) and may still
run. It owns both until it reports that it has revoked the latter, so a task runs as active in one
member at a time. A process keeps the state of a task once: its members share a state directory, so
a member gets a task only when no other member of its process has it in any role.

A task that changes its role inside a member stays there: an active task that becomes a standby is a
standby at once, and a standby that becomes active stays a standby until the other member has
revoked it. `reconciled` makes the step. Plain values, no time, no I/O. Next: streams_group.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from barnabas.coordinator.groups.member_position import (
    JOIN,
    STABLE,
    UNKNOWN_STATE,
    UNRELEASED,
    UNREVOKED,
    moved,
    shares_any,
)
from barnabas.coordinator.streams.tasks import (
    NOTHING_OWNED,
    OwnedTasks,
    Task,
    TaskSets,
    each,
    grouped,
    with_epochs,
)
from barnabas.errors import FencedMemberEpoch


class Endpoint(NamedTuple):
    """Where an application serves interactive queries (application.server)."""

    host: str
    port: int


class StreamsMember(NamedTuple):
    """The state of one member at one moment."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    endpoint: Endpoint | None = None
    tags: tuple[tuple[str, str], ...] = ()  # sorted by key
    state: int = STABLE
    epoch: int = JOIN
    previous_epoch: int = 0
    assigned: OwnedTasks = NOTHING_OWNED
    revoking: OwnedTasks = NOTHING_OWNED

    @property
    def decisive(self) -> tuple[object, ...]:
        """Returns the fields whose change makes a new assignment, also for a static member."""
        return self.topology_epoch, self.rack_id, self.tags, self.process_id


class Holders(Protocol):
    """Which members have a task, also while they must revoke it: process id by member id."""

    def active(self, task: Task) -> Mapping[str, str]: ...
    def standby(self, task: Task) -> Mapping[str, str]: ...
    def warmup(self, task: Task) -> Mapping[str, str]: ...


def reconciled(
    member: StreamsMember,
    target_epoch: int,
    target: TaskSets,
    holders: Holders,
    owned: TaskSets | None,
) -> StreamsMember:
    """Returns the member after a step, or the same member when no step is possible.

    `owned`: the tasks that the member reports, None without a report. Raises FencedMemberEpoch for
    a member in an unknown state. Kafka: CurrentAssignmentBuilder."""
    if member.state == UNKNOWN_STATE:
        check_state(member, owned)
        return _towards(member, target_epoch, target_epoch, target, holders, owned)
    if member.state == STABLE and member.epoch == target_epoch:
        return member
    if member.state == UNREVOKED:
        if _still_has(owned, member.revoking):
            return member
        return _towards(member, member.epoch + 1, target_epoch, target, holders, owned)
    return _towards(member, member.epoch, target_epoch, target, holders, owned)


def check_state(member: StreamsMember, owned: TaskSets | None) -> None:
    """Raises FencedMemberEpoch for a member in a state that this version does not know, because a
    newer broker stored it, unless the member starts again without tasks."""
    if member.state == UNKNOWN_STATE and (owned is None or any(owned)):
        raise FencedMemberEpoch(
            "The streams group member is in a unknown state. The member must abandon all its tasks"
            " and rejoin."
        )


def _still_has(owned: TaskSets | None, revoking: OwnedTasks) -> bool:
    if not revoking:
        return False
    return owned is None or any(
        shares_any(has, gone) for has, gone in zip(owned, revoking, strict=True)
    )


def _towards(
    member: StreamsMember,
    epoch: int,
    target_epoch: int,
    target: TaskSets,
    holders: Holders,
    owned: TaskSets | None,
) -> StreamsMember:
    """`epoch`: that of the member while it still has tasks to revoke."""
    has = {
        (subtopology, partition): at
        for subtopology, partitions in member.assigned.active.items()
        for partition, at in partitions.items()
    }
    standbys, warmups = set(each(member.assigned.standby)), set(each(member.assigned.warmup))
    actives, wants_standby, wants_warmup = (set(each(tasks)) for tasks in target)
    # A standby or warm-up task that is to become active stays until the member gets it as active.
    promoted = (standbys | warmups) & actives
    free = _Free(member, holders)
    new_actives = {task for task in actives - has.keys() if free.as_active(task)}
    new_standbys = {task for task in wants_standby - standbys if free.as_replica(task)}
    new_warmups = {
        task for task in wants_warmup - warmups if task not in has and free.as_replica(task)
    }
    is_waiting = (
        len(new_actives) < len(actives - has.keys())
        or len(new_standbys) < len(wants_standby - standbys)
        or len(new_warmups) < len(wants_warmup - warmups)
    )
    revoking = OwnedTasks(
        with_epochs({task: at for task, at in has.items() if task not in actives}),
        grouped(standbys - wants_standby - promoted - new_warmups),
        grouped(warmups - wants_warmup - promoted - new_standbys),
    )
    kept = {task: at for task, at in has.items() if task in actives}
    must_revoke = _still_has(owned, revoking)
    if must_revoke:
        # Only roles inside the member change before it has revoked tasks.
        new_actives = set()
        new_standbys &= has.keys() | warmups
        new_warmups &= standbys
    granted = {**kept, **dict.fromkeys(new_actives, target_epoch)}
    assigned = OwnedTasks(
        with_epochs(granted),
        grouped((standbys & (wants_standby | (promoted - granted.keys()))) | new_standbys),
        grouped((warmups & (wants_warmup | (promoted - granted.keys()))) | new_warmups),
    )
    if must_revoke:
        return moved(member, epoch, UNREVOKED, assigned, revoking)
    state = UNRELEASED if is_waiting else STABLE
    return moved(member, target_epoch, state, assigned, NOTHING_OWNED)


class _Free:
    """Says whether a member may get a task, given what the others have."""

    def __init__(self, member: StreamsMember, holders: Holders) -> None:
        self._member_id, self._process_id = member.member_id, member.process_id
        self._holders = holders

    def as_active(self, task: Task) -> bool:
        if any(member_id != self._member_id for member_id in self._holders.active(task)):
            return False
        return not (
            self._in_process(self._holders.standby(task))
            or self._in_process(self._holders.warmup(task))
        )

    def as_replica(self, task: Task) -> bool:
        return not any(
            self._in_process(of(task))
            for of in (self._holders.active, self._holders.standby, self._holders.warmup)
        )

    def _in_process(self, found: Mapping[str, str]) -> bool:
        """Returns whether another member of the same process has the task."""
        return any(
            process_id == self._process_id and member_id != self._member_id
            for member_id, process_id in found.items()
        )
