"""A share group: members, assignments, and the partitions that have a state. Plain state.

As records of __consumer_offsets (all of version 0; a null value deletes the key):

| type of key (int16)           | key           | value                                           |
|-------------------------------|---------------|-------------------------------------------------|
| 10 member metadata            | group, member | rack, client, subscribed topics                 |
| 11 group metadata             | group         | group epoch, hash of its topics' metadata       |
| 12 target assignment metadata | group         | the group epoch of the targets                  |
| 13 target assignment          | group, member | the member's target                             |
| 14 current assignment         | group, member | member epochs, the member's assignment          |
| 15 state partitions           | group         | partitions whose state is (being) initialized   |

Next: share_groups.py, which makes the changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.cext.codec.wire_struct import Struct
from barnabas.cext.record.records import Record
from barnabas.coordinator.groups.group_records import Entry, value_at
from barnabas.coordinator.groups.group_writes import WriteState
from barnabas.coordinator.groups.member_records import (
    Kind,
    Replay,
    entry,
    forget_target,
    member_entries,
    partition_rows,
    read_member_record,
    read_target_epoch,
    tombstones,
)
from barnabas.coordinator.groups.member_timers import Watch
from barnabas.coordinator.groups.target_assignment import NOTHING, Assignment
from barnabas.coordinator.share.waiting import Timer

EMPTY, STABLE = "Empty", "Stable"
ASSIGNED_STATE = 0
MEMBER = "ShareGroupMemberMetadata"
GROUP = "ShareGroupMetadata"
TARGET_EPOCH = "ShareGroupTargetAssignmentMetadata"
TARGET = "ShareGroupTargetAssignmentMember"
CURRENT = "ShareGroupCurrentMemberAssignment"
STATES = "ShareGroupStatePartitionMetadata"


@dataclass(slots=True, eq=False)
class ShareMember:
    """One member of a share group."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    epoch: int = 0
    previous_epoch: int = 0
    assignment: Assignment = field(default_factory=dict)


@dataclass(slots=True)
class StateTopic:
    """The partitions of one topic that have a state in the group."""

    name: str
    partitions: set[int] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class ShareGroup:
    """The state of one share group (Kafka: ShareGroup)."""

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    target_epoch: int = 0
    assigned_ms: int = 0  # when the target was computed, wall clock
    members: dict[str, ShareMember] = field(default_factory=dict)
    target: dict[str, Assignment] = field(default_factory=dict)
    states: dict[bytes, StateTopic] = field(default_factory=dict)  # by topic id, initialized
    initializing: bool = False
    must_assign: bool = False  # a partition was initialized that no target has
    assigns_later: Timer | None = None
    watches: dict[str, Watch] = field(default_factory=dict)  # member id: its timers
    dead: bool = False
    writes: WriteState = field(default_factory=WriteState)

    @property
    def state(self) -> str:
        return STABLE if self.members else EMPTY

    def subscribed(self) -> set[str]:
        """Returns the names of all topics that members subscribe to."""
        return {name for member in self.members.values() for name in member.topics}

    def has_state(self, topic_id: bytes, index: int) -> bool:
        """Returns whether the state of a partition is initialized."""
        topic = self.states.get(topic_id)
        return topic is not None and index in topic.partitions

    def with_state(self, assignment: Assignment) -> Assignment:
        """Returns the part of an assignment that is initialized, so that members can read it."""
        found = {}
        for topic_id, indexes in assignment.items():
            topic = self.states.get(topic_id)
            there = indexes & topic.partitions if topic is not None else frozenset()
            if there:
                found[topic_id] = frozenset(there)
        return found


# -- records ------------------------------------------------------------------------------------


def member_entry(group_id: str, member: ShareMember) -> Entry:
    """Returns the record of a member's metadata."""
    return entry(
        MEMBER,
        group_id,
        member.member_id,
        rackId=member.rack_id,
        clientId=member.client_id,
        clientHost=member.client_host,
        subscribedTopicNames=list(member.topics),
    )


def group_entry(group: ShareGroup) -> Entry:
    """Returns the record of the group's epoch and metadata hash."""
    return entry(GROUP, group.group_id, epoch=group.epoch, metadataHash=group.metadata_hash)


def target_entry(group_id: str, member_id: str, target: Assignment) -> Entry:
    """Returns the record of a member's target assignment."""
    rows = partition_rows(TARGET, "topicPartitions", target)
    return entry(TARGET, group_id, member_id, topicPartitions=rows)


def current_entry(group_id: str, member: ShareMember) -> Entry:
    """Returns the record of a member's current assignment."""
    return entry(
        CURRENT,
        group_id,
        member.member_id,
        memberEpoch=member.epoch,
        previousMemberEpoch=member.previous_epoch,
        state=ASSIGNED_STATE,
        assignedPartitions=partition_rows(CURRENT, "assignedPartitions", member.assignment),
    )


KIND = Kind(TARGET_EPOCH, (CURRENT, TARGET, MEMBER), member_entry, target_entry, current_entry)


def states_entry(group: ShareGroup, initializing: Mapping[bytes, StateTopic]) -> Entry:
    """Returns the record of the partitions whose state is initialized or being initialized."""

    def rows(path: str, topics: Mapping[bytes, StateTopic]) -> list[Struct]:
        row = value_at(STATES).struct(path)
        return [
            row(topicId=topic_id, topicName=topic.name, partitions=sorted(topic.partitions))
            for topic_id, topic in topics.items()
        ]

    return entry(
        STATES,
        group.group_id,
        initializingTopics=rows("initializingTopics", initializing),
        initializedTopics=rows("initializedTopics", group.states),
    )


def member_tombstones(group_id: str, member_id: str) -> list[Entry]:
    """Returns the tombstones of a member's three records."""
    return tombstones(KIND.of_members, group_id, member_id)


def group_tombstones(group: ShareGroup) -> list[Entry]:
    """Returns the tombstones of a group without members, and of members that the log may still
    have."""
    removed = group.writes.removed_members
    entries = [row for gone in removed for row in member_tombstones(group.group_id, gone)]
    return entries + tombstones((TARGET_EPOCH, STATES, GROUP), group.group_id)


def whole_group(group: ShareGroup) -> list[Entry]:
    """Returns all records of a group whose log lacks changes."""
    return [group_entry(group), *member_entries(KIND, group), states_entry(group, {})]


def replay(groups: dict[str, ShareGroup], record: Record, new: Callable[[str], object]) -> bool:
    """Applies a record. Returns whether it is a record of share groups. Calls `new` with the id of
    a group that occurs for the first time. Raises ValueError."""
    found = read_member_record(record, "share")
    if found is None:
        return False
    group = groups.get(found.group_id)
    if group is None:
        if found.value is None:
            return True
        group = groups[found.group_id] = ShareGroup(found.group_id)
        new(found.group_id)
    if found.ends_group:
        del groups[found.group_id]
    else:
        _replay(group, found)
    return True


def _read_group(group: ShareGroup, _part: str, value: Struct) -> None:
    group.epoch, group.metadata_hash = value.epoch, value.metadataHash


def _forget_target_epoch(group: ShareGroup, _part: str) -> None:
    group.target_epoch = group.assigned_ms = 0


def _read_states(group: ShareGroup, _part: str, value: Struct) -> None:
    rows = value.initializedTopics
    group.states = {row.topicId: StateTopic(row.topicName, set(row.partitions)) for row in rows}


def _member(group: ShareGroup, member_id: str) -> ShareMember:
    return group.members.setdefault(member_id, ShareMember(member_id))


def _read_member(group: ShareGroup, member_id: str, value: Struct) -> None:
    member = _member(group, member_id)
    member.rack_id, member.topics = value.rackId, tuple(value.subscribedTopicNames)
    member.client_id, member.client_host = value.clientId, value.clientHost


def _read_target(group: ShareGroup, member_id: str, value: Struct) -> None:
    group.target[member_id] = _assignment(value.topicPartitions)


def _read_current(group: ShareGroup, member_id: str, value: Struct) -> None:
    member = _member(group, member_id)
    member.epoch, member.previous_epoch = value.memberEpoch, value.previousMemberEpoch
    member.assignment = _assignment(value.assignedPartitions)


def _forget_current(group: ShareGroup, member_id: str) -> None:
    member = group.members.get(member_id)
    if member is not None:
        member.epoch, member.assignment = 0, NOTHING


def _assignment(rows: Iterable[Any]) -> Assignment:
    return {row.topicId: frozenset(row.partitions) for row in rows}


_replay: Replay[ShareGroup] = Replay(
    values={
        GROUP: _read_group,
        TARGET_EPOCH: read_target_epoch,
        MEMBER: _read_member,
        TARGET: _read_target,
        CURRENT: _read_current,
        STATES: _read_states,
    },
    tombstones={
        MEMBER: lambda group, member_id: group.members.pop(member_id, None),
        TARGET: forget_target,
        CURRENT: _forget_current,
        TARGET_EPOCH: _forget_target_epoch,
        STATES: lambda group, _part: group.states.clear(),
    },
)
