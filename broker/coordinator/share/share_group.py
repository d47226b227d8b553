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
from functools import cache
from typing import Any

from barnabas.cext.record.records import Record
from barnabas.coordinator.groups.group_records import Entry
from barnabas.coordinator.groups.group_writes import Done
from barnabas.coordinator.groups.target_assignment import NOTHING, Assignment
from barnabas.coordinator.share.waiting import Timer
from barnabas.wire.internal import CONSUMER_OFFSETS, RecordType, read_key, record_type

EMPTY, STABLE = "Empty", "Stable"
ASSIGNED_STATE = 0
NAMES = (
    "ShareGroupMemberMetadata",
    "ShareGroupMetadata",
    "ShareGroupTargetAssignmentMetadata",
    "ShareGroupTargetAssignmentMember",
    "ShareGroupCurrentMemberAssignment",
    "ShareGroupStatePartitionMetadata",
)


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
    deadline_ms: int = 0
    timer: Timer | None = None


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
    assignment_epoch: int = 0
    assigned_ms: int = 0  # when the targets were computed, wall clock
    members: dict[str, ShareMember] = field(default_factory=dict)
    targets: dict[str, Assignment] = field(default_factory=dict)
    states: dict[bytes, StateTopic] = field(default_factory=dict)  # by topic id, initialized
    initializing: bool = False
    must_assign: bool = False  # a partition was initialized that no target has
    assigns_later: Timer | None = None
    # The fields of its writes (groups/group_writes.py).
    dead: bool = False
    in_flight: list[Any] = field(default_factory=list)
    fresh: bool = False
    behind: bool = False
    catches_up_later: Timer | None = None
    deletions: int = 0
    held: list[Done] = field(default_factory=list)
    unwritten: set[str] = field(default_factory=set)  # removed members that the log may still have

    @property
    def state(self) -> str:
        return STABLE if self.members else EMPTY

    def all_written(self) -> None:
        self.unwritten.clear()

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


@cache
def _type(name: str) -> RecordType:
    return record_type(CONSUMER_OFFSETS, name)


def _entry(name: str, value: Mapping[str, object] | None, **key: str) -> Entry:
    kind = _type(name)
    encoded = None if value is None else kind.encode_value(kind.value.cls(**value), 0)
    return kind.encode_key(kind.key.cls(**key)), encoded


def member_entry(group_id: str, member: ShareMember) -> Entry:
    """Returns the record of a member's metadata."""
    value = {
        "rackId": member.rack_id,
        "clientId": member.client_id,
        "clientHost": member.client_host,
        "subscribedTopicNames": list(member.topics),
    }
    return _entry(NAMES[0], value, groupId=group_id, memberId=member.member_id)


def group_entry(group: ShareGroup) -> Entry:
    """Returns the record of the group's epoch and metadata hash."""
    value = {"epoch": group.epoch, "metadataHash": group.metadata_hash}
    return _entry(NAMES[1], value, groupId=group.group_id)


def targets_entry(group: ShareGroup) -> Entry:
    """Returns the record of the target assignments' epoch."""
    value = {
        "assignmentEpoch": group.assignment_epoch,
        "assignmentTimestamp": group.assigned_ms,
    }
    return _entry(NAMES[2], value, groupId=group.group_id)


def target_entry(group_id: str, member_id: str, target: Assignment) -> Entry:
    """Returns the record of a member's target assignment."""
    value = {"topicPartitions": _rows(NAMES[3], "topicPartitions", target)}
    return _entry(NAMES[3], value, groupId=group_id, memberId=member_id)


def current_entry(group_id: str, member: ShareMember) -> Entry:
    """Returns the record of a member's current assignment."""
    value = {
        "memberEpoch": member.epoch,
        "previousMemberEpoch": member.previous_epoch,
        "state": ASSIGNED_STATE,
        "assignedPartitions": _rows(NAMES[4], "assignedPartitions", member.assignment),
    }
    return _entry(NAMES[4], value, groupId=group_id, memberId=member.member_id)


def states_entry(group: ShareGroup, initializing: Mapping[bytes, StateTopic]) -> Entry:
    """Returns the record of the partitions whose state is initialized or being initialized."""

    def rows(path: str, topics: Mapping[bytes, StateTopic]) -> list[object]:
        row = _type(NAMES[5]).value.struct(path)
        return [
            row(topicId=topic_id, topicName=topic.name, partitions=sorted(topic.partitions))
            for topic_id, topic in topics.items()
        ]

    value = {
        "initializingTopics": rows("initializingTopics", initializing),
        "initializedTopics": rows("initializedTopics", group.states),
    }
    return _entry(NAMES[5], value, groupId=group.group_id)


def member_tombstones(group_id: str, member_id: str) -> list[Entry]:
    """Returns the tombstones of a member's three records."""
    key = {"groupId": group_id, "memberId": member_id}
    return [_entry(NAMES[at], None, **key) for at in (4, 3, 0)]


def group_tombstones(group: ShareGroup) -> list[Entry]:
    """Returns the tombstones of a group without members, and of members that the log may still
    have."""
    entries = [row for gone in group.unwritten for row in member_tombstones(group.group_id, gone)]
    return entries + [_entry(NAMES[at], None, groupId=group.group_id) for at in (2, 5, 1)]


def whole_group(group: ShareGroup) -> list[Entry]:
    """Returns all records of a group whose log lacks changes."""
    group_id = group.group_id
    entries = [group_entry(group)]
    for member_id in group.unwritten - group.members.keys():
        entries += member_tombstones(group_id, member_id)
    entries += [member_entry(group_id, member) for member in group.members.values()]
    entries += [target_entry(group_id, name, target) for name, target in group.targets.items()]
    entries.append(targets_entry(group))
    entries += [current_entry(group_id, member) for member in group.members.values()]
    entries.append(states_entry(group, {}))
    return entries


def _rows(name: str, path: str, assignment: Assignment) -> list[object]:
    row = _type(name).value.struct(path)
    return [row(topicId=key, partitions=sorted(rows)) for key, rows in assignment.items()]


def _assignment(rows: Iterable[Any]) -> Assignment:
    return {row.topicId: frozenset(row.partitions) for row in rows}


def replay(groups: dict[str, ShareGroup], record: Record, new: Callable[[str], object]) -> bool:
    """Applies a record. Returns whether it is a record of share groups. Calls `new` with the id of
    a group that occurs for the first time. Raises ValueError."""
    if record.key is None or len(record.key) < 2:
        raise ValueError("a record of __consumer_offsets has a key of 2 bytes or more")
    number = record.key[0] << 8 | record.key[1]
    if not 10 <= number <= 15:
        return False
    kind, key = read_key(CONSUMER_OFFSETS, record.key)
    value = None if record.value is None else kind.read_value(record.value)[1]
    group = groups.get(key.groupId)
    if group is None:
        if value is None:
            return True
        group = groups[key.groupId] = ShareGroup(key.groupId)
        new(key.groupId)
    if kind.name == NAMES[1] and value is None:
        del groups[key.groupId]
    elif kind.name in (NAMES[1], NAMES[2], NAMES[5]):
        _replay_group(group, kind.name, value)
    else:
        _replay_member(group, kind.name, key.memberId, value)
    return True


def _replay_group(group: ShareGroup, name: str, value: Any) -> None:
    if name == NAMES[1]:
        group.epoch, group.metadata_hash = value.epoch, value.metadataHash
    elif name == NAMES[2]:
        group.assignment_epoch = 0 if value is None else value.assignmentEpoch
        group.assigned_ms = 0 if value is None else value.assignmentTimestamp
    else:
        rows = [] if value is None else value.initializedTopics
        group.states = {row.topicId: StateTopic(row.topicName, set(row.partitions)) for row in rows}


def _replay_member(group: ShareGroup, name: str, member_id: str, value: Any) -> None:
    if name == NAMES[3]:
        group.targets.pop(member_id, None)
        if value is not None:
            group.targets[member_id] = _assignment(value.topicPartitions)
        return
    if name == NAMES[0] and value is None:
        group.members.pop(member_id, None)
        return
    member = group.members.get(member_id)
    if value is None:
        if member is not None:
            member.epoch, member.assignment = 0, NOTHING
        return
    if member is None:
        member = group.members[member_id] = ShareMember(member_id)
    if name == NAMES[0]:
        member.rack_id = value.rackId
        member.client_id = value.clientId
        member.client_host = value.clientHost
        member.topics = tuple(value.subscribedTopicNames)
    else:
        member.epoch = value.memberEpoch
        member.previous_epoch = value.previousMemberEpoch
        member.assignment = _assignment(value.assignedPartitions)
