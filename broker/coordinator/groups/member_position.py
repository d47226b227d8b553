"""The position of a member on its way to its target assignment, in consumer and streams groups.

A member has an epoch, what is assigned to it, and what it must revoke first and may still use. It
owns both until it reports that it has revoked the latter. These are the last fields of a member,
and the fields of its current-assignment record; the fields before them, which the member's requests
state, are those of its metadata record. States, numbered as Kafka stores them:

    STABLE      it has reached the target's epoch
    UNREVOKED   it must revoke something first and stays at its old epoch
    UNRELEASED  it is at the new epoch; others still own some of its target

Plain values. Next: consumer_member.py, coordinator/streams/streams_member.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, TypeVar

STABLE, UNREVOKED, UNRELEASED, UNKNOWN_STATE = 0, 1, 2, 127
LEAVE = -1  # instead of an epoch: the member leaves
LEAVE_STATIC = -2  # a static member leaves for a while
JOIN = 0

POSITION = ("state", "epoch", "previous_epoch", "assigned", "revoking")  # in this order


class Positioned(Protocol):
    """A named tuple that begins with the member's id and ends with the fields of POSITION."""

    @property
    def member_id(self) -> str: ...
    @property
    def instance_id(self) -> str | None: ...
    @property
    def state(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def previous_epoch(self) -> int: ...
    @property
    def revoking(self) -> object: ...
    @property
    def rebalance_timeout_ms(self) -> int: ...
    @property
    def _replace(self) -> Callable[..., Any]: ...


M = TypeVar("M", bound=Positioned)
K = TypeVar("K")  # a topic id or subtopology


def description(member: tuple[Any, ...]) -> tuple[object, ...]:
    """Returns the fields of a member's metadata record."""
    return member[: -len(POSITION)]


def position(member: tuple[Any, ...]) -> tuple[object, ...]:
    """Returns the fields of a member's current-assignment record."""
    return member[-len(POSITION) :]


def moved(member: M, epoch: int, state: int, assigned: object, revoking: object) -> M:
    """Returns the member after a step to an epoch, which may be its present one."""
    made: M = member._replace(
        epoch=epoch,
        previous_epoch=member.epoch,
        state=state,
        assigned=assigned,
        revoking=revoking,
    )
    return made


def is_reconciled_to(member: Positioned, epoch: int) -> bool:
    """Returns whether the member has reached its target at this epoch."""
    return member.state == STABLE and member.epoch == epoch


def without_position(member: M, new: M) -> M:
    """Returns the member at the position of a new one."""
    made: M = member._replace(**{name: getattr(new, name) for name in POSITION})
    return made


def in_place_of(member: M, member_id: str) -> M:
    """Returns the new member that takes the place of a static member."""
    made: M = member._replace(member_id=member_id, epoch=JOIN, previous_epoch=JOIN)
    return made


def shares_any(owned: Mapping[K, Collection[int]], others: Mapping[K, Collection[int]]) -> bool:
    """Returns whether any partition is in both."""
    return any(
        partition in others.get(key, ()) for key, rows in owned.items() for partition in rows
    )


def holds_all(owned: Mapping[K, Collection[int]], others: Mapping[K, Collection[int]]) -> bool:
    """Returns whether `others` has each partition of `owned`."""
    return all(
        partition in others.get(key, ()) for key, rows in owned.items() for partition in rows
    )
