"""The share groups of one coordinator: heartbeats, assignment, sessions of members, deletion.

They belong to the group coordinator, and use its lock and its journal. A member's first heartbeat,
or one with other topics, first initializes the state of the topics' partitions (persister.py), then
computes a new assignment; the response is sent when all of that is durable. A heartbeat that
changes nothing is answered at once, or with the writes before it, and needs no timer. A change that
cannot be written is written again with the whole group (groups/group_writes.py). A member gets its
partitions as soon as they are assigned: no other member has to revoke them, because a partition may
have several readers.

Limit: `group.share.max.size` members in a group. Next: share_group.py, share_partitions.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

from barnabas.cext.record.records import Record
from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.coordinator.groups.group_records import Entry
from barnabas.coordinator.groups.group_writes import GroupWrites, answering
from barnabas.coordinator.groups.member_records import take_target
from barnabas.coordinator.groups.member_timers import MemberTimers
from barnabas.coordinator.groups.membership import fenced, is_fenced, member_of
from barnabas.coordinator.groups.target_assignment import (
    NOTHING,
    Assign,
    Assignment,
    Subscriber,
    new_target,
    wait_ms,
)
from barnabas.coordinator.groups.topic_views import LastViews
from barnabas.coordinator.journal import Done
from barnabas.coordinator.share import share_group as records
from barnabas.coordinator.share.persister import Persister
from barnabas.coordinator.share.sessions import ShareSessions
from barnabas.coordinator.share.share_group import ShareGroup, ShareMember, StateTopic
from barnabas.coordinator.share.share_partitions import SharePartitions
from barnabas.coordinator.share.share_settings import ShareSettings
from barnabas.coordinator.share.share_state import (
    UNINITIALIZED_OFFSET,
    ShareKey,
    together,
)
from barnabas.coordinator.share.waiting import Timers
from barnabas.coordinator.timers import after_locked, cancel
from barnabas.errors import (
    GroupIdNotFound,
    GroupMaxSizeReached,
    KafkaError,
    NonEmptyGroup,
    UnknownServerError,
)
from barnabas.metadata.cluster_state import ClusterState

log = logging.getLogger("barnabas.share")

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
PROTOCOL = GROUP_TYPE = "share"


class Heartbeat(NamedTuple):
    """One ShareGroupHeartbeat request."""

    member_id: str
    epoch: int
    rack_id: str | None
    topics: Sequence[str] | None  # None: unchanged
    client_id: str
    client_host: str


class HeartbeatResult(NamedTuple):
    """The result of a heartbeat. `assignment` is None when it is unchanged."""

    error: KafkaError | None
    member_id: str = ""
    epoch: int = 0
    heartbeat_ms: int = 0
    assignment: Assignment | None = None


Answer = Callable[[HeartbeatResult], object]


class ShareGroups:
    """All share groups of one coordinator."""

    def __init__(
        self,
        *,
        coordinator: GroupCoordinator,
        persister: Persister,
        partitions: SharePartitions,
        sessions: ShareSessions,
        timers: Timers,
        cluster: Callable[[], ClusterState],
        settings: Callable[[str], ShareSettings],
        members_max: Callable[[], int],
        assignor: Callable[[], str],
        assign: Assign,
        rebalanced: Callable[[], object],
    ) -> None:
        """`rebalanced` is called with each new group epoch."""
        self._coordinator = coordinator
        self._persister = persister
        self._partitions = partitions
        self._sessions = sessions
        self._timers = timers
        self.topics = LastViews(cluster)
        self._settings = settings
        self._members_max = members_max
        self.assignor = assignor
        self._assign = assign
        self._rebalanced = rebalanced
        self.groups: dict[str, ShareGroup] = {}
        self._after = partial(after_locked, timers, coordinator.lock)
        self._members: MemberTimers[ShareGroup] = MemberTimers(
            timers.now_ms, self._after, self._expire
        )
        partition_of = coordinator.journal.partition_of
        self._writes = GroupWrites(
            coordinator.append, partition_of, self._after, records.whole_group
        )
        self._by_partition: dict[int, set[str]] = {}

    @property
    def lock(self) -> AbstractContextManager[Any]:
        return self._coordinator.lock

    # -- heartbeats -----------------------------------------------------------------------------

    def heartbeat(self, group_id: str, asked: Heartbeat, answer: Answer) -> None:
        """Handles ShareGroupHeartbeat. Calls `answer` at once, or when the changes are durable."""
        try:
            with self._coordinator.lock:
                partition = self._coordinator.check(group_id)
                if asked.epoch == LEAVE_EPOCH:
                    self._leave(group_id, partition, asked, answer)
                else:
                    self._beat(group_id, partition, asked, answer, is_again=False)
        except KafkaError as error:
            answer(HeartbeatResult(error, asked.member_id))

    def _beat(
        self, group_id: str, partition: int, asked: Heartbeat, answer: Answer, is_again: bool
    ) -> None:
        group = self._group_for(group_id, partition, create=asked.epoch == JOIN_EPOCH)
        before = self._member(group, asked)
        names = set(asked.topics) if asked.topics is not None else set()
        missing = self._without_state(group, group.subscribed() | names)
        if missing and not is_again and not group.initializing:
            self._initialize(group, partition, missing, asked, answer)
            return
        entries: list[Entry] = []
        member = before or ShareMember(asked.member_id)
        if self._update(member, asked, is_new=before is None):
            entries.append(records.member_entry(group_id, member))
        group.members[member.member_id] = member
        found_hash = self.topics().hash_of(group.subscribed())
        if entries or found_hash != group.metadata_hash or group.must_assign:
            group.epoch += 1
            group.metadata_hash = found_hash
            group.must_assign = False
            self._rebalanced()
            entries.append(records.group_entry(group))
        if group.epoch > group.target_epoch and not self._assigns_later(group):
            entries += self._reassign(group)
        result = self._result(group, member, asked, entries)
        session_ms = self._settings(group_id).session_ms
        self._members.extend_session(group, member.member_id, session_ms)
        done = answering(answer, result, lambda error: HeartbeatResult(error, asked.member_id))
        self._writes.write(group, entries, done)

    def _group_for(self, group_id: str, partition: int, create: bool) -> ShareGroup:
        found = self.groups.get(group_id)
        if found is not None:
            return found
        with self._coordinator.commits_held(group_id):  # a commit would create a group of this id
            if group_id in self._coordinator.groups:
                raise GroupIdNotFound(f"Group {group_id} is not a share group.")
            if not create:
                raise GroupIdNotFound(f"Share group {group_id} not found.")
            found = self.groups[group_id] = ShareGroup(group_id)
            self._coordinator.table.put(group_id, partition, kind=GROUP_TYPE)
        self._by_partition.setdefault(partition, set()).add(group_id)
        return found

    def _member(self, group: ShareGroup, asked: Heartbeat) -> ShareMember | None:
        """Returns the member of a heartbeat, or None for one that joins. Raises the error of the
        response."""
        member = group.members.get(asked.member_id)
        if asked.epoch == JOIN_EPOCH:
            if member is None and len(group.members) >= self._members_max():
                raise GroupMaxSizeReached(
                    "The share group has reached its maximum capacity of"
                    f" {self._members_max()} members."
                )
            return member
        member = member_of(group, asked.member_id)
        if is_fenced(member, asked.epoch, lambda: True):
            raise fenced("share", member, asked.epoch)
        return member

    def _update(self, member: ShareMember, asked: Heartbeat, is_new: bool) -> bool:
        """Updates a member. Returns whether its metadata must be written."""
        metadata = (
            asked.rack_id if asked.rack_id is not None else member.rack_id,
            asked.client_id,
            asked.client_host,
            member.topics if asked.topics is None else tuple(sorted(set(asked.topics))),
        )
        was = (member.rack_id, member.client_id, member.client_host, member.topics)
        member.rack_id, member.client_id, member.client_host, member.topics = metadata
        return is_new or metadata != was

    def _reassign(self, group: ShareGroup) -> list[Entry]:
        """Computes the target assignment of the group's epoch."""
        views = self.topics()
        subscribers = {
            member.member_id: Subscriber(None, member.rack_id, views.ids_of(member.topics))
            for member in group.members.values()
        }
        target = new_target(
            group.group_id,
            subscribers,
            views,
            group.target,
            self.assignor(),
            self._assign,
            exclusive=False,
        )
        now_ms = self._coordinator.wall_ms()
        return take_target(records.KIND, group, target, group.epoch, now_ms)

    def _assigns_later(self, group: ShareGroup) -> bool:
        """Returns whether the next assignment must wait; then a timer makes it. Members that join
        in this time share an assignment."""
        if group.target_epoch == 0:
            return False
        interval_ms = self._settings(group.group_id).assignment_ms
        left_ms = wait_ms(group.assigned_ms, interval_ms, self._coordinator.wall_ms())
        if left_ms == 0:
            return False
        if group.assigns_later is None:
            group.assigns_later = self._after(left_ms, lambda: self._assign_due(group))
        return True

    def _assign_due(self, group: ShareGroup) -> None:
        """Makes a new assignment. Members get it with their next heartbeats."""
        group.assigns_later = None
        if self.groups.get(group.group_id) is not group or not group.members:
            return
        if group.epoch <= group.target_epoch:
            return
        try:
            entries = self._reassign(group)
        except UnknownServerError:
            return  # it was logged; the next heartbeat tries again and answers
        self._writes.write(group, entries, _logged(group.group_id))

    def _result(
        self, group: ShareGroup, member: ShareMember, asked: Heartbeat, entries: list[Entry]
    ) -> HeartbeatResult:
        """Assigns the initialized part of its target to the member. Returns the response."""
        target = group.with_state(group.target.get(member.member_id, NOTHING))
        sends_all = asked.epoch == JOIN_EPOCH or asked.epoch != member.epoch
        if member.epoch != group.target_epoch or target != member.assignment:
            sends_all = sends_all or target != member.assignment
            member.previous_epoch = member.epoch
            member.epoch = group.target_epoch
            member.assignment = target
            entries.append(records.current_entry(group.group_id, member))
        return HeartbeatResult(
            None,
            member.member_id,
            member.epoch,
            self._settings(group.group_id).heartbeat_ms,
            target if sends_all else None,
        )

    # -- states of partitions -------------------------------------------------------------------

    def _without_state(self, group: ShareGroup, names: set[str]) -> dict[bytes, StateTopic]:
        found: dict[bytes, StateTopic] = {}
        views = self.topics()
        for name in names:
            view = views.named(name)
            if view is None:
                continue
            there = group.states.get(view.topic_id)
            lacking = set(range(view.partition_count)) - (there.partitions if there else set())
            if lacking:
                found[view.topic_id] = StateTopic(name, lacking)
        return found

    def _initialize(
        self,
        group: ShareGroup,
        partition: int,
        missing: Mapping[bytes, StateTopic],
        asked: Heartbeat,
        answer: Answer,
    ) -> None:
        """Initializes states, then continues the heartbeat. Other members' heartbeats do not
        wait."""
        group.initializing = True
        group_id = group.group_id
        keys = [
            ShareKey(group_id, topic_id, index)
            for topic_id, topic in missing.items()
            for index in topic.partitions
        ]

        def made(error: KafkaError | None) -> None:
            with self._coordinator.lock:
                group.initializing = False
                if error is not None:
                    log.warning("cannot initialize states of share group %s: %s", group_id, error)
                elif self.groups.get(group_id) is group:
                    self._add_states(group, missing)
                    entry = records.states_entry(group, {})
                    self._writes.write(group, [entry], _logged(group_id))
                try:
                    self._coordinator.check(group_id)
                    self._beat(group_id, partition, asked, answer, is_again=True)
                except KafkaError as refused:
                    answer(HeartbeatResult(refused, asked.member_id))

        def begun(error: KafkaError | None) -> None:
            if error is not None:
                made(error)
                return
            done = together(len(keys), made)
            for key in keys:
                try:
                    self._persister.initialize(key, group.epoch, UNINITIALIZED_OFFSET, done)
                except KafkaError as refused:
                    done(refused)

        entries = [records.group_entry(group), records.states_entry(group, missing)]
        self._writes.write(group, entries, begun)

    def _add_states(self, group: ShareGroup, made: Mapping[bytes, StateTopic]) -> None:
        for topic_id, topic in made.items():
            known = group.states.setdefault(topic_id, StateTopic(topic.name))
            known.partitions |= topic.partitions
        group.must_assign = True

    # -- leaving --------------------------------------------------------------------------------

    def _leave(self, group_id: str, partition: int, asked: Heartbeat, answer: Answer) -> None:
        group = self._group_for(group_id, partition, create=False)
        member = member_of(group, asked.member_id)

        def done(error: KafkaError | None) -> None:
            answer(HeartbeatResult(error, asked.member_id, LEAVE_EPOCH))

        self._remove(group, member, done)

    def _remove(self, group: ShareGroup, member: ShareMember, done: Done) -> None:
        """Removes a member, and releases the records that it had acquired."""
        del group.members[member.member_id]
        group.writes.removed_members.add(member.member_id)
        group.target.pop(member.member_id, None)
        self._members.forget(group, member.member_id)
        group.epoch += 1
        self._rebalanced()
        group.metadata_hash = self.topics().hash_of(group.subscribed())
        entries = records.member_tombstones(group.group_id, member.member_id)
        entries.append(records.group_entry(group))
        self._writes.write(group, entries, done)
        self._sessions.end(group.group_id, member.member_id)
        self._partitions.release(group.group_id, member.member_id)

    def _expire(self, group: ShareGroup, member: ShareMember, _timeout: str) -> None:
        """Removes a member whose session has ended."""
        log.info(
            "removed member %s of share group %s: no heartbeat within its session timeout",
            member.member_id,
            group.group_id,
        )
        self._remove(group, member, _logged(group.group_id))

    # -- administration -------------------------------------------------------------------------

    def holds(self, group_id: str) -> bool:
        return group_id in self.groups

    def group(self, group_id: str) -> ShareGroup:
        """Returns the group. The caller holds the lock. Raises GroupIdNotFound, NotCoordinator,
        CoordinatorLoadInProgress."""
        self._coordinator.check(group_id)
        found = self.groups.get(group_id)
        if found is None:
            if group_id in self._coordinator.groups:
                raise GroupIdNotFound(f"Group {group_id} is not a share group.")
            raise GroupIdNotFound(f"Group {group_id} not found.")
        return found

    def group_or_none(self, group_id: str) -> ShareGroup | None:
        """Returns the group as `group` does, or None for a group that does not exist."""
        self._coordinator.check(group_id)
        return self.groups.get(group_id)

    def empty_group(self, group_id: str, create: bool = False) -> ShareGroup:
        """Returns the group as `group` does. Raises NonEmptyGroup for a group with members."""
        partition = self._coordinator.check(group_id)
        found = self._group_for(group_id, partition, create)
        if found.members:
            raise NonEmptyGroup(f"The group {group_id} is not empty.")
        return found

    def listings(self) -> list[tuple[str, str, str, str]]:
        """Returns group, protocol type, state and type of each group. The caller holds the lock."""
        return [(row.group_id, PROTOCOL, row.state, GROUP_TYPE) for row in self.groups.values()]

    def keys(self, group: ShareGroup) -> list[ShareKey]:
        """Returns the keys of the partitions that have a state."""
        return [
            ShareKey(group.group_id, topic_id, index)
            for topic_id, topic in group.states.items()
            for index in sorted(topic.partitions)
        ]

    def delete_group(self, group_id: str, answer: Done) -> None:
        """Deletes the state of the group's partitions, then the group. The caller holds the lock.
        Raises the KafkaError of a refusal."""
        group = self.empty_group(group_id)
        partition = self._coordinator.check(group_id)
        keys = self.keys(group)

        def forgotten(error: KafkaError | None) -> None:
            with self._coordinator.lock:
                if error is None and group.members:  # one has joined since
                    group.states.clear()  # its next heartbeat initializes them again
                    error = NonEmptyGroup()
                if error is not None:
                    answer(error)
                    return
                tombstones = records.group_tombstones(group)
                self._coordinator.append_deletion(group, partition, tombstones, gone)

        def gone(error: KafkaError | None) -> None:
            if error is None and self.groups.get(group_id) is group and not group.members:
                self._drop(group_id, partition)
                self._partitions.drop(keys)
            answer(error)

        self._sessions.end_group(group_id)
        self._persister.delete(keys, forgotten)

    def topics_deleted(self, is_there: Callable[[bytes], bool]) -> None:
        """Forgets deleted topics. The share coordinators delete their states."""
        with self._coordinator.lock:
            for group in list(self.groups.values()):
                gone = [topic_id for topic_id in group.states if not is_there(topic_id)]
                if not gone:
                    continue
                for topic_id in gone:
                    del group.states[topic_id]
                try:
                    self.states_changed(group, _logged(group.group_id))
                except KafkaError as error:
                    log.warning("cannot change share group %s: %s", group.group_id, error)

    def states_changed(self, group: ShareGroup, done: Done) -> None:
        """Increases the group epoch and writes the list of partitions with a state. The caller
        holds the lock."""
        group.epoch += 1
        entries = [records.group_entry(group), records.states_entry(group, {})]
        self._coordinator.check(group.group_id)
        self._writes.write(group, entries, done)

    def _drop(self, group_id: str, partition: int) -> None:
        group = self.groups.pop(group_id, None)
        self._by_partition.get(partition, set()).discard(group_id)
        if group is None:
            return
        self._coordinator.table.remove(group_id)
        group.dead = True
        cancel(group.assigns_later, group.writes.catches_up_later)
        self._members.forget_all(group)

    # -- the journal's calls, through the coordinator --------------------------------------------

    def replay(self, partition: int, record: Record) -> bool:
        """Applies a record. Returns whether it is a record of share groups. Raises ValueError."""

        def new(group_id: str) -> None:
            self._by_partition.setdefault(partition, set()).add(group_id)

        return records.replay(self.groups, record, new)

    def loaded(self, partition: int) -> None:
        """Starts the sessions of the members that were read from the log."""
        for group_id in list(self._by_partition.get(partition, ())):
            group = self.groups.get(group_id)
            if group is None:
                self._by_partition[partition].discard(group_id)
                continue
            self._coordinator.table.put(group_id, partition, kind=GROUP_TYPE)
            session_ms = self._settings(group_id).session_ms
            for member_id in group.members:
                self._members.extend_session(group, member_id, session_ms)

    def unloaded(self, partition: int) -> None:
        """Drops the groups of a partition that another node leads now."""
        for group_id in list(self._by_partition.pop(partition, set())):
            self._drop(group_id, partition)


def _logged(group_id: str) -> Done:
    def done(error: KafkaError | None) -> None:
        if error is not None:
            log.warning("cannot store a change of share group %s: %s", group_id, error)

    return done
