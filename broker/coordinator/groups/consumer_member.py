"""A member of a consumer group (KIP-848), and one step of it towards its target assignment.

A member has an epoch, its partitions (`assigned`, each with the epoch at which it was assigned),
and the partitions that it must revoke (`revoking`) and may still read. It owns both until it
reports that it has revoked the latter, so a partition has one owner at a time. States, numbered as
Kafka stores them:

    STABLE      it has reached the target's epoch
    UNREVOKED   it must revoke partitions first and stays at its old epoch
    UNRELEASED  it is at the new epoch; others still own some partitions of its target

`reconciled` makes the step. Plain values, no time, no I/O. Next: consumer_group.py.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from barnabas.coordinator.groups.target_assignment import Assignment
from barnabas.errors import FencedMemberEpoch

STABLE, UNREVOKED, UNRELEASED, UNKNOWN_STATE = 0, 1, 2, 127
LEAVE = -1  # instead of an epoch: the member leaves
LEAVE_STATIC = -2  # a static member leaves for a while
JOIN = 0

Owned = Mapping[bytes, Mapping[int, int]]  # topic id: partition: epoch of its assignment
NOTHING: Owned = {}
_HELD = struct.Struct(">16sii")


class ClassicPart(NamedTuple):
    """The other fields of a JoinGroup request, for a member of the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class ConsumerMember(NamedTuple):
    """The state of one member at one moment."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()  # names that it subscribes to, sorted
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicPart | None = None
    state: int = STABLE
    epoch: int = JOIN
    previous_epoch: int = -1
    assigned: Owned = NOTHING
    revoking: Owned = NOTHING

    @property
    def description(self) -> tuple[object, ...]:
        """Returns the fields of its metadata record."""
        return self[:10]

    @property
    def position(self) -> tuple[object, ...]:
        """Returns the fields of its current-assignment record."""
        return self[10:]

    @property
    def held(self) -> bytes:
        """Returns the partitions that it owns, encoded for GroupTable.put_member."""
        return b"".join(
            sorted(
                _HELD.pack(topic_id, partition, epoch)
                for owned in (self.assigned, self.revoking)
                for topic_id, partitions in owned.items()
                for partition, epoch in partitions.items()
            )
        )

    def at(self, epoch: int) -> ConsumerMember:
        """Returns the member at the next epoch."""
        return self._replace(epoch=epoch, previous_epoch=self.epoch)

    def is_reconciled_to(self, epoch: int) -> bool:
        """Returns whether the member has reached its target at this epoch."""
        return self.state == STABLE and self.epoch == epoch


def partitions_of(owned: Owned) -> Assignment:
    """Returns the owned partitions without their epochs."""
    return {topic_id: frozenset(rows) for topic_id, rows in owned.items()}


def with_epoch(assignment: Mapping[bytes, Collection[int]], epoch: int) -> Owned:
    """Returns the partitions of an assignment as owned since `epoch`."""
    return {topic_id: dict.fromkeys(rows, epoch) for topic_id, rows in assignment.items() if rows}


def is_part_of(owned: Mapping[bytes, Collection[int]] | None, assigned: Owned) -> bool:
    """Returns whether all partitions that a member reports are assigned to it. `owned` is None when
    it reports none."""
    if owned is None:
        return False
    return all(
        partition in assigned.get(topic_id, ())
        for topic_id, rows in owned.items()
        for partition in rows
    )


def reconciled(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    owner_of: Callable[[bytes, int], str | None],
    owned: Mapping[bytes, Collection[int]] | None,
    subscribed: Collection[bytes],
    resubscribed: bool,
) -> ConsumerMember:
    """Returns the member after a step, or the same member when no step is possible.

    `target`, `owned`: partitions by topic id. `owned`: the partitions that the member reports, None
    without a report. `subscribed`: the ids of its topics; it gets no partition of another topic.
    `resubscribed`: its subscription has changed, so it must revoke partitions of topics that it
    left at once, whatever its target is. Raises FencedMemberEpoch for a member in an unknown state.
    Kafka: CurrentAssignmentBuilder."""
    if member.state == UNKNOWN_STATE:
        # A newer broker stored a state that this version does not know: the member starts again.
        if owned is None or any(owned.values()):
            raise FencedMemberEpoch("the member has an unknown state; join again")
        return _towards(member, target_epoch, target, owner_of, owned, subscribed)
    if member.state == STABLE and member.epoch == target_epoch:
        return _without_left_topics(member, owned, subscribed) if resubscribed else member
    if member.state == UNREVOKED and _still_owns(owned, member.revoking):
        return _without_left_topics(member, owned, subscribed) if resubscribed else member
    return _towards(member, target_epoch, target, owner_of, owned, subscribed)


def _still_owns(owned: Mapping[bytes, Collection[int]] | None, revoking: Owned) -> bool:
    if owned is None:
        return True
    return any(
        partition in revoking.get(topic_id, ())
        for topic_id, rows in owned.items()
        for partition in rows
    )


def _without_left_topics(
    member: ConsumerMember,
    owned: Mapping[bytes, Collection[int]] | None,
    subscribed: Collection[bytes],
) -> ConsumerMember:
    left = [topic_id for topic_id in member.assigned if topic_id not in subscribed]
    if not left:
        return member
    assigned = {t: rows for t, rows in member.assigned.items() if t not in left}
    revoking = dict(member.revoking)
    for topic_id in left:
        revoking[topic_id] = {**revoking.get(topic_id, {}), **member.assigned[topic_id]}
    if _still_owns(owned, revoking):
        return member.at(member.epoch)._replace(
            state=UNREVOKED, assigned=assigned, revoking=revoking
        )
    return member.at(member.epoch)._replace(assigned=assigned)


def _towards(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    owner_of: Callable[[bytes, int], str | None],
    owned: Mapping[bytes, Collection[int]] | None,
    subscribed: Collection[bytes],
) -> ConsumerMember:
    assigned: dict[bytes, Mapping[int, int]] = {}
    revoking: dict[bytes, Mapping[int, int]] = {}
    coming: dict[bytes, list[int]] = {}
    unreleased = False
    for topic_id in {**target, **member.assigned}:
        wanted = target.get(topic_id, frozenset()) if topic_id in subscribed else frozenset()
        has = member.assigned.get(topic_id, {})
        if has:
            keeps = {p: epoch for p, epoch in has.items() if p in wanted}
            if keeps:
                assigned[topic_id] = has if len(keeps) == len(has) else keeps
            if len(keeps) < len(has):
                revoking[topic_id] = {p: epoch for p, epoch in has.items() if p not in wanted}
        for partition in wanted:
            if partition in has:
                continue
            if owner_of(topic_id, partition) in (None, member.member_id):
                coming.setdefault(topic_id, []).append(partition)
            else:
                unreleased = True
    if revoking and _still_owns(owned, revoking):
        return member.at(member.epoch)._replace(
            state=UNREVOKED, assigned=assigned, revoking=revoking
        )
    for topic_id, partitions in coming.items():
        new = dict.fromkeys(sorted(partitions), target_epoch)
        assigned[topic_id] = {**assigned.get(topic_id, {}), **new}
    return member.at(target_epoch)._replace(
        state=UNRELEASED if unreleased else STABLE, assigned=assigned, revoking=NOTHING
    )
