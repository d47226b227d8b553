"""A group of the consumer protocol (KIP-848): members, epochs, target assignment. Plain state.

It has three kinds of epochs. The group epoch increases with every change of membership,
subscription or topics; the target assignment has the group epoch that it was computed for; each
member has the epoch of the assignment that it has reached. The epochs determine the state. A group
without members is EMPTY. A group whose target is older than its epoch is ASSIGNING. A group with
members below the target's epoch is RECONCILING. Every other group is STABLE.

`owners` maps a partition to the member that may read it, also while that member must revoke it.
`put` and `remove` update it and the other counts. Next: consumer_heartbeats.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from barnabas.cext.coordinator.group_table import GroupTable
from barnabas.coordinator.groups.classic_group import ClassicGroup
from barnabas.coordinator.groups.consumer_member import ConsumerMember, Owned
from barnabas.coordinator.groups.group_writes import WriteState
from barnabas.coordinator.groups.member_timers import Watch
from barnabas.coordinator.groups.membership import state_of
from barnabas.coordinator.groups.streams_kind import StreamsGroup
from barnabas.coordinator.groups.target_assignment import NOTHING, Assignment, Subscriber
from barnabas.coordinator.groups.topic_views import NO_TOPICS_HASH, TopicViews


class Resolved(NamedTuple):
    """The topics that a regular expression matched at `at_ms`."""

    topics: frozenset[str]
    version: int
    at_ms: int  # wall clock


class ConsumerGroup:
    """The state of one consumer group (Kafka: ConsumerGroup)."""

    __slots__ = (
        "assigned_ms",
        "assignors",
        "assigns_later",
        "classic_count",
        "dead",
        "epoch",
        "group_id",
        "instances",
        "members",
        "metadata_hash",
        "names",
        "owners",
        "protocol_counts",
        "regexes",
        "resolved",
        "resolving",
        "table",
        "target",
        "target_epoch",
        "resolved_for",
        "views",
        "watches",
        "writes",
    )

    group_type: Literal["consumer"] = "consumer"
    protocol_type = "consumer"
    empty_since_ms: int | None = None  # None: offsets age from their commit

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.target_epoch = 0
        self.assigned_ms = 0  # when the target was computed, wall clock
        self.metadata_hash = NO_TOPICS_HASH
        self.members: dict[str, ConsumerMember] = {}
        self.instances: dict[str, str] = {}
        self.target: dict[str, Assignment] = {}
        self.resolved: dict[str, Resolved] = {}
        self.dead = False
        # These fields are derived from the members.
        self.owners: dict[bytes, dict[int, str]] = {}
        self.names: dict[str, int] = {}  # topic name: number of its subscribers
        self.regexes: dict[str, int] = {}
        self.assignors: dict[str, int] = {}
        self.protocol_counts: dict[str, int] = {}  # counts only classic members
        self.classic_count = 0
        # These fields are not in the log.
        self.table: GroupTable | None = None  # None: commits are not checked against it
        self.views: TopicViews | None = None  # the topics at the last heartbeat
        self.resolving = False
        self.resolved_for: TopicViews | None = None
        self.assigns_later: Any = None  # a timer
        self.watches: dict[str, Watch] = {}  # member id: its timers
        self.writes = WriteState()

    # -- state ----------------------------------------------------------------------------------

    def expose(self, table: GroupTable, partition: int) -> None:
        """Writes the group into the table that commits are checked against, in place of any other
        of its name. Later changes write to the table too, until `self.table` is None."""
        rows = [
            (m.member_id, m.instance_id, m.epoch, m.classic is not None, m.held)
            for m in self.members.values()
        ]
        table.put(self.group_id, partition, rows, kind="consumer")
        self.table = table

    @property
    def state(self) -> str:
        """Returns Kafka's name of the state, which follows from the epochs."""
        return state_of(self)

    def owner(self, topic_id: bytes, partition: int) -> str | None:
        """Returns the member that reads a partition or may still read it; None without one."""
        owners = self.owners.get(topic_id)
        return None if owners is None else owners.get(partition)

    def is_subscribed_to(self, topic: str) -> bool:
        """Returns whether a member subscribes to the topic, by name or by a regular expression."""
        return topic in self.names or any(topic in row.topics for row in self._resolved_rows())

    def topic_names(self) -> set[str]:
        """Returns all topics that members subscribe to, by name or by a regular expression."""
        return set(self.names).union(*(row.topics for row in self._resolved_rows()))

    def _resolved_rows(self) -> list[Resolved]:
        """Returns the topics of each regular expression that members subscribe with."""
        return [row for regex, row in self.resolved.items() if regex in self.regexes]

    def subscribers(self, views: TopicViews) -> dict[str, Subscriber]:
        """Returns the members as an assignor takes them; equal sets of topics are the same
        object."""
        ids: dict[tuple[tuple[str, ...], str | None], frozenset[bytes]] = {}
        found = {}
        for member_id, member in self.members.items():
            subscription = member.topics, member.regex
            if subscription not in ids:
                ids[subscription] = self.subscribed_ids(member, views)
            found[member_id] = Subscriber(member.instance_id, member.rack_id, ids[subscription])
        return found

    def subscribed_ids(self, member: ConsumerMember, views: TopicViews) -> frozenset[bytes]:
        """Returns the ids of the existing topics that the member subscribes to."""
        ids = views.ids_of(member.topics)
        resolved = self.resolved.get(member.regex) if member.regex else None
        return ids if resolved is None else ids | views.ids_of(resolved.topics)

    def assignor(self, default: str) -> str:
        """Returns the assignor that most members request."""
        if not self.assignors:
            return default
        return max(self.assignors, key=lambda name: (self.assignors[name], name))

    def target_of(self, member_id: str) -> Assignment:
        """Returns the target of a member: partitions by topic id."""
        return self.target.get(member_id, NOTHING)

    # -- classic members ------------------------------------------------------------------------

    def supports(self, protocol_type: str | None, protocols: Iterable[str]) -> bool:
        """Returns whether a member of the classic protocol may join."""
        if protocol_type != self.protocol_type:
            return False
        if not self.members:
            return any(True for _ in protocols)
        counts = self.protocol_counts
        return any(counts.get(name, 0) == self.classic_count for name in protocols)

    def is_classic_but_for(self, member_id: str) -> bool:
        """Returns whether this member is the only one of the consumer protocol."""
        member = self.members.get(member_id)
        return (
            member is not None
            and member.classic is None
            and self.classic_count == len(self.members) - 1
        )

    def waits_for_release(self, member: ConsumerMember) -> bool:
        """Returns whether another member still owns a partition of this member's target."""
        for topic_id, partitions in self.target_of(member.member_id).items():
            has = member.assigned.get(topic_id, {})
            for partition in partitions:
                owner = self.owner(topic_id, partition)
                if partition not in has and owner not in (None, member.member_id):
                    return True
        return False

    # -- changes --------------------------------------------------------------------------------

    def put(self, member: ConsumerMember, is_replay: bool = False) -> None:
        """Adds a member, or replaces it by its new version."""
        before = self.members.get(member.member_id)
        if before is not None:
            self._count(before, -1)
            self._release(before)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        self._count(member, 1)
        for owned in (member.assigned, member.revoking):
            for topic_id, partitions in owned.items():
                owners = self.owners.setdefault(topic_id, {})
                # A log that was compacted half-way may also name the last owner for some time.
                assert is_replay or owners.keys().isdisjoint(partitions), (
                    f"{self.group_id}: a partition would have two owners"
                )
                owners.update(dict.fromkeys(partitions, member.member_id))
        if self.table is not None:
            self.table.put_member(
                self.group_id,
                member.member_id,
                member.instance_id,
                member.epoch,
                member.classic is not None,
                member.held,
            )

    def remove(self, member_id: str) -> ConsumerMember | None:
        """Removes a member and its target. Returns the member, or None when there is none."""
        self.target.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if self.table is not None:
            self.table.remove_member(self.group_id, member_id)
        if member is None:
            return None
        self._count(member, -1)
        self._release(member)
        if member.instance_id is not None and self.instances.get(member.instance_id) == member_id:
            del self.instances[member.instance_id]
        return member

    def _release(self, member: ConsumerMember) -> None:
        for owned in (member.assigned, member.revoking):
            self._release_owned(member.member_id, owned)

    def _release_owned(self, member_id: str, owned: Owned) -> None:
        for topic_id, partitions in owned.items():
            owners = self.owners.get(topic_id)
            if owners is None:
                continue
            for partition in partitions:
                if owners.get(partition) == member_id:
                    del owners[partition]
            if not owners:
                del self.owners[topic_id]

    def settle_owners(self) -> None:
        """Restores the counts after the members were read from the log, in any order."""
        self.owners = {}
        for member in self.members.values():
            for owned in (member.assigned, member.revoking):
                for topic_id, partitions in owned.items():
                    owners = self.owners.setdefault(topic_id, {})
                    for partition in partitions:
                        owners.setdefault(partition, member.member_id)

    def _count(self, member: ConsumerMember, by: int) -> None:
        for name in member.topics:
            _add(self.names, name, by)
        if member.regex:
            _add(self.regexes, member.regex, by)
        if member.assignor is not None:
            _add(self.assignors, member.assignor, by)
        if member.classic is not None:
            self.classic_count += by
            for protocol in {name for name, _ in member.classic.protocols}:
                _add(self.protocol_counts, protocol, by)


def _add(counts: dict[str, int], name: str, by: int) -> None:
    counts[name] = counts.get(name, 0) + by
    if counts[name] == 0:
        del counts[name]


Group = ClassicGroup | ConsumerGroup | StreamsGroup  # the three kinds of one coordinator
