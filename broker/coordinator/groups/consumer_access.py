"""The interfaces of the group coordinator, the node and the groups that the consumer protocol uses.

The coordinator creates the code for consumer groups with the first such group; that code creates
its parts. These interfaces let each part know its owner without importing it. Next: coordinator.py,
consumer_heartbeats.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from barnabas.coordinator.groups.classic_group import ClassicGroup
from barnabas.coordinator.groups.consumer_group import ConsumerGroup, Group
from barnabas.coordinator.groups.group_counts import GroupCounts
from barnabas.coordinator.groups.group_records import Entry
from barnabas.coordinator.groups.group_writes import Done, GroupWrites
from barnabas.coordinator.groups.rebalance import Timers
from barnabas.coordinator.groups.target_assignment import Assign
from barnabas.coordinator.groups.topic_views import TopicViews


class ConsumerSettings(NamedTuple):
    """The broker's settings for groups of the consumer protocol."""

    members_max: int
    assignors: tuple[str, ...]  # the first is the default
    migration: str  # disabled, upgrade, downgrade, bidirectional


class Timeouts(NamedTuple):
    """The settings of one group, in ms."""

    session_ms: int
    heartbeat_ms: int
    assignment_ms: int  # the shortest time between two target assignments


class GroupDependencies(Protocol):
    """The functions of the node that groups use."""

    settings: ConsumerSettings
    assign: Assign

    def run(self, call: Callable[[], object]) -> object:
        """Runs `call` later, on the thread for long work."""
        ...

    def gather(self, call: Callable[[], object], count: Callable[[], int]) -> object:
        """Runs `call` on the thread for joins when `count` has stopped growing: members often join
        at the same time."""
        ...

    def topics(self) -> TopicViews: ...
    def timeouts(self, group_id: str) -> Timeouts: ...


class GroupAccess(Protocol):
    """The part of GroupCoordinator that consumer groups use. The caller holds `lock`, except for
    `check` and `new_id`."""

    lock: Any  # a threading.RLock
    timers: Timers
    journal: Any  # a journal.Journal, as in GroupCoordinator
    settings: Any
    counts: GroupCounts
    wall_ms: Callable[[], int]
    new_id: Callable[[], str]

    @property
    def groups(self) -> dict[str, Group]: ...

    def check(self, group_id: str) -> int: ...
    def group(self, group_id: str) -> Group: ...
    def is_other(self, group_id: str) -> bool: ...
    def adopt(self, group: ConsumerGroup, partition: int) -> None: ...
    def replace_by_classic(self, group: ConsumerGroup, classic: ClassicGroup) -> None: ...
    def rebalance(self, group: ClassicGroup) -> None: ...
    def append(self, partition: int, entries: Sequence[Entry], done: Done) -> None: ...


class ConsumerGroups(Protocol):
    """The part of ConsumerHeartbeats that its own parts use."""

    coordinator: GroupAccess
    dependencies: GroupDependencies
    settings: ConsumerSettings
    writes: GroupWrites[ConsumerGroup]

    def next_epoch(self, group: ConsumerGroup, bumps: int) -> tuple[int, int]: ...
