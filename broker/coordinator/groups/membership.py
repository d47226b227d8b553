"""Who is a member of a group: lookups by member id and instance id, and the epochs of requests.

The rules are those of consumer, share and streams groups. Plain functions over a group's tables; no
time, no I/O. Next: member_position.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from barnabas.coordinator.groups.classic_group import DEAD, EMPTY, STABLE
from barnabas.coordinator.groups.member_position import Positioned, is_reconciled_to
from barnabas.errors import FencedInstanceId, FencedMemberEpoch, UnknownMemberId

ASSIGNING, RECONCILING = "Assigning", "Reconciling"


M = TypeVar("M", covariant=True)


class Membership(Protocol[M]):
    """A group that has members."""

    group_id: str

    @property
    def members(self) -> Mapping[str, M]: ...  # by member id


class StaticMembership(Membership[M], Protocol[M]):
    """A group that may have static members."""

    instances: dict[str, str]  # member id by instance id


class AssignedGroup(Membership[Positioned], Protocol):
    """A group whose members make steps towards a target assignment."""

    dead: bool
    epoch: int
    target_epoch: int


class Epochs(Protocol):
    """The epochs of a member."""

    @property
    def epoch(self) -> int: ...
    @property
    def previous_epoch(self) -> int: ...


def member_of(group: Membership[M], member_id: str) -> M:
    """Returns the member. Raises UnknownMemberId."""
    found = group.members.get(member_id)
    if found is None:
        raise UnknownMemberId(f"Member {member_id} is not a member of group {group.group_id}.")
    return found


def checked_member(group: StaticMembership[M], member_id: str, instance_id: str | None) -> M:
    """Returns the member. Raises UnknownMemberId, or FencedInstanceId when another member has the
    instance id."""
    if instance_id is None:
        return member_of(group, member_id)
    holder = group.instances.get(instance_id)
    if holder is None:
        raise UnknownMemberId(f"Instance id {instance_id} is unknown.")
    if holder != member_id:
        raise FencedInstanceId(
            f"Static member {member_id} with instance id {instance_id} was fenced by member"
            f" {holder}."
        )
    return group.members[holder]


def is_fenced(member: Epochs, epoch: int, may_have_lost: Callable[[], bool]) -> bool:
    """Returns whether a request with this epoch is refused. A response may have been lost, so the
    former epoch is also accepted if `may_have_lost` says that the rest of the request fits that."""
    if epoch == member.epoch:
        return False
    return not (epoch == member.previous_epoch < member.epoch and may_have_lost())


def fenced(kind: str, member: Epochs, epoch: int) -> FencedMemberEpoch:
    """Returns the error of a request with this epoch, in Kafka's words. `kind`: "share" or
    "streams"."""
    return FencedMemberEpoch(
        f"The {kind} group member has a {'greater' if epoch > member.epoch else 'smaller'} member"
        f" epoch ({epoch}) than the one known by the group coordinator ({member.epoch}). The member"
        " must abandon all its partitions and rejoin."
    )


def state_of(group: AssignedGroup) -> str:
    """Returns Kafka's name of a group's state, which follows from the epochs."""
    if group.dead:
        return DEAD
    if not group.members:
        return EMPTY
    if group.epoch > group.target_epoch:
        return ASSIGNING
    epoch = group.target_epoch
    if all(is_reconciled_to(member, epoch) for member in group.members.values()):
        return STABLE
    return RECONCILING
