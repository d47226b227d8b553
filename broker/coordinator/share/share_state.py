"""The share coordinator: the state of share partitions, kept in __share_group_state.

| type of key (int16) | key                        | value, version 0                        |
|---------------------|----------------------------|-----------------------------------------|
| 0 snapshot          | group, topic id, partition | epochs, start offset, all state batches |
| 1 update            | the same                   | changes since the last snapshot         |

The hash of "group:topic id:partition" chooses the partition of the topic. A change is an update;
after `share.coordinator.snapshot.update.records.per.snapshot` updates, and whenever the state epoch
changes, the whole state is written as a snapshot. A null value deletes the key. The topic is not
compacted, because an update is not the whole state: when a partition has grown, `prune` writes
snapshots of everything in it and deletes the records before them. A crash in between leaves more
records than necessary.

One lock covers all states; code under it is short. `done` gets None, or the error; `found` also
gets the state. Next: persister.py, which asks the coordinators on all brokers;
coordinator/journal.py below.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple, Protocol, TypeVar

from barnabas.cext.codec.wire import MalformedMessage
from barnabas.cext.record.records import Record
from barnabas.coordinator.journal import Done, Entry
from barnabas.coordinator.share.share_counts import ShareCounts
from barnabas.coordinator.share.share_partition import OVER, StateBatch
from barnabas.errors import (
    FencedLeaderEpoch,
    FencedStateEpoch,
    InvalidRequest,
    KafkaError,
    NotCoordinator,
)
from barnabas.wire.batches import Batch
from barnabas.wire.internal import (
    SHARE_GROUP_STATE,
    RecordType,
    UnknownRecord,
    read_key,
    record_type,
)
from barnabas.wire.uuids import uuid_text

log = logging.getLogger("barnabas.share")

T = TypeVar("T")

UNINITIALIZED_OFFSET = -1
UNKNOWN_COUNT = -1
PRUNE_RECORDS_MIN = 1_000  # written since the last prune of a partition
ENTRIES_PER_APPEND = 500  # of prunes and deletions


class ShareKey(NamedTuple):
    """The key of a partition in a share group."""

    group_id: str
    topic_id: bytes
    partition: int

    def text(self) -> str:
        """Returns the key for FindCoordinator."""
        return f"{self.group_id}:{uuid_text(self.topic_id)}:{self.partition}"


@dataclass(frozen=True, slots=True)
class StoredShare:
    """The stored state of one share partition."""

    state_epoch: int = 0
    leader_epoch: int = 0
    start: int = UNINITIALIZED_OFFSET
    complete_count: int = UNKNOWN_COUNT
    batches: tuple[StateBatch, ...] = ()
    snapshot_epoch: int = 0
    created_ms: int = 0
    update_count: int = 0  # updates since the snapshot


# Called with None and the state, which is None when there is none, or with the error.
Found = Callable[[KafkaError | None, StoredShare | None], object]


class Journal(Protocol):
    """The part of coordinator.journal that this module uses."""

    def ensure(self) -> None: ...
    def partition_of(self, name: str) -> int: ...
    def check(self, partition: int) -> None: ...
    def led_partitions(self) -> dict[int, bool]: ...
    def append(self, partition: int, entries: Sequence[Entry], done: Done) -> None: ...


@dataclass(slots=True)
class _Rows:
    """The states in one partition of the topic."""

    kept: dict[ShareKey, StoredShare] = field(default_factory=dict)
    record_count: int = 0  # since the last prune
    unwritten: int = 0  # appends that are not durable yet
    # Keys of which an append has failed: the log may have it, or lose it, or not have it.
    uncertain: set[ShareKey] = field(default_factory=set)


class ShareState:
    """The state of all share partitions whose keys this node coordinates (Kafka:
    ShareCoordinatorService)."""

    def __init__(
        self,
        *,
        journal: Journal,
        wall_ms: Callable[[], int],
        updates_max: Callable[[], int],
        cut: Callable[[int, int], object],
        end_of: Callable[[int], int],
        counts: ShareCounts,
    ) -> None:
        """`end_of` returns the next offset of a partition of the topic. `cut` deletes the records
        of a partition below an offset."""
        self.journal = journal
        self._wall_ms = wall_ms
        self._updates_max = updates_max
        self._cut = cut
        self._end_of = end_of
        self._counts = counts
        self._lock = threading.RLock()
        self._partitions: dict[int, _Rows] = {}

    # -- reading --------------------------------------------------------------------------------

    def _rows(self, key: ShareKey) -> tuple[int, _Rows]:
        """Returns the partition of the topic and its states. Raises NotCoordinator,
        CoordinatorLoadInProgress."""
        partition = self.journal.partition_of(key.text())
        if partition < 0:
            raise NotCoordinator()
        self.journal.check(partition)
        return partition, self._partitions.setdefault(partition, _Rows())

    def _kept(self, key: ShareKey) -> StoredShare | None:
        """Returns the state, or None when there is none. The caller holds the lock. Raises
        InvalidRequest for a negative partition, and as `_rows` does."""
        if key.partition < 0:
            raise InvalidRequest("The partition id cannot be a negative number.")
        return self._rows(key)[1].kept.get(key)

    def summary(self, key: ShareKey, found: Found) -> None:
        """Calls `found` with the state. Raises InvalidRequest for a negative partition,
        NotCoordinator, CoordinatorLoadInProgress."""
        with self._lock:
            kept = self._kept(key)
        found(None, kept)

    def read(self, key: ShareKey, leader_epoch: int, found: Found) -> None:
        """Reads the state for the partition's leader, and stores its epoch. Calls `found` when the
        epoch and all that the state contains are durable.

        Raises InvalidRequest for a partition that was not initialized, FencedLeaderEpoch, and as
        `summary` does."""
        with self._lock:
            kept = self._kept(key)
            if kept is None:
                raise InvalidRequest("Read operation on uninitialized share partition not allowed.")
            if leader_epoch >= 0 and kept.leader_epoch > leader_epoch:
                raise FencedLeaderEpoch()
            rows = self._rows(key)[1]
            if leader_epoch > kept.leader_epoch or rows.unwritten or key in rows.uncertain:
                made = replace(kept, leader_epoch=max(leader_epoch, kept.leader_epoch))
                self._keep(key, made, (), lambda error: found(error, None if error else made))
                return
        found(None, kept)

    # -- changes --------------------------------------------------------------------------------

    def initialize(self, key: ShareKey, state_epoch: int, start: int, done: Done) -> None:
        """Initializes the state: no record from `start` on is acknowledged. Raises FencedStateEpoch
        and as `summary` does."""
        with self._lock:
            before = self._kept(key)
            if before is not None and before.state_epoch > state_epoch:
                raise FencedStateEpoch()
            now_ms = self._wall_ms()
            made = StoredShare(
                state_epoch=state_epoch, start=start, complete_count=0, created_ms=now_ms
            )
            if before is not None:
                made = replace(made, snapshot_epoch=before.snapshot_epoch + 1)
            self._snapshot(key, made, done)

    def write(
        self,
        key: ShareKey,
        state_epoch: int,
        leader_epoch: int,
        start: int,
        complete_count: int,
        batches: Iterable[StateBatch],
        done: Done,
    ) -> None:
        """Writes changes of the state; `done` is called when they are durable or have failed. A
        write that comes again, after later ones, takes nothing back: the start offset does not go
        down, and no record that is over is available again.

        Raises InvalidRequest for a partition that was not initialized, FencedLeaderEpoch,
        FencedStateEpoch, and as `summary` does."""
        with self._lock:
            kept = self._kept(key)
            if kept is None:
                raise InvalidRequest(
                    "Write operation on uninitialized share partition not allowed."
                )
            if leader_epoch >= 0 and kept.leader_epoch > leader_epoch:
                raise FencedLeaderEpoch()
            if state_epoch >= 0 and kept.state_epoch > state_epoch:
                raise FencedStateEpoch()
            start = kept.start if start == UNINITIALIZED_OFFSET else start
            delta = tuple(batches)
            if state_epoch <= kept.state_epoch:
                delta = not_over(kept.batches, delta)
                if start == kept.start:
                    complete_count = max(kept.complete_count, complete_count)
                elif start < kept.start:
                    start, complete_count = kept.start, kept.complete_count
            made = replace(
                kept,
                state_epoch=max(kept.state_epoch, state_epoch),
                start=start,
                complete_count=complete_count,
                batches=overlaid(kept.batches, delta, start),
            )
            began_ns = self._counts.monotonic_ns()

            def written(error: KafkaError | None) -> None:
                if error is None:
                    self._counts.writes.add(self._counts.monotonic_ns() - began_ns)
                done(error)

            if made.state_epoch != kept.state_epoch:
                made = replace(made, snapshot_epoch=kept.snapshot_epoch + 1)
                self._snapshot(key, made, written)
            else:
                self._keep(key, made, delta, written)

    def delete(self, keys: Iterable[ShareKey], done: Done) -> None:
        """Deletes states; `done` is called when that is durable. Raises as `summary` does."""
        with self._lock:
            by_partition: dict[int, list[ShareKey]] = {}
            for key in keys:
                if self._kept(key) is not None:
                    by_partition.setdefault(self._rows(key)[0], []).append(key)
            all_done = _Together(len(by_partition), done)
            for partition, rows in by_partition.items():
                self._delete(partition, rows, all_done)

    def forget_topics(self, is_there: Callable[[bytes], bool]) -> None:
        """Deletes the states of deleted topics (Kafka: ShareCoordinatorService.
        handleTopicsDeletion). `is_there` gets a topic id. What cannot be deleted now is deleted by
        a later call."""
        with self._lock:
            for partition, rows in self._partitions.items():
                gone = [key for key in rows.kept if not is_there(key.topic_id)]
                try:
                    for part in _parts(gone):
                        self._delete(partition, part, _logged_deletion)
                except KafkaError as error:
                    _logged_deletion(error)

    def _delete(self, partition: int, keys: Sequence[ShareKey], done: Done) -> None:
        self._append(partition, [(_key("ShareSnapshot", key), None) for key in keys], done)
        for key in keys:
            del self._partitions[partition].kept[key]

    def _keep(
        self, key: ShareKey, kept: StoredShare, delta: Sequence[StateBatch], done: Done
    ) -> None:
        """Appends a change as an update, or as a snapshot when one is due, or when the log may lack
        a former change."""
        partition, rows = self._rows(key)
        if kept.update_count >= self._updates_max() or key in rows.uncertain:
            self._snapshot(key, replace(kept, snapshot_epoch=kept.snapshot_epoch + 1), done)
            return
        entry = _key("ShareUpdate", key), _update_value(kept, delta)
        self._append(partition, [entry], done, key)
        rows.kept[key] = replace(kept, update_count=kept.update_count + 1)

    def _snapshot(self, key: ShareKey, kept: StoredShare, done: Done) -> None:
        partition, rows = self._rows(key)
        entry = _key("ShareSnapshot", key), _snapshot_value(kept, self._wall_ms())
        self._append(partition, [entry], done, key, is_whole=True)
        rows.kept[key] = replace(kept, update_count=0)

    def _append(
        self,
        partition: int,
        entries: Sequence[Entry],
        done: Done,
        key: ShareKey | None = None,
        is_whole: bool = False,
    ) -> None:
        """Appends entries; those of one `key` are a change, or its whole state."""
        rows = self._partitions[partition]

        def ended(error: KafkaError | None) -> None:
            with self._lock:
                rows.unwritten -= 1
                if key is not None and error is not None:
                    rows.uncertain.add(key)
                elif key is not None and is_whole:
                    rows.uncertain.discard(key)
            done(error)

        self.journal.append(partition, entries, ended)
        rows.unwritten += 1
        rows.record_count += len(entries)

    # -- pruning --------------------------------------------------------------------------------

    def prune(self) -> int:
        """Prunes partitions of the topic. Returns the number of partitions that are being
        rewritten."""
        begun = 0
        for partition, ready in self.journal.led_partitions().items():
            if ready and self._prune(partition):
                begun += 1
        return begun

    def _prune(self, partition: int) -> bool:
        with self._lock:
            rows = self._partitions.get(partition)
            if rows is None or rows.record_count < max(PRUNE_RECORDS_MIN, 2 * len(rows.kept)):
                return False
            below = self._end_of(partition)
            entries: list[Entry] = []
            for key, kept in rows.kept.items():
                made = replace(kept, snapshot_epoch=kept.snapshot_epoch + 1, update_count=0)
                rows.kept[key] = made
                entries.append((_key("ShareSnapshot", key), _snapshot_value(made, self._wall_ms())))
            parts = _parts(entries)

            def written(error: KafkaError | None) -> None:
                if error is None:
                    self._cut(partition, below)

            all_done = _Together(len(parts), written)
            try:
                for part in parts:
                    self.journal.append(partition, part, all_done)
            except KafkaError as error:  # the records stay as they are
                log.warning("cannot prune %s-%d: %s", SHARE_GROUP_STATE, partition, error)
                return False
            rows.record_count = 0
            return True

    # -- the journal's calls --------------------------------------------------------------------

    def replay(self, partition: int, batch: Batch) -> None:
        """Applies records of the log while a partition loads."""
        if batch.control:
            return
        with self._lock:
            rows = self._partitions.setdefault(partition, _Rows())
            for record in batch.records:
                rows.record_count += 1
                try:
                    _replay(rows.kept, record)
                except (MalformedMessage, UnknownRecord, ValueError) as error:
                    log.warning("skipped the record at offset %d: %s", record.offset, error)

    def loaded(self, partition: int) -> None:
        """Does nothing: a loaded partition needs no further step."""

    def unloaded(self, partition: int) -> None:
        """Drops the states of a partition that another node leads now."""
        with self._lock:
            self._partitions.pop(partition, None)

    def keys(self) -> list[ShareKey]:
        """Returns the keys of all stored states."""
        with self._lock:
            return [key for rows in self._partitions.values() for key in rows.kept]


class _Together:
    """A callback that calls `done` once, after `count` calls, with the first error."""

    def __init__(self, count: int, done: Done) -> None:
        self._lock = threading.Lock()
        self._left = count
        self._error: KafkaError | None = None
        self._done = done
        if count == 0:
            done(None)

    def __call__(self, error: KafkaError | None) -> None:
        with self._lock:
            self._left -= 1
            self._error = self._error or error
            if self._left:
                return
        self._done(self._error)


def together(count: int, done: Done) -> Done:
    """Returns a callback for `count` parts of a change. `done` is called once, when all of them
    have ended, with the first error."""
    return _Together(count, done)


def _parts(rows: Sequence[T]) -> list[Sequence[T]]:
    size = ENTRIES_PER_APPEND
    return [rows[at : at + size] for at in range(0, len(rows), size)]


def _logged_deletion(error: KafkaError | None) -> None:
    if error is not None:
        log.warning("cannot delete the share states of deleted topics yet: %s", error)


def not_over(before: Sequence[StateBatch], delta: Iterable[StateBatch]) -> tuple[StateBatch, ...]:
    """Returns the parts of `delta` that make no record available again which is over."""
    over = [row for row in before if row.state in OVER]
    found: list[StateBatch] = []
    for new in delta:
        parts = [new]
        for row in over if new.state not in OVER else ():
            parts = [
                part._replace(first=first, last=last)
                for part in parts
                for first, last in (
                    (part.first, min(part.last, row.first - 1)),
                    (max(part.first, row.last + 1), part.last),
                )
                if first <= last
            ]
        found += parts
    return tuple(found)


def overlaid(
    before: Sequence[StateBatch], delta: Iterable[StateBatch], start: int
) -> tuple[StateBatch, ...]:
    """Returns the batches from `start` on, overridden by `delta`; equal neighbours are merged."""
    rows = list(before)
    for new in delta:
        kept = []
        for row in rows:
            if row.last < new.first or row.first > new.last:
                kept.append(row)
                continue
            if row.first < new.first:
                kept.append(row._replace(last=new.first - 1))
            if row.last > new.last:
                kept.append(row._replace(first=new.last + 1))
        rows = [*kept, new]
    joined: list[StateBatch] = []
    for row in sorted(row for row in rows if row.last >= start):
        row = row._replace(first=max(row.first, start))
        if joined and joined[-1].last + 1 == row.first and joined[-1][2:] == row[2:]:
            joined[-1] = joined[-1]._replace(last=row.last)
        else:
            joined.append(row)
    return tuple(joined)


# -- records ------------------------------------------------------------------------------------


@cache
def _type(name: str) -> RecordType:
    return record_type(SHARE_GROUP_STATE, name)


def _key(name: str, key: ShareKey) -> bytes:
    kind = _type(name)
    return kind.encode_key(
        kind.key.cls(groupId=key.group_id, topicId=key.topic_id, partition=key.partition)
    )


def _fields(name: str, kept: StoredShare, batches: Iterable[StateBatch]) -> Mapping[str, object]:
    row_of = _type(name).value.struct("stateBatches")
    return {
        "snapshotEpoch": kept.snapshot_epoch,
        "leaderEpoch": kept.leader_epoch,
        "startOffset": kept.start,
        "deliveryCompleteCount": kept.complete_count,
        "stateBatches": [
            row_of(
                firstOffset=row.first,
                lastOffset=row.last,
                deliveryState=row.state,
                deliveryCount=row.deliveries,
            )
            for row in batches
        ],
    }


def _update_value(kept: StoredShare, delta: Iterable[StateBatch]) -> bytes:
    kind = _type("ShareUpdate")
    return kind.encode_value(kind.value.cls(**_fields("ShareUpdate", kept, delta)), 0)


def _snapshot_value(kept: StoredShare, now_ms: int) -> bytes:
    kind = _type("ShareSnapshot")
    value = kind.value.cls(
        stateEpoch=kept.state_epoch,
        createTimestamp=kept.created_ms,
        writeTimestamp=now_ms,
        **_fields("ShareSnapshot", kept, kept.batches),
    )
    return kind.encode_value(value, 0)


def _replay(kept: dict[ShareKey, StoredShare], record: Record) -> None:
    if record.key is None:
        raise ValueError("a record without a key")
    kind, found = read_key(SHARE_GROUP_STATE, record.key)
    key = ShareKey(found.groupId, found.topicId, found.partition)
    if record.value is None:
        kept.pop(key, None)
        return
    _, value = kind.read_value(record.value)
    batches = [
        StateBatch(row.firstOffset, row.lastOffset, row.deliveryState, row.deliveryCount)
        for row in value.stateBatches
    ]
    count = value.deliveryCompleteCount
    if kind.name == "ShareSnapshot":
        kept[key] = StoredShare(
            value.stateEpoch,
            value.leaderEpoch,
            value.startOffset,
            count,
            tuple(batches),
            value.snapshotEpoch,
            value.createTimestamp,
        )
        return
    before = kept.get(key)
    if before is None:
        raise ValueError(f"an update of {key.text()}, which has no snapshot")
    start = before.start if value.startOffset == UNINITIALIZED_OFFSET else value.startOffset
    kept[key] = replace(
        before,
        leader_epoch=max(before.leader_epoch, value.leaderEpoch),
        start=start,
        complete_count=count,
        batches=overlaid(before.batches, batches, start),
        update_count=before.update_count + 1,
    )
