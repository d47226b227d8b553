"""The group coordinator: every group whose partition of __consumer_offsets this node leads.

The handlers of JoinGroup, SyncGroup, Heartbeat, LeaveGroup, OffsetFetch and of group administration
call it. One lock covers all groups; code under it is short and never waits. Results go out through
callables, at once or later, on any thread.

A change is written to the journal first; an assignment is answered only when its record is durable.
Clock, timers, journal and random ids are passed in. Network threads carry out commits
(cext/coordinator/offset_commit.pyx). Groups write each change into the table that commits are
checked against (cext/coordinator/group_table.pyx). A group that is created by its first commit is
added here before any other code reads the groups. Next: classic_group.py, rebalance.py, offsets.py;
administration.py beside this file. Groups of the consumer protocol (KIP-848) are in
consumer_heartbeats.py and its imports, groups of the streams protocol (KIP-1071) in
coordinator/streams; both are loaded with the first such group.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.cext.codec.wire import MalformedMessage
from barnabas.cext.coordinator.group_table import GroupTable
from barnabas.cext.record.records import Record
from barnabas.coordinator.groups.classic_group import (
    DEAD,
    AnswerJoin,
    AnswerSync,
    ClassicGroup,
    JoinResult,
    SyncResult,
)
from barnabas.coordinator.groups.group_counts import GroupCounts
from barnabas.coordinator.groups.group_records import (
    Committed,
    Entry,
    GroupRecord,
    OffsetRecord,
    group_entry,
    group_key,
    read_record,
)
from barnabas.coordinator.groups.member_records import MemberRecord, read_member_record
from barnabas.coordinator.groups.membership import member_of
from barnabas.coordinator.groups.offsets import COMMIT_MARKER, Offsets, Rows, UnmergedCommits
from barnabas.coordinator.groups.rebalance import Join, Rebalances, Timers
from barnabas.errors import (
    CoordinatorNotAvailable,
    GroupIdNotFound,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidSessionTimeout,
    KafkaError,
    MessageTooLarge,
    NotCoordinator,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
    UnknownServerError,
    UnsupportedVersion,
)
from barnabas.wire.batches import Batch
from barnabas.wire.internal import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from barnabas.coordinator.groups.classic_members import ClassicMembers
    from barnabas.coordinator.groups.consumer_access import GroupDependencies
    from barnabas.coordinator.groups.consumer_group import ConsumerGroup, Group
    from barnabas.coordinator.groups.consumer_heartbeats import (
        AnswerHeartbeat,
        ConsumerHeartbeats,
        Heartbeat,
    )
    from barnabas.coordinator.groups.group_writes import WrittenGroup
    from barnabas.coordinator.groups.streams_kind import StreamsGroup, StreamsGroups


log = logging.getLogger("barnabas.groups")

Done = Callable[[KafkaError | None], object]


class Journal(Protocol):
    """The part of coordinator.journal that this module uses. Tests pass another implementation."""

    topic: str

    def ensure(self) -> None: ...
    def partition_of(self, name: str) -> int: ...
    def check(self, partition: int) -> None: ...
    def led_partitions(self) -> dict[int, bool]: ...
    def append(
        self,
        partition: int,
        entries: Sequence[Entry],
        done: Done,
    ) -> None: ...


class OtherGroups(Protocol):
    """Groups of another kind under the same coordinator. The caller holds its lock in all calls."""

    def holds(self, group_id: str) -> bool: ...
    def listings(self) -> list[tuple[str, str, str, str]]:
        """Returns group, protocol type, state and type of each group."""

    def delete_group(self, group_id: str, answer: Done) -> None: ...
    def replay(self, partition: int, record: Record) -> bool:
        """Applies a record. Returns False when its type belongs to other groups. Raises
        ValueError."""

    def loaded(self, partition: int) -> None: ...
    def unloaded(self, partition: int) -> None: ...


class NativeCommits(UnmergedCommits, Protocol):
    """The part of cext.coordinator.offset_commit that this module uses."""

    def has_waiting(self, group_id: str) -> bool: ...
    def forget(self, partition: int) -> None: ...


class GroupSettings(NamedTuple):
    """The broker's settings for groups."""

    session_timeout_min_ms: int
    session_timeout_max_ms: int
    initial_delay_ms: int
    members_max: int
    metadata_bytes_max: int
    retention_ms: int

    @classmethod
    def of(cls, setting: Callable[[str], int]) -> GroupSettings:
        """Reads the settings by Kafka's names."""
        return cls(
            session_timeout_min_ms=setting("group.min.session.timeout.ms"),
            session_timeout_max_ms=setting("group.max.session.timeout.ms"),
            initial_delay_ms=setting("group.initial.rebalance.delay.ms"),
            members_max=setting("group.max.size"),
            metadata_bytes_max=setting("offset.metadata.max.bytes"),
            retention_ms=setting("offsets.retention.minutes") * 60_000,
        )


class GroupCoordinator:
    """All groups of one node (Kafka: GroupCoordinatorService)."""

    def __init__(
        self,
        *,
        journal: Journal,
        timers: Timers,
        wall_ms: Callable[[], int],
        new_id: Callable[[], str],
        settings: GroupSettings,
        table: GroupTable,
        native: NativeCommits,
        dependencies: Callable[[], GroupDependencies] | None = None,
        streams: Callable[[], StreamsGroups] | None = None,
    ) -> None:
        """`table`: the table that `native` checks commits against. `dependencies` creates what
        consumer groups need, and `streams` the code of streams groups, with the first of them."""
        self.journal = journal
        self.settings = settings
        self.wall_ms = wall_ms
        self.timers = timers
        self.new_id = new_id
        self.lock = threading.RLock()
        self._groups: dict[str, Group] = {}
        self.others: list[OtherGroups] = []
        self.table = table
        self._native = native
        self._stopped = False
        self._by_partition: dict[int, set[str]] = {}
        self.counts = GroupCounts()
        self.offsets = Offsets(native, lambda: self.groups, self._by_partition, self.counts)
        self._group_dependencies = dependencies
        self._consumers: ConsumerHeartbeats | None = None
        self._classic_members: ClassicMembers | None = None
        self._streams = streams
        self._rebalances = Rebalances(
            lock=self.lock,
            timers=timers,
            wall_ms=wall_ms,
            new_id=new_id,
            store=self._store,
            initial_delay_ms=settings.initial_delay_ms,
            members_max=settings.members_max,
            counts=self.counts,
        )

    # -- finding a group ------------------------------------------------------------------------

    @property
    def groups(self) -> dict[str, Group]:
        """All groups by name, with those that network threads have created by a first commit."""
        if self.table.new_count:
            with self.lock:
                for group_id, partition in self.table.take_new():
                    if group_id not in self._groups:
                        self._new_entry(group_id, partition).table = self.table
        return self._groups

    def check(self, group_id: str) -> int:
        """Returns the partition of a group whose requests are served here.

        Raises NotCoordinator, CoordinatorLoadInProgress, CoordinatorNotAvailable."""
        if self._stopped:
            raise CoordinatorNotAvailable()
        partition = self.journal.partition_of(group_id)
        if partition < 0:
            raise NotCoordinator()
        self.journal.check(partition)
        return partition

    def group(self, group_id: str) -> Group:
        """Returns the group. The caller holds the lock. Raises GroupIdNotFound."""
        found = self.groups.get(group_id)
        if found is None:
            raise GroupIdNotFound(f"Group {group_id} not found.")
        return found

    def is_other(self, group_id: str) -> bool:
        """Returns whether a group of another kind has this id. The caller holds the lock."""
        return any(other.holds(group_id) for other in self.others)

    def _group_or_new(self, group_id: str, partition: int) -> Group:
        found = self.groups.get(group_id)
        if found is None:
            found = self._new_entry(group_id, partition)
            found.expose(self.table, partition)
        return found

    def _new_entry(self, group_id: str, partition: int) -> ClassicGroup:
        """Adds a group that commits are not checked against yet."""
        made = self._groups[group_id] = ClassicGroup(group_id)
        self._by_partition.setdefault(partition, set()).add(group_id)
        return made

    def drop_group(self, group_id: str, partition: int) -> None:
        """Removes the group and its offsets from memory. The caller holds the lock."""
        group = self.groups.pop(group_id, None)
        if group is not None:
            self._forget(group, CoordinatorNotAvailable())
        self.table.remove(group_id)
        self._by_partition.get(partition, set()).discard(group_id)
        self.offsets.forget_group(group_id)

    def _forget(self, group: Group, error: KafkaError) -> None:
        """Fails every pending request of the group: it was deleted or moved to another broker."""
        if group.group_type == "classic":
            self._rebalances.forget(group, error)
        elif group.group_type == "consumer":
            self.consumers.forget(group)
        else:
            self.streams.forget(group)

    def _resume(self, group: Group) -> None:
        """Starts the timers of a group's members."""
        if group.group_type == "classic":
            self._rebalances.resume(group)
        elif group.group_type == "consumer":
            self.consumers.resume(group)
        else:
            self.streams.resume(group)

    def stop(self) -> None:
        """Fails every pending request because the node stops; later requests do not wait."""
        with self.lock:
            self._stopped = True
            self.table.close()
            for group in self.groups.values():
                self._forget(group, CoordinatorNotAvailable())

    # -- groups of the consumer protocol ----------------------------------------------------------

    @property
    def consumers(self) -> ConsumerHeartbeats:
        """The heartbeats of consumer groups, created at the first use. The caller holds the lock,
        except for the first check of a heartbeat."""
        if self._consumers is None:
            from barnabas.coordinator.groups.classic_members import ClassicMembers
            from barnabas.coordinator.groups.consumer_heartbeats import ConsumerHeartbeats

            assert self._group_dependencies is not None, "consumer groups need their dependencies"
            with self.lock:
                if self._consumers is None:
                    made = ConsumerHeartbeats(self, self._group_dependencies())
                    self._classic_members = ClassicMembers(made)
                    self._consumers = made
        return self._consumers

    @property
    def classic_members(self) -> ClassicMembers:
        """The members of the classic protocol in consumer groups."""
        assert self.consumers is not None and self._classic_members is not None
        return self._classic_members

    def consumer_heartbeat(self, group_id: str, asked: Heartbeat, answer: AnswerHeartbeat) -> None:
        """Handles ConsumerGroupHeartbeat; see ConsumerHeartbeats.heartbeat."""
        self.consumers.heartbeat(group_id, asked, answer)

    @property
    def streams(self) -> StreamsGroups:
        """The groups of the streams protocol."""
        assert self._streams is not None, "streams groups need their code"
        return self._streams()

    def adopt(self, group: ConsumerGroup | StreamsGroup, partition: int) -> None:
        """Registers a group under its name. The caller holds the lock."""
        before = self.groups.get(group.group_id)
        if before is group:
            return
        self.groups[group.group_id] = group
        self._by_partition.setdefault(partition, set()).add(group.group_id)
        if before is not None:
            self._forget(before, RebalanceInProgress())
            self._resume(group)
        group.expose(self.table, partition)

    def replace_by_classic(
        self, group: ConsumerGroup | StreamsGroup, classic: ClassicGroup
    ) -> None:
        """Replaces a group by this classic group. The caller holds the lock."""
        self._forget(group, RebalanceInProgress())
        self.groups[group.group_id] = classic
        self._rebalances.resume(classic)
        classic.expose(self.table, self.journal.partition_of(group.group_id))

    def rebalance(self, group: ClassicGroup) -> None:
        """Makes all members of a classic group join again. The caller holds the lock."""
        self._rebalances.rebalance(group)

    def tombstones_of(self, group: Group) -> list[Entry]:
        """Returns the tombstones of a group, without those of its offsets."""
        if group.group_type == "classic":
            return [(group_key(group.group_id), None)]
        if group.group_type == "streams":
            return self.streams.tombstones(group)
        from barnabas.coordinator.groups.consumer_records import group_tombstones

        return group_tombstones(group)

    @contextmanager
    def commits_held(self, group_id: str) -> Iterator[None]:
        """Holds the group's commits back: in this context network threads append none of them. The
        caller holds the lock."""
        self.table.hold(group_id)
        try:
            yield
        finally:
            self.table.release(group_id, self.journal.partition_of(group_id))

    def append_tombstones(
        self, group_id: str, partition: int, entries: Sequence[Entry], done: Done
    ) -> None:
        """Appends tombstones of a group's offsets. Until `done` has returned, commits of the group
        wait: `done` may forget these offsets."""
        self.table.hold(group_id)

        def finished(error: KafkaError | None) -> None:
            try:
                done(error)
            finally:
                self.table.release(group_id, partition)

        self.append(partition, entries, finished)

    def append_deletion(
        self,
        group: ClassicGroup | WrittenGroup,
        partition: int,
        entries: Sequence[Entry],
        done: Done,
    ) -> None:
        """Appends entries with the tombstones of a group, which stays known until the caller drops
        it. Until `done` a group that is written whole does not catch up: see group_writes.py."""
        if isinstance(group, ClassicGroup):
            self.append_tombstones(group.group_id, partition, entries, done)
            return
        group.writes.deletions += 1

        def finished(error: KafkaError | None) -> None:
            group.writes.deletions -= 1
            done(error)

        self.append_tombstones(group.group_id, partition, entries, finished)

    # -- members --------------------------------------------------------------------------------

    def join(self, group_id: str, asked: Join, answer: AnswerJoin) -> None:
        """Handles JoinGroup and calls `answer` once, at once or when the next generation begins."""
        low, high = self.settings.session_timeout_min_ms, self.settings.session_timeout_max_ms
        try:
            if not group_id:
                raise InvalidGroupId()
            if not low <= asked.session_timeout_ms <= high:
                raise InvalidSessionTimeout()
            with self.lock:
                partition = self.check(group_id)
                group = self.groups.get(group_id)
                if group is None:
                    group = self._new_group(group_id, partition, asked)
                if group.group_type == "consumer" and group.members:
                    self.classic_members.join(group, asked, answer)
                elif group.group_type == "streams" and group.members:
                    answer(JoinResult(InconsistentGroupProtocol()))
                else:
                    self._rebalances.join(self._as_classic(group, partition), asked, answer)
        except KafkaError as error:
            answer(JoinResult(error, asked.member_id))

    def _new_group(self, group_id: str, partition: int, asked: Join) -> Group:
        if self.is_other(group_id):
            raise InconsistentGroupProtocol()
        if asked.member_id:
            raise UnknownMemberId()
        return self._group_or_new(group_id, partition)

    def _as_classic(self, group: Group, partition: int) -> ClassicGroup:
        """Turns a group of another protocol without members into a group of its next member's
        protocol."""
        if group.group_type == "classic":
            return group
        entries = self.tombstones_of(group)
        classic = ClassicGroup(group.group_id)
        self.replace_by_classic(group, classic)
        self.append(partition, entries, lambda _error: None)
        return classic

    def sync(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol: tuple[str | None, str | None],
        assignments: Iterable[tuple[str, bytes]],
        answer: AnswerSync,
    ) -> None:
        """Handles SyncGroup and calls `answer` once, at once or when the assignment is durable."""
        try:
            with self.lock:
                group = self._group_of_members(group_id)
                if group.group_type == "consumer":
                    self.classic_members.sync(
                        group, member_id, instance_id, generation, protocol, answer
                    )
                    return
                self._rebalances.sync(
                    group, member_id, instance_id, generation, protocol, assignments, answer
                )
        except KafkaError as error:
            answer(SyncResult(error))

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """Handles Heartbeat and raises its error."""
        with self.lock:
            group = self._group_of_members(group_id)
            if group.group_type == "consumer":
                self.classic_members.heartbeat(group, member_id, instance_id, generation)
            else:
                self._rebalances.heartbeat(group, member_id, instance_id, generation)

    def leave(
        self, group_id: str, leaving: Iterable[tuple[str, str | None]]
    ) -> list[tuple[str, str | None, KafkaError | None]]:
        """Handles LeaveGroup for (member id, instance id) pairs and returns the result for each
        pair. Raises the error of the whole request."""
        with self.lock:
            group = self._group_of_members(group_id)
            if group.group_type == "consumer":
                return self.classic_members.leave(group, leaving)
            if group.state == DEAD:
                raise CoordinatorNotAvailable()
            return self._rebalances.leave(group, leaving)

    def _group_of_members(self, group_id: str) -> ClassicGroup | ConsumerGroup:
        """Returns the group that a client of the classic protocol claims to be a member of."""
        if not group_id:
            raise InvalidGroupId()
        self.check(group_id)
        group = self.groups.get(group_id)
        if group is None or group.group_type == "streams":
            raise UnknownMemberId()
        return group

    def _store(self, group: ClassicGroup, assignments: Mapping[str, bytes], done: Done) -> None:
        entries = [group_entry(group, assignments)]

        def finished(error: KafkaError | None) -> None:
            done(UnknownServerError() if isinstance(error, MessageTooLarge) else error)

        self.append(self.journal.partition_of(group.group_id), entries, finished)

    def append(
        self,
        partition: int,
        entries: Sequence[Entry],
        done: Done,
    ) -> None:
        """Appends entries to the journal. Calls `done` under the lock when they are durable or were
        refused."""

        def locked(error: KafkaError | None) -> None:
            with self.lock:
                done(error)

        try:
            self.journal.append(partition, entries, locked)
        except KafkaError as error:
            locked(error)

    # -- offsets --------------------------------------------------------------------------------

    def take_commits(self) -> None:
        """Merges in the durable commits of network threads, which hold a limited number."""
        with self.lock:
            self.offsets.catch_up()

    def is_committing(self, group_id: str) -> bool:
        """Returns whether commits of the group are being written, or are durable and not merged in
        here. The caller holds the lock. Without `commits_held` the result may change at once."""
        return self._native.has_waiting(group_id)

    def check_reader(self, group_id: str, member_id: str | None, member_epoch: int) -> None:
        """Checks whether a member may read the group's offsets. Raises the error of the whole
        group."""
        with self.lock:
            self.check(group_id)
            group = self.groups.get(group_id)
            if group is None or group.group_type == "classic":
                return
            if member_id is None and member_epoch < 0:
                return  # an administrator, or a client that sends no member id
            member_id = member_id or ""
            if member_epoch == member_of(group, member_id).epoch:
                return
            if group.group_type == "consumer" and group.members[member_id].classic is not None:
                raise IllegalGeneration()
            raise StaleMemberEpoch()

    def committed(self, group_id: str) -> Rows:
        """Returns a copy of all committed offsets of a group."""
        with self.lock:
            self.check(group_id)
            rows = self.offsets.of(group_id)
            return {topic: dict(partitions) for topic, partitions in rows.items()}

    def committed_of_partition(self, topic: str, partition: int) -> dict[str, int]:
        """Returns the committed offsets, by group, of all groups that this node leads and has
        loaded."""
        with self.lock:
            return self.offsets.of_partition(topic, partition)

    def fetch(
        self, group_id: str, wanted: Iterable[tuple[str, Iterable[int]]], stable: bool
    ) -> list[tuple[str, list[tuple[int, Committed | None, bool]]]]:
        """Handles OffsetFetch. Returns for each topic (partition, committed offset, whether an open
        transaction will change it). The last is set only with `stable`."""
        with self.lock:
            self.check(group_id)
            get, pending = self.offsets.get, self.offsets.is_pending
            return [
                (
                    topic,
                    [
                        (p, get(group_id, topic, p), stable and pending(group_id, topic, p))
                        for p in partitions
                    ],
                )
                for topic, partitions in wanted
            ]

    # -- transactions ---------------------------------------------------------------------------

    def marker_written(self, topic: str, partition: int, producer_id: int, commit: bool) -> None:
        """Applies ended transactions to the offsets. Called when a transaction has ended in some
        partition of the node, durably."""
        if topic == CONSUMER_OFFSETS:
            self.transaction_ended(partition, producer_id, commit)

    def transaction_ended(self, partition: int, producer_id: int, committed: bool) -> None:
        """Commits or drops the producer's pending offsets. Called when a marker in a partition of
        __consumer_offsets is durable."""
        with self.lock:
            self.offsets.end_transaction(partition, producer_id, committed)

    # -- the journal's calls --------------------------------------------------------------------

    def replay(self, partition: int, batch: Batch) -> None:
        """Applies records of the log while a partition loads."""
        if batch.control:
            for record in batch.records:
                kind = int.from_bytes((record.key or b"")[2:4], "big")
                if kind in (0, COMMIT_MARKER):
                    self.transaction_ended(partition, batch.producer_id, kind == COMMIT_MARKER)
            return
        producer_id = batch.producer_id if batch.transactional else None
        with self.lock:
            for record in batch.records:
                try:
                    if any(other.replay(partition, record) for other in self.others):
                        continue
                    found = read_record(record) or read_member_record(record, "consumer", "streams")
                except (MalformedMessage, UnsupportedVersion, ValueError) as error:
                    log.warning("skipped the record at offset %d: %s", record.offset, error)
                    continue
                if isinstance(found, OffsetRecord):
                    self._replay_offset(partition, found, producer_id)
                elif isinstance(found, GroupRecord):
                    self._replay_group(partition, found)
                elif found is not None:
                    self._replay_members(partition, found)

    def _replay_offset(self, partition: int, found: OffsetRecord, producer_id: int | None) -> None:
        group_id, topic, index, committed = found
        if committed is None:
            self.offsets.forget(group_id, topic, index)
            return
        if group_id not in self.groups:
            self._new_entry(group_id, partition)
        if producer_id is None:
            self.offsets.put(group_id, topic, index, committed)
        else:
            self.offsets.put_pending(producer_id, group_id, topic, index, committed)

    def _replay_group(self, partition: int, found: GroupRecord) -> None:
        if found.group is None:
            if found.group_id in self.groups:
                self._replay_end(partition, found.group_id)
            return
        self._new_entry(found.group_id, partition)
        self.groups[found.group_id] = found.group

    def _replay_end(self, partition: int, group_id: str) -> None:
        """Applies a tombstone of a group; its offsets may still exist, without members."""
        if self.offsets.of(group_id):
            self.groups[group_id] = ClassicGroup(group_id)
        else:
            del self.groups[group_id]
            self._by_partition[partition].discard(group_id)

    def _replay_members(self, partition: int, found: MemberRecord) -> None:
        group = self.groups.get(found.group_id)
        kind = found.group_type
        if group is None or group.group_type != kind:
            if found.value is None:
                return
            self._new_entry(found.group_id, partition)
            group = self.groups[found.group_id] = self._loaded_group(kind, found.group_id)
        if found.ends_group:
            self._replay_end(partition, found.group_id)
        elif group.group_type == "consumer":
            from barnabas.coordinator.groups.consumer_records import replay

            replay(group, found)
        elif group.group_type == "streams":
            self.streams.replay(group, found)

    def _loaded_group(self, kind: str, group_id: str) -> ConsumerGroup | StreamsGroup:
        """Returns a new group, for records of the log."""
        if kind == "streams":
            return self.streams.loaded_group(group_id)
        from barnabas.coordinator.groups.consumer_group import ConsumerGroup

        group = ConsumerGroup(group_id)
        group.writes.fresh = False
        return group

    def loaded(self, partition: int) -> None:
        """Starts the sessions of the members that were read from the log."""
        with self.lock:
            for group_id in self._by_partition.get(partition, ()):
                group = self.groups[group_id]
                self._resume(group)
                group.expose(self.table, partition)
            for other in self.others:
                other.loaded(partition)

    def unloaded(self, partition: int) -> None:
        """Drops the groups of a partition that another node leads now."""
        with self.lock:
            for other in self.others:
                other.unloaded(partition)
            self._native.forget(partition)
            for group_id in self._by_partition.pop(partition, set()):
                self._forget(self.groups.pop(group_id), NotCoordinator())
                self.table.remove(group_id)
                self.offsets.forget_group(group_id)
