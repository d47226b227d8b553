"""Groups for administrators: list, describe, delete, and delete committed offsets.

Deletions are tombstones in the journal; a group is deleted when they are durable.
Next: coordinator.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, KeysView, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from barnabas.coordinator.groups.classic_group import DEAD, EMPTY, STABLE
from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.coordinator.groups.group_records import Entry, offset_key
from barnabas.coordinator.groups.offsets import TopicPartition
from barnabas.errors import (
    CoordinatorLoadInProgress,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    InvalidGroupId,
    KafkaError,
    NonEmptyGroup,
)
from barnabas.metadata.cluster_state import ClusterState

if TYPE_CHECKING:
    from barnabas.coordinator.groups.consumer_group import Group
    from barnabas.coordinator.groups.consumer_member import ConsumerMember
    from barnabas.coordinator.groups.target_assignment import Assignment
    from barnabas.coordinator.groups.topic_views import TopicViews

log = logging.getLogger("barnabas.groups")

EXPIRED_PER_ROUND_MAX = 10_000  # tombstones of one group that are written at a time
Answer = Callable[[KafkaError | None], object]


class GroupListing(NamedTuple):
    """One group in a ListGroups response."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


class MemberDescription(NamedTuple):
    """Describes a member of a classic group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(NamedTuple):
    """Describes a classic group."""

    state: str
    protocol_type: str
    protocol_name: str
    members: Sequence[MemberDescription]


class ConsumerGroupDescription(NamedTuple):
    """Describes one group of the consumer protocol (KIP-848)."""

    state: str
    epoch: int
    target_epoch: int
    assignor: str
    members: Sequence[ConsumerMember]
    targets: Sequence[Assignment]  # of each member
    topics: TopicViews


class GroupAdministration:
    """Lists, describes and deletes the groups of one coordinator (Kafka: GroupMetadataManager)."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator
        self._topics: KeysView[str] = {}.keys()  # as of the last state that was applied

    def list_groups(self, states: Collection[str], types: Collection[str]) -> list[GroupListing]:
        """Returns the groups in these states and of these types; the case of letters does not
        matter.

        An empty filter matches all groups. Raises CoordinatorLoadInProgress while a partition of
        __consumer_offsets loads."""
        wanted_states = {state.lower().replace("_", "") for state in states}  # not_ready: Kafka's
        wanted_types = {kind.lower() for kind in types}
        coordinator = self._coordinator
        if not all(coordinator.journal.led_partitions().values()):
            raise CoordinatorLoadInProgress()
        with coordinator.lock:
            rows = [
                GroupListing(group_id, group.protocol_type or "", group.state, group.group_type)
                for group_id, group in coordinator.groups.items()
            ]
            for other in coordinator.others:
                rows += [GroupListing(*row) for row in other.listings()]
        return [
            row
            for row in rows
            if (not wanted_states or row.state.lower() in wanted_states)
            and (not wanted_types or row.group_type in wanted_types)
        ]

    def describe(self, group_id: str) -> GroupDescription:
        """Describes a group of the classic protocol.

        Raises GroupIdNotFound, NotCoordinator, CoordinatorLoadInProgress."""
        coordinator = self._coordinator
        with coordinator.lock:
            coordinator.check(group_id)
            group = coordinator.group(group_id)
            if group.group_type != "classic":
                raise GroupIdNotFound(f"Group {group_id} is not a classic group.")
            return GroupDescription(
                group.state,
                group.protocol_type or "",
                (group.protocol_name or "") if group.state == STABLE else "",
                [
                    MemberDescription(
                        member.member_id,
                        member.instance_id,
                        member.client_id,
                        member.client_host,
                        member.metadata(group.protocol_name) if group.state == STABLE else b"",
                        member.assignment if group.state == STABLE else b"",
                    )
                    for member in group.members.values()
                ],
            )

    def describe_consumers(self, group_id: str) -> ConsumerGroupDescription:
        """Describes a group of the consumer protocol.

        Raises GroupIdNotFound, NotCoordinator, CoordinatorLoadInProgress."""
        coordinator = self._coordinator
        with coordinator.lock:
            coordinator.check(group_id)
            consumers = coordinator.consumers
            group = consumers.group(group_id)
            members = list(group.members.values())
            return ConsumerGroupDescription(
                group.state,
                group.epoch,
                group.target_epoch,
                group.assignor(consumers.settings.assignors[0]),
                members,
                [group.target_of(member.member_id) for member in members],
                consumers.dependencies.topics(),
            )

    def delete_group(self, group_id: str, answer: Answer) -> None:
        """Deletes a group; calls `answer` when the deletion is durable, or with the error."""
        coordinator = self._coordinator
        try:
            with coordinator.lock:
                partition = coordinator.check(group_id)
                for other in coordinator.others:
                    if other.holds(group_id):
                        other.delete_group(group_id, answer)
                        return
                group = coordinator.group(group_id)
                if group.state == DEAD:
                    raise GroupIdNotFound()
                if group.state != EMPTY:
                    raise NonEmptyGroup()
                with coordinator.commits_held(group_id):
                    self._delete(group_id, group, partition, answer)
        except KafkaError as error:
            answer(error)

    def _delete(self, group_id: str, group: Group, partition: int, answer: Answer) -> None:
        coordinator = self._coordinator
        rows = _all(coordinator, group_id)
        entries = self._tombstones(group_id, rows) + coordinator.tombstones_of(group)

        def done(error: KafkaError | None) -> None:
            if error is None and coordinator.groups.get(group_id) is group:
                coordinator.offsets.forget_all(group_id, rows)
                coordinator.counts.deleted += len(rows)
                # A commit that was being written came after the deletion, and stays.
                if not coordinator.offsets.of(group_id):
                    if group.state == EMPTY:
                        coordinator.drop_group(group_id, partition)
                    else:  # a member joined while it was being forgotten
                        coordinator.offsets.forget_group(group_id)
            answer(error)

        coordinator.append_deletion(group, partition, entries, done)

    def delete_offsets(
        self,
        group_id: str,
        wanted: Sequence[TopicPartition],
        done: Callable[[Sequence[KafkaError | None]], object],
    ) -> None:
        """Deletes committed offsets (OffsetDelete). Calls `done` with the outcome for each
        partition of `wanted`, in its order. Raises the error of the whole request."""
        coordinator = self._coordinator
        if not group_id:
            raise InvalidGroupId()
        with coordinator.lock:
            partition = coordinator.check(group_id)
            group = coordinator.group(group_id)
            if group.state == DEAD:
                raise GroupIdNotFound()
            if group.state != EMPTY and not _knows_topics(group):
                raise NonEmptyGroup()
            with coordinator.commits_held(group_id):
                self._delete_offsets(group_id, group, partition, wanted, done)

    def _delete_offsets(
        self,
        group_id: str,
        group: Group,
        partition: int,
        wanted: Sequence[TopicPartition],
        done: Callable[[Sequence[KafkaError | None]], object],
    ) -> None:
        coordinator = self._coordinator
        outcomes: list[KafkaError | None] = []
        forgotten: list[TopicPartition] = []
        for topic, index in wanted:
            if group.state != EMPTY and group.is_subscribed_to(topic):
                outcomes.append(GroupSubscribedToTopic())
                continue
            outcomes.append(None)
            if coordinator.offsets.get(group_id, topic, index) is not None:
                forgotten.append((topic, index))
        if not forgotten:
            done(outcomes)
            return

        def finished(error: KafkaError | None) -> None:
            if error is None:
                coordinator.offsets.forget_all(group_id, forgotten)
                coordinator.counts.deleted += len(forgotten)
            done(outcomes if error is None else [row or error for row in outcomes])

        entries = self._tombstones(group_id, forgotten)
        coordinator.append_tombstones(group_id, partition, entries, finished)

    def expire(self) -> int:
        """Deletes expired offsets of all groups, and empty groups without offsets. Returns the
        number of offsets whose deletion is in progress."""
        coordinator = self._coordinator
        with coordinator.lock:
            names = list(coordinator.groups)
        return sum(self._expire_group(name) for name in names)

    def _expire_group(self, group_id: str) -> int:
        coordinator = self._coordinator
        with coordinator.lock:
            group = coordinator.groups.get(group_id)
            partition = coordinator.journal.partition_of(group_id)
            if group is None or not coordinator.journal.led_partitions().get(partition):
                return 0
            gone = self._expired(group_id, group)
            with coordinator.commits_held(group_id):
                if gone:  # check again: a commit that has arrived since is not old
                    gone = self._expired(group_id, group)
                    if coordinator.is_committing(group_id):
                        gone = []  # else tombstones would follow answered commits; the next round
                self._forget(group_id, group, partition, gone)
            return len(gone)

    def _expired(self, group_id: str, group: Group) -> list[TopicPartition]:
        coordinator = self._coordinator
        found = coordinator.offsets.expired(
            group_id, group, coordinator.wall_ms(), coordinator.settings.retention_ms
        )
        return list(islice(found, EXPIRED_PER_ROUND_MAX))

    def _forget(
        self, group_id: str, group: Group, partition: int, gone: list[TopicPartition]
    ) -> None:
        coordinator = self._coordinator
        rows = coordinator.offsets.of(group_id)
        left = sum(len(row) for row in rows.values()) - len(gone)
        whole = left == 0 and _is_deserted(coordinator, group)
        entries = self._tombstones(group_id, gone)
        if whole:
            entries += coordinator.tombstones_of(group)
        if not entries:
            return

        def done(error: KafkaError | None) -> None:
            if error is not None or coordinator.groups.get(group_id) is not group:
                return
            coordinator.offsets.forget_all(group_id, gone)
            coordinator.counts.expired += len(gone)
            if whole and not coordinator.offsets.of(group_id) and _is_deserted(coordinator, group):
                coordinator.drop_group(group_id, partition)

        if whole:
            coordinator.append_deletion(group, partition, entries, done)
        else:
            coordinator.append_tombstones(group_id, partition, entries, done)

    def apply(self, state: ClusterState) -> None:
        """Applies a new state of the cluster. The node calls this with each state."""
        before, self._topics = self._topics, state.topics.keys()
        gone = before - self._topics
        if gone:
            self.topics_deleted(gone)

    def topics_deleted(self, names: Collection[str]) -> None:
        """Deletes the committed offsets of deleted topics."""
        coordinator = self._coordinator
        with coordinator.lock:
            for group_id in list(coordinator.groups):
                rows = coordinator.offsets.of(group_id)
                if not any(name in rows for name in names):
                    continue
                with coordinator.commits_held(group_id):
                    rows = coordinator.offsets.of(group_id)
                    gone = [(name, index) for name in names for index in rows.get(name, ())]
                    if gone:
                        partition = coordinator.journal.partition_of(group_id)
                        self._forget_offsets(group_id, partition, gone)

    def _forget_offsets(self, group_id: str, partition: int, gone: list[TopicPartition]) -> None:
        coordinator = self._coordinator

        def done(error: KafkaError | None) -> None:
            if error is None:
                coordinator.offsets.forget_all(group_id, gone)
                coordinator.counts.deleted += len(gone)

        coordinator.append_tombstones(group_id, partition, self._tombstones(group_id, gone), done)

    def _tombstones(self, group_id: str, rows: Iterable[TopicPartition]) -> list[Entry]:
        return [(offset_key(group_id, topic, index), None) for topic, index in rows]


def _knows_topics(group: Group) -> bool:
    """Returns whether the coordinator knows which topics the members read."""
    return group.group_type != "classic" or group.protocol_type == "consumer"


def _is_deserted(coordinator: GroupCoordinator, group: Group) -> bool:
    """Returns whether the group has no member, no pending member and no open transaction with
    offsets."""
    return (
        group.state == EMPTY
        and not (group.group_type == "classic" and group.pending)
        and not coordinator.offsets.has_pending(group.group_id)
    )


def _all(coordinator: GroupCoordinator, group_id: str) -> list[TopicPartition]:
    rows = coordinator.offsets.of(group_id)
    return [(topic, index) for topic, partitions in rows.items() for index in partitions]
