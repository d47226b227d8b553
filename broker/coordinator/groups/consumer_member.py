"""A member of a consumer group (KIP-848), and one step of it towards its target assignment.

A member has a position (member_position.py): its partitions (`assigned`, each with the epoch at
which it was assigned), and the partitions that it must revoke (`revoking`) and may still read. It
owns both until it reports that it has revoked the latter, so a partition has one owner at a time.
`reconciled` makes the step. Plain values, no time, no I/O. Next: consumer_group.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from barnabas.coordinator.groups.commit_checks import held_partitions
from barnabas.coordinator.groups.member_position import (
    JOIN,
    STABLE,
    UNKNOWN_STATE,
    UNRELEASED,
    UNREVOKED,
    moved,
    shares_any,
)
from barnabas.coordinator.groups.target_assignment import Assignment
from barnabas.errors import FencedMemberEpoch

Owned = Mapping[bytes, Mapping[int, int]]  # topic id: partition: epoch of its assignment
NOTHING: Owned = {}


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
    def held(self) -> bytes:
        """Returns the partitions that it owns, encoded for GroupTable.put_member."""
        return held_partitions(
            (topic_id, partition, epoch)
            for owned in (self.assigned, self.revoking)
            for topic_id, partitions in owned.items()
            for partition, epoch in partitions.items()
        )


def partitions_of(owned: Owned) -> Assignment:
    """Returns the owned partitions without their epochs."""
    return {topic_id: frozenset(rows) for topic_id, rows in owned.items()}


def with_epoch(assignment: Mapping[bytes, Collection[int]], epoch: int) -> Owned:
    """Returns the partitions of an assignment as owned since `epoch`."""
    return {topic_id: dict.fromkeys(rows, epoch) for topic_id, rows in assignment.items() if rows}


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
    return owned is None or shares_any(owned, revoking)


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
        return moved(member, member.epoch, UNREVOKED, assigned, revoking)
    return moved(member, member.epoch, member.state, assigned, member.revoking)


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
        return moved(member, member.epoch, UNREVOKED, assigned, revoking)
    for topic_id, partitions in coming.items():
        new = dict.fromkeys(sorted(partitions), target_epoch)
        assigned[topic_id] = {**assigned.get(topic_id, {}), **new}
    state = UNRELEASED if unreleased else STABLE
    return moved(member, target_epoch, state, assigned, NOTHING)
