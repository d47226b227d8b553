"""A group of the classic protocol: its members and its generation. Plain state, no I/O, no time.

    EMPTY -> PREPARING -> COMPLETING -> STABLE -> PREPARING ...
      ^___________|____________|__________|

PREPARING collects JoinGroup requests, COMPLETING waits for the leader's assignment, STABLE has it.
A deleted group is DEAD for code that still has a reference to it. A pending member has got an id
and has not joined with it yet. Next: rebalance.py, which makes the transitions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from barnabas.cext.coordinator.group_table import GroupTable
from barnabas.coordinator.groups.subscription import subscribed_topics
from barnabas.errors import FencedInstanceId, KafkaError, UnknownMemberId

EMPTY = "Empty"
PREPARING = "PreparingRebalance"
COMPLETING = "CompletingRebalance"
STABLE = "Stable"
DEAD = "Dead"

BEFORE = {  # the states from which a state may be entered
    EMPTY: (PREPARING, COMPLETING, STABLE),
    PREPARING: (STABLE, COMPLETING, EMPTY),
    COMPLETING: (PREPARING,),
    STABLE: (COMPLETING,),
    DEAD: (EMPTY, PREPARING, COMPLETING, STABLE),
}

Protocols = Sequence[tuple[str, bytes]]
# Most groups have no such members, so they share these empty containers.
NOBODY: frozenset[str] = frozenset()
NO_INSTANCES: dict[str, str] = {}
NO_TIMERS: dict[str, Any] = {}
KEPT = 1024  # the limit of cached values that many members share
KEPT_BYTES_MAX = 4096  # of each value


class MemberView(NamedTuple):
    """Describes a member in the leader's JoinGroup response."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """The result of JoinGroup."""

    error: KafkaError | None = None
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: Sequence[MemberView] = ()
    skip_assignment: bool = False


class SyncResult(NamedTuple):
    """The result of SyncGroup."""

    error: KafkaError | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


AnswerJoin = Callable[[JoinResult], object]
AnswerSync = Callable[[SyncResult], object]


class Member:
    """One member of a classic group. `join` and `sync` are the callbacks of its pending requests.
    Only the group sets `join` and `protocols`, because it counts them."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "instance_id",
        "is_new",
        "join",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = in_common(protocols)
        self.assignment = assignment
        self.is_new = False
        self.join: AnswerJoin | None = None
        self.sync: AnswerSync | None = None
        self.deadline_ms = 0  # of its session, on the monotonic clock

    def metadata(self, protocol: str | None) -> bytes:
        """Returns the member's metadata for a protocol."""
        for name, metadata in self.protocols:  # a loop is fastest: this runs often for each member
            if name == protocol:
                return metadata
        return b""


def in_common(protocols: Protocols) -> tuple[tuple[str, bytes], ...]:
    """Returns the protocols as one object that members with equal protocols share."""
    given = tuple(protocols)
    size_bytes = 0
    for _, metadata in given:
        size_bytes += len(metadata)
    return given if size_bytes > KEPT_BYTES_MAX else _kept_protocols(given)


@lru_cache(maxsize=KEPT)
def _kept_protocols(given: tuple[tuple[str, bytes], ...]) -> tuple[tuple[str, bytes], ...]:
    return given


def shared_bytes(given: bytes) -> bytes:
    """Returns the same bytes as one object that members with equal bytes share."""
    return given if len(given) > KEPT_BYTES_MAX else _kept_bytes(given)


@lru_cache(maxsize=KEPT)
def _kept_bytes(given: bytes) -> bytes:
    return given


def _counted(members: Iterable[Member]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for member in members:
        for name in _names(member.protocols):
            counts[name] = counts.get(name, 0) + 1
    return counts


def _names(protocols: Protocols) -> Collection[str]:
    """Returns each name once."""
    if len(protocols) == 1:
        return (protocols[0][0],)
    return {name for name, _ in protocols}


class ClassicGroup:
    """The state of one classic group (Kafka: ClassicGroup)."""

    __slots__ = (
        "empty_since_ms",
        "group_id",
        "generation",
        "instances",
        "join_timer",
        "joined_count",
        "leader",
        "members",
        "new_member_added",
        "pending",
        "pending_sync",
        "previous_state",
        "_protocol_counts",
        "protocol_name",
        "protocol_type",
        "session_timer",
        "state",
        "subscribed",
        "sync_timer",
        "table",
    )

    group_type: Literal["classic"] = "classic"

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.previous_state = EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.instances = NO_INSTANCES  # static members: instance id to member id
        self.joined_count = 0  # members that wait for their JoinGroup response
        self._protocol_counts: dict[str, int] | None = None  # None below two members
        self.pending = NO_TIMERS  # member id to its timer
        self.pending_sync: set[str] | frozenset[str] = NOBODY
        self.subscribed: frozenset[str] | None = None  # None: not known
        self.new_member_added = False
        self.empty_since_ms: int | None = None  # wall clock; None before the first generation
        self.join_timer: Any = None
        self.session_timer: Any = None
        self.sync_timer: Any = None
        self.table: GroupTable | None = None  # None: commits are not checked against it

    # -- commits, which native code checks ------------------------------------------------------

    def expose(self, table: GroupTable, partition: int) -> None:
        """Writes the group into the table that commits are checked against, in place of any other
        of its name. Later changes write to the table too, until `self.table` is None."""
        rows = [(m.member_id, m.instance_id, -1, True) for m in self.members.values()]
        table.put(self.group_id, partition, rows, state=self.state, generation=self.generation)
        self.table = table

    def listen(self, member: Member) -> None:
        """Lets commits that native handlers accept extend the sessions of members."""
        if self.table is not None:
            heard_ms = self.table.heard_ms(self.group_id, member.member_id)
            if heard_ms >= 0:
                member.deadline_ms = max(member.deadline_ms, heard_ms + member.session_timeout_ms)

    # -- state ----------------------------------------------------------------------------------

    def move_to(self, state: str, wall_ms: int) -> None:
        """Changes the state. `wall_ms`: the wall clock, from which the offsets of an empty group
        age."""
        assert self.state in BEFORE[state], f"{self.group_id}: {self.state} to {state}"
        self.previous_state, self.state = self.state, state
        self.empty_since_ms = wall_ms
        if self.table is not None:
            self.table.set_state(self.group_id, state, self.generation)

    @property
    def can_rebalance(self) -> bool:
        """Returns whether a rebalance may start from the present state."""
        return self.state in BEFORE[PREPARING]

    def begin_generation(self, wall_ms: int) -> None:
        """Begins the next generation and selects its protocol: all members have joined or left."""
        self.generation += 1
        if self.members:
            self.protocol_name = self.select_protocol()
            self.move_to(COMPLETING, wall_ms)
        else:
            self.protocol_name = None
            self.leader = None
            self.move_to(EMPTY, wall_ms)
        self.subscribed = self._subscriptions()
        self.pending_sync = NOBODY

    # -- members --------------------------------------------------------------------------------

    def add(self, member: Member) -> None:
        """Adds a member, which must be new. The first one becomes the leader."""
        assert member.member_id not in self.members, member.member_id
        if not self.members:
            self.leader = None
        if member.instance_id is not None:
            assert member.instance_id not in self.instances, member.instance_id
            if self.instances is NO_INSTANCES:
                self.instances = {}
            self.instances[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        if self._protocol_counts is not None:
            self._count_protocols(member, 1)
        elif len(self.members) > 1:
            self._protocol_counts = _counted(self.members.values())
        self.joined_count += member.join is not None
        if self.leader is None:
            self.leader = member.member_id
        if self.table is not None:
            self.table.put_member(self.group_id, member.member_id, member.instance_id)

    def remove(self, member_id: str) -> Member | None:
        """Removes a member and returns it; None when the group has no such member."""
        member = self.members.pop(member_id, None)
        self.has_synced(member_id)
        if self.table is not None:
            self.table.remove_member(self.group_id, member_id)
        if member is None:
            return None
        self._count_protocols(member, -1)
        if len(self.members) < 2:
            self._protocol_counts = None
        self.joined_count -= member.join is not None
        if member.instance_id is not None:
            del self.instances[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def set_join(self, member: Member, answer: AnswerJoin | None) -> AnswerJoin | None:
        """Sets the pending JoinGroup of a member and returns the former one."""
        before, member.join = member.join, answer
        self.joined_count += (answer is not None) - (before is not None)
        return before

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        """Replaces the protocols of a member and counts them again."""
        self._count_protocols(member, -1)
        member.protocols = in_common(protocols)
        self._count_protocols(member, 1)

    @property
    def protocol_counts(self) -> dict[str, int]:
        """Returns the number of members that support each protocol."""
        if self._protocol_counts is not None:
            return self._protocol_counts
        return _counted(self.members.values())

    def _count_protocols(self, member: Member, by: int) -> None:
        counts = self._protocol_counts
        if counts is None:
            return
        for name in _names(member.protocols):
            counts[name] = counts.get(name, 0) + by
            if counts[name] == 0:
                del counts[name]

    # -- members that the group waits for -------------------------------------------------------

    def awaits_join(self, member_id: str, timer: Any) -> None:
        """Adds a pending member: it has got an id and has not joined with it yet."""
        if self.pending is NO_TIMERS:
            self.pending = {}
        self.pending[member_id] = timer

    def end_joins(self) -> list[tuple[Member, AnswerJoin]]:
        """Ends the join phase: all members must sync now. Returns the members that waited."""
        joined = []
        for member in self.members.values():
            member.is_new = False
            if member.join is not None:
                joined.append((member, member.join))
                member.join = None
        self.joined_count = 0
        self.pending_sync = set(self.members)
        return joined

    def has_synced(self, member_id: str) -> None:
        """Marks a member as synced: the group does not wait for its SyncGroup."""
        if isinstance(self.pending_sync, set):
            self.pending_sync.discard(member_id)
            if not self.pending_sync:
                self.pending_sync = NOBODY

    def replace_static(self, instance_id: str, new_id: str) -> Member:
        """Gives the static member a new id and returns the member, which is otherwise unchanged."""
        old_id = self.instances[instance_id]
        member = self.members.pop(old_id)
        self.has_synced(old_id)
        member.member_id = new_id
        self.members[new_id] = member
        self.instances[instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if self.table is not None:
            self.table.remove_member(self.group_id, old_id)
            self.table.put_member(self.group_id, new_id, instance_id)
        return member

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """Returns the member. Raises UnknownMemberId, or FencedInstanceId when another member has
        the instance id."""
        if instance_id is not None:
            holder = self.instances.get(instance_id)
            if holder is None:
                raise UnknownMemberId()
            if holder != member_id:
                raise FencedInstanceId()
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId()
        return member

    @property
    def all_joined(self) -> bool:
        """Returns whether all members have joined and no pending member is left."""
        return not self.pending and self.joined_count == len(self.members)

    def not_yet_joined(self) -> list[Member]:
        """Returns the members without a pending JoinGroup."""
        return [member for member in self.members.values() if member.join is None]

    def elect_joined_leader(self) -> bool:
        """Makes a member that has joined the leader. Returns False when no member has joined."""
        leader = self.members.get(self.leader) if self.leader is not None else None
        if leader is not None and leader.join is not None:
            return True
        for member in self.members.values():
            if member.join is not None:
                self.leader = member.member_id
                return True
        return False

    @property
    def rebalance_timeout_ms(self) -> int:
        """Returns the longest rebalance timeout of the members, in ms."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    # -- protocols ------------------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Returns whether a member with these protocols may join (Kafka:
        ClassicGroup.supportsProtocols).

        Until its first join phase ends, a group without members keeps the protocol type of the
        members that left, and accepts every protocol."""
        if not protocol_type or not protocols:
            return False
        if self.state == EMPTY:
            return True
        if protocol_type != self.protocol_type:
            return False
        member_count = len(self.members)
        counts = self.protocol_counts
        for name, _ in protocols:  # a loop is fastest: many members join at once
            if counts.get(name, 0) == member_count:
                return True
        return False

    def select_protocol(self) -> str:
        """Returns the protocol that all members support and most members prefer."""
        everybody = len(self.members)
        common = {name for name, count in self.protocol_counts.items() if count == everybody}
        if len(common) == 1:
            return common.pop()
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = next(name for name, _ in member.protocols if name in common)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def _subscriptions(self) -> frozenset[str] | None:
        """Returns all topics that members subscribe to, or None when they are not known."""
        if self.protocol_type != "consumer" or self.protocol_name is None:
            return frozenset() if not self.members and self.protocol_type == "consumer" else None
        return self._topics_of(m.metadata(self.protocol_name) for m in self.members.values())

    def restore_subscriptions(self) -> None:
        """Restores the counts after the members were read from the log."""
        self.subscribed = self._subscriptions()

    @staticmethod
    def _topics_of(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
        found: frozenset[str] = frozenset()
        for subscription in subscriptions:
            topics = subscribed_topics(subscription)
            if topics is None:
                return None
            if topics is not found:  # members with the same subscription share its topics
                found = found | topics if found else topics
        return found

    def is_subscribed_to(self, topic: str) -> bool:
        """Returns whether members subscribe to the topic. A group whose subscriptions are not known
        counts as subscribed to every topic."""
        return self.subscribed is None or topic in self.subscribed

    def views(self) -> list[MemberView]:
        """Returns the members as the leader's JoinGroup response lists them."""
        return [
            MemberView(m.member_id, m.instance_id, m.metadata(self.protocol_name))
            for m in self.members.values()
        ]
