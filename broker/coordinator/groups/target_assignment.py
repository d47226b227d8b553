"""The target assignment of a group: requested from an assignor, checked, compared with the last.

An assignor is a plugin (hooks/specs.py, assign_partitions), so its result is not trusted. It may
contain only known members, topics that they subscribe to, and existing partitions, none of them
twice. Anything else counts as a failure of the assignor, and the last assignment stays. Consumer
groups call `new_target` with the hook. A share group, whose partitions may have several readers,
passes `exclusive=False`. Streams groups have an assignor of their own.

A group gets a new target once in its assignment interval: members that join soon after another
share the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from barnabas.coordinator.groups.topic_views import TopicView, TopicViews
from barnabas.errors import UnknownServerError

if TYPE_CHECKING:
    from barnabas.hooks.specs import GroupView

log = logging.getLogger("barnabas.groups")

Assignment = Mapping[bytes, frozenset[int]]  # topic id: its partitions, at least one
Assign = Callable[[str, "GroupView"], Mapping[str, Mapping[bytes, Collection[int]]]]
NOTHING: Assignment = {}


class Subscriber(NamedTuple):
    """The data of a member that its assignment needs."""

    instance_id: str | None
    rack_id: str | None
    topics: frozenset[bytes]


def new_target(
    group_id: str,
    subscribers: Mapping[str, Subscriber],
    topics: TopicViews,
    before: Mapping[str, Assignment],
    assignor: str,
    assign: Assign,
    *,
    exclusive: bool = True,
) -> dict[str, Assignment]:
    """Returns the target of every subscriber: partitions by topic id, by member id.

    `before`: the former targets, by the ids of `subscribers`. `exclusive`: a partition has at most
    one reader. Raises UnknownServerError when the assignor failed. Kafka:
    TargetAssignmentBuilder."""
    if not subscribers:
        return {}
    from barnabas.hooks.specs import GroupMemberView, GroupTopicView, GroupView

    wanted = frozenset().union(*{member.topics for member in subscribers.values()})
    known = {i: topic for i in wanted if (topic := topics.with_id(i)) is not None}
    # All members of most groups subscribe to the same topics: the assignor gets one set for them.
    there = {
        subscribed: subscribed.intersection(known)
        for subscribed in {member.topics for member in subscribers.values()}
    }
    view = GroupView(
        group_id,
        {
            member_id: GroupMemberView(
                member_id,
                member.instance_id,
                member.rack_id,
                there[member.topics],
                before.get(member_id, NOTHING),
            )
            for member_id, member in subscribers.items()
        },
        {i: GroupTopicView(t.name, t.partition_count, t.racks) for i, t in known.items()},
    )
    try:
        answer = assign(assignor, view)
        return _checked(answer, subscribers, known, before, exclusive)
    except Exception as error:
        log.exception("group %s keeps its assignment: assignor %s failed", group_id, assignor)
        raise UnknownServerError(f"assignor {assignor}: {error}") from error


def _checked(
    answer: Mapping[str, Mapping[bytes, Collection[int]]],
    subscribers: Mapping[str, Subscriber],
    known: Mapping[bytes, TopicView],
    before: Mapping[str, Assignment],
    exclusive: bool,
) -> dict[str, Assignment]:
    """Returns the answer with an entry for every member. Unchanged entries are the objects of
    `before`. Raises ValueError for an answer that is not valid."""
    if not answer.keys() <= subscribers.keys():
        raise ValueError("it assigned partitions to an unknown member")
    found: dict[str, Assignment] = {}
    taken: dict[bytes, set[int]] = {}
    for member_id, subscriber in subscribers.items():
        given = answer.get(member_id)
        assignment: dict[bytes, frozenset[int]] = {}
        for topic_id, indexes in (given or {}).items():
            partitions = frozenset(indexes)
            if not partitions:
                continue
            if topic_id not in subscriber.topics or topic_id not in known:
                raise ValueError(
                    f"{member_id} got partitions of a topic that it does not subscribe to"
                )
            if min(partitions) < 0 or max(partitions) >= known[topic_id].partition_count:
                raise ValueError(f"a partition of {known[topic_id].name} that does not exist")
            if exclusive:
                others = taken.setdefault(topic_id, set())
                if not others.isdisjoint(partitions):
                    raise ValueError(
                        f"a partition of {known[topic_id].name} was assigned more than once"
                    )
                others |= partitions
            assignment[topic_id] = partitions
        last = before.get(member_id)
        found[member_id] = last if last == assignment and last is not None else assignment
    return found


def wait_ms(assigned_ms: int, interval_ms: int, wall_ms: int) -> int:
    """Returns how long a new target must wait; 0: it is due. `assigned_ms`: when the last one was
    computed, wall clock. A clock that was moved back delays nothing."""
    since_ms = wall_ms - assigned_ms
    return max(0, interval_ms - since_ms) if since_ms >= 0 else 0
