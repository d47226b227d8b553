"""Share partitions: reads records from the log, and lets members acquire and acknowledge them.

Each share partition has a lock for its state (share_partition.py), held briefly. One thread at a
time reads the log for it, without that lock. The share coordinator (persister.py) makes the change
of an acknowledgement durable before it counts and is answered. One timer for each partition handles
expired acquisition locks.

A share partition is loaded from the share coordinator at its first use; fetches wait for it. It is
dropped, and loaded again at its next use, when another broker has led the partition, when the share
coordinator has fenced its epochs, when its group or topic is deleted or its offsets are altered,
and when the last session of its group on this node ends. A broker that does not lead the partition
any more so gives up its acquisitions, and answers NOT_LEADER_OR_FOLLOWER.

Limit: the partitions that the groups' members fetch from. Next: waiting.py, dead_letters.py.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from barnabas.cext.log.committed_reads import read_committed
from barnabas.cext.log.log_handle import LogError, LogHandle
from barnabas.cext.partition.partitions import PartitionHandle
from barnabas.cext.record.records import CorruptRecords
from barnabas.coordinator.journal import Done
from barnabas.coordinator.share.dead_letters import DeadLetters, Letters
from barnabas.coordinator.share.persister import NOT_READY, Persister
from barnabas.coordinator.share.sessions import Place, Session
from barnabas.coordinator.share.share_counts import (
    ACKNOWLEDGEMENTS,
    FAILED_ACKNOWLEDGEMENTS,
    FAILED_FETCHES,
    FETCHES,
    ShareCounts,
)
from barnabas.coordinator.share.share_partition import (
    ARCHIVING,
    RENEW,
    Acknowledgement,
    Acquired,
    Acquisition,
    Change,
    SharePartition,
    StateBatch,
)
from barnabas.coordinator.share.share_settings import EARLIEST, LATEST, ShareSettings
from barnabas.coordinator.share.share_state import (
    UNINITIALIZED_OFFSET,
    ShareKey,
    StoredShare,
)
from barnabas.coordinator.share.waiting import Timer, Timers, WaitingFetch, WaitingFetches
from barnabas.errors import (
    CoordinatorNotAvailable,
    CorruptMessage,
    FencedLeaderEpoch,
    FencedStateEpoch,
    InvalidRecordState,
    InvalidRequest,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollower,
    UnknownTopicId,
    error_of,
)
from barnabas.metadata.cluster_state import ClusterState
from barnabas.wire.batches import Batch, decode_batches
from barnabas.wire.uuids import uuid_text

log = logging.getLogger("barnabas.share")

READ_BYTES_MAX = 1 << 20  # of one partition at a time; unused bytes are read again
READS_MAX = 8  # reads in a row without records for the group, before the next partition
NOT_READY_RETRY_MS = 20
EXPIRY_RETRY_MS = 100
DECOMPRESSED_BYTES_MAX = 64 << 20  # of an old message set, which has its offsets inside
FENCED = (FencedStateEpoch, FencedLeaderEpoch)

Outcomes = Mapping[Place, KafkaError | None]


class ShareFetch(NamedTuple):
    """A member's ShareFetch: its session, and the limits of the response."""

    group_id: str
    member_id: str
    session: Session
    places: Sequence[Place]
    wait_ms: int
    bytes_min: int
    bytes_max: int
    records_max: int
    batch_size: int
    strict: bool


class FetchedRecords(NamedTuple):
    """The records that the member gets from one partition."""

    place: Place
    error: KafkaError | None
    records: bytes = b""
    acquired: Sequence[Acquired] = ()


class Replicas(Protocol):
    """The part of the replica manager that this module uses."""

    def partition(self, topic: str, index: int) -> PartitionHandle: ...


class _Held:
    """One loaded share partition."""

    __slots__ = (
        "gone", "key", "kept", "last_epoch", "leader_epoch", "lock", "partition", "reading",
        "timer", "topic", "turned_away",
    )  # fmt: skip

    def __init__(self, key: ShareKey, topic: str, leader_epoch: int, kept: StoredShare) -> None:
        self.key = key
        self.topic = topic
        self.leader_epoch = leader_epoch  # of the load; the share coordinator has it
        self.last_epoch = leader_epoch  # the last one of this node that was seen
        self.kept = kept
        self.lock = threading.RLock()
        self.partition = SharePartition(kept.start, kept.batches)
        self.reading = threading.Lock()
        self.timer: Timer | None = None
        self.turned_away = False  # a thread found another one reading
        self.gone = False

    @property
    def place(self) -> Place:
        return self.key.topic_id, self.key.partition

    def is_led_on(self, leader_epoch: int, is_shared: bool) -> bool:
        """Returns whether this node, which leads with this epoch now, has led the partition since
        the load. Each change of a partition in a cluster (`is_shared`) increases the epoch by one:
        no other broker has led between two epochs that follow each other. On a single node a new
        epoch means that the log was opened again, perhaps without its last records."""
        if leader_epoch > self.last_epoch + is_shared:
            return False
        self.last_epoch = max(leader_epoch, self.last_epoch)
        return True


class _Load(NamedTuple):
    """A load that has begun and has not succeeded. `error`: None while it is under way."""

    leader_epoch: int
    began_ns: int
    error: KafkaError | None = None


class SharePartitions:
    """The share partitions that this node leads."""

    def __init__(
        self,
        *,
        node_id: int,
        replicas: Replicas,
        cluster: Callable[[], ClusterState],
        persister: Persister,
        timers: Timers,
        waiting: WaitingFetches,
        letters: DeadLetters,
        settings: Callable[[str], ShareSettings],
        wall_ms: Callable[[], int],
        counts: ShareCounts,
    ) -> None:
        self._node_id = node_id
        self._replicas = replicas
        self._cluster = cluster
        self._persister = persister
        self._timers = timers
        self._waiting = waiting
        self._letters = letters
        self.settings = settings  # returns the settings of a group
        self._wall_ms = wall_ms
        self._counts = counts
        self._lock = threading.Lock()
        self._held: dict[ShareKey, _Held] = {}
        self._loading: dict[ShareKey, _Load] = {}

    # -- loading --------------------------------------------------------------------------------

    def _topics(self, places: Iterable[Place]) -> set[str]:
        """Returns the names of the existing topics among these ids."""
        cluster = self._cluster()
        found = (cluster.topic_by_id(uuid_text(topic_id)) for topic_id, _ in places)
        return {topic.name for topic in found if topic is not None}

    def _handle(self, place: Place) -> tuple[str, PartitionHandle]:
        """Returns the topic and the partition. Raises KafkaError."""
        topic = self._cluster().topic_by_id(uuid_text(place[0]))
        if topic is None or topic.deleting:
            raise UnknownTopicId()
        return topic.name, self._replicas.partition(topic.name, place[1])

    def _load(self, key: ShareKey) -> tuple[_Held, PartitionHandle] | None:
        """Returns the loaded share partition, or None while it is being loaded; waiting fetches are
        tried again after the load. Raises KafkaError; after an error of NOT_READY the caller may
        try again soon."""
        topic, handle = self._handle((key.topic_id, key.partition))
        leader_epoch = handle.leader_epoch
        began_ns = self._counts.monotonic_ns()
        with self._lock:
            held = self._held.get(key)
            if held is not None and held.is_led_on(leader_epoch, self._cluster().is_shared):
                return held, handle
            load = self._loading.get(key)
            if load is not None and load.leader_epoch == leader_epoch:
                if load.error is None:
                    return None
                if not isinstance(load.error, NOT_READY):
                    del self._loading[key]
                    raise load.error
                began_ns = load.began_ns
            mine = self._loading[key] = _Load(leader_epoch, began_ns)
        if held is not None:
            self._drop(held)
        try:
            self._persister.read(key, leader_epoch, partial(self._read, key, mine))
        except KafkaError as error:
            self._read(key, mine, error, None)
        with self._lock:
            held = self._held.get(key)
            if held is not None:
                return held, handle
            load = self._loading.get(key)
            if load is None or load.error is None:
                return None
            if not isinstance(load.error, NOT_READY):
                del self._loading[key]
            raise load.error

    def _read(
        self, key: ShareKey, load: _Load, error: KafkaError | None, kept: StoredShare | None
    ) -> None:
        """Ends a load, with the state that the share coordinator has, or the error."""
        made = None
        try:
            if error is not None:
                raise error
            made = self._made(key, load.leader_epoch, kept)
        except KafkaError as failed:
            error = failed
        with self._lock:
            if self._loading.get(key) is not load:
                return  # a later load has begun, or this node does not lead any more
            if made is None:
                self._loading[key] = load._replace(error=error)
            else:
                self._held[key] = made
                del self._loading[key]
        if made is not None:
            self._counts.loads.add(self._counts.monotonic_ns() - load.began_ns)
            with made.lock:
                for row in made.partition.archiving():
                    self._send_letters(made, row, rejected=False)
        self._waiting.look([(key.topic_id, key.partition)])

    def _made(self, key: ShareKey, leader_epoch: int, kept: StoredShare | None) -> _Held:
        assert kept is not None, key
        topic, handle = self._handle((key.topic_id, key.partition))
        if kept.start == UNINITIALIZED_OFFSET:
            start = self._first_offset(handle, self.settings(key.group_id))
            kept = StoredShare(kept.state_epoch, leader_epoch, start, 0, kept.batches)
        return _Held(key, topic, leader_epoch, kept)

    def _first_offset(self, handle: PartitionHandle, settings: ShareSettings) -> int:
        """Returns the start offset of a group that has never read the partition."""
        found = _log_of(handle)
        end = handle.last_stable_offset if settings.committed_only else handle.high_watermark
        if settings.reset == LATEST:
            return end
        if settings.reset == EARLIEST:
            return found.start_offset
        try:
            at_ms = self._wall_ms() - settings.reset_age_ms
            at = found.offset_for_time(at_ms, limit_offset=end)
        except LogError as error:
            raise error_of(error.code)(str(error)) from error
        return end if at is None else max(at[0], found.start_offset)

    # -- fetching -------------------------------------------------------------------------------

    def fetch(
        self, asked: ShareFetch, answer: Callable[[Sequence[FetchedRecords]], object]
    ) -> None:
        """Handles a ShareFetch. Calls `answer`, at once or later and on another thread, when
        records were acquired, after an error, or when the wait is over."""

        def look() -> bool:
            found, is_over = self._round(asked)
            if is_over:
                answer(found)
            return is_over

        self._counts.count(FETCHES, self._topics(asked.places))
        row = WaitingFetch(asked.places, look, lambda: answer(()))
        if not asked.places or asked.wait_ms <= 0:
            answer(self._round(asked)[0])
        elif not row.look():
            self._waiting.add(row, asked.wait_ms)

    def _round(self, asked: ShareFetch) -> tuple[list[FetchedRecords], bool]:
        """Reads each partition once. Returns the results, and whether to answer now."""
        if asked.session.is_over:
            return [], True
        settings = self.settings(asked.group_id)
        found: list[FetchedRecords] = []
        records_left, bytes_left = asked.records_max, asked.bytes_max
        for place in asked.places:
            if records_left <= 0 or (bytes_left <= 0 and records_left < asked.records_max):
                break
            try:
                handed = self._hand_out(asked, place, settings, records_left, bytes_left)
            except NOT_READY:
                self._timers.after(NOT_READY_RETRY_MS, partial(self._waiting.look, [place]))
                continue
            except KafkaError as error:
                found.append(FetchedRecords(place, _as_answered(error)))
                self._counts.count(FAILED_FETCHES, self._topics([place]))
                continue
            if handed.acquired:
                found.append(handed)
                records_left -= sum(row.last - row.first + 1 for row in handed.acquired)
                bytes_left -= len(handed.records)
        return found, bool(found)

    def _hand_out(
        self, asked: ShareFetch, place: Place, settings: ShareSettings, records: int, size: int
    ) -> FetchedRecords:
        loaded = self._load(ShareKey(asked.group_id, *place))
        if loaded is None:
            return FetchedRecords(place, None)
        held, handle = loaded
        if not held.reading.acquire(blocking=False):
            held.turned_away = True
            # The reader may have ended before it saw this.
            if not held.reading.acquire(blocking=False):
                return FetchedRecords(place, None)
        try:
            for _ in range(READS_MAX):
                handed = self._read_once(held, handle, asked, settings, records, size)
                if handed is not None:
                    return handed
            self._waiting.look([place])
            return FetchedRecords(place, None)
        except LogError as error:
            raise error_of(error.code)(str(error)) from error
        except CorruptRecords as error:
            raise CorruptMessage(str(error)) from error
        finally:
            held.reading.release()
            if held.turned_away:
                held.turned_away = False
                self._waiting.look([place])

    def _read_once(
        self,
        held: _Held,
        handle: PartitionHandle,
        asked: ShareFetch,
        settings: ShareSettings,
        records: int,
        size: int,
    ) -> FetchedRecords | None:
        """Reads one partition. Returns None when the batches hold no records for the group and
        there may be more."""
        found = _log_of(handle)
        with held.lock:
            if held.partition.start < found.start_offset:
                held.partition.log_starts_at(found.start_offset)
            if held.gone or not held.partition.can_acquire(settings.locks_max):
                return FetchedRecords(held.place, None)
            offset = held.partition.next_offset()
        limit = handle.last_stable_offset if settings.committed_only else handle.high_watermark
        if offset >= limit:
            if found.end_offset > handle.high_watermark:
                handle.appended(wanted=True)  # the fetch waits for the flush of these records
            return FetchedRecords(held.place, None)
        size = min(max(size, 1), READ_BYTES_MAX)
        if settings.committed_only:
            data, aborted = read_committed(found, offset, size, limit_offset=limit)
        else:
            data, aborted = found.read(offset, size, limit_offset=limit), []
        batches = list(decode_batches(data, size_max=DECOMPRESSED_BYTES_MAX, partial_tail=True))
        if not batches:
            return FetchedRecords(held.place, None)
        terms = Acquisition(
            asked.member_id,
            records,
            max(asked.batch_size, 1),
            asked.strict,
            settings.locks_max,
            settings.delivery_max,
            self._timers.now_ms() + settings.lock_ms,
        )
        with held.lock:
            if held.gone or asked.session.is_over:
                return FetchedRecords(held.place, None)
            given = held.partition.acquire(
                offset,
                [(row.base_offset, row.last_offset) for row in batches],
                terms,
                unreadable_ranges(batches, aborted),
            )
            self._set_timer(held)
        if not given:
            return None
        return FetchedRecords(held.place, None, _slice(data, batches, given), given)

    # -- acknowledging --------------------------------------------------------------------------

    def acknowledge(
        self,
        group_id: str,
        member_id: str,
        rows: Mapping[Place, Sequence[Acknowledgement]],
        done: Callable[[Outcomes], object],
    ) -> None:
        """Handles acknowledgements. Calls `done` when all of them are durable or refused, at once
        or later."""
        outcomes: dict[Place, KafkaError | None] = {}
        lock = threading.Lock()
        self._counts.count(ACKNOWLEDGEMENTS, self._topics(rows))

        def place_done(place: Place, error: KafkaError | None) -> None:
            if error is None:
                self._counts.acknowledged(rows[place])
            else:
                self._counts.count(FAILED_ACKNOWLEDGEMENTS, self._topics([place]))
            with lock:
                outcomes[place] = error
                if len(outcomes) < len(rows):
                    return
            done(outcomes)

        if not rows:
            done(outcomes)
        settings = self.settings(group_id)
        for place, parts in rows.items():
            key = ShareKey(group_id, *place)
            try:
                self._acknowledge(key, member_id, parts, settings, _of_place(place_done, place))
            except KafkaError as error:
                place_done(place, error)

    def _acknowledge(
        self,
        key: ShareKey,
        member_id: str,
        parts: Sequence[Acknowledgement],
        settings: ShareSettings,
        done: Done,
    ) -> None:
        self._handle((key.topic_id, key.partition))
        with self._lock:
            held = self._held.get(key)
        if held is None:
            raise InvalidRequest("the group has acquired no records of this partition")
        if not settings.renews and any(RENEW in part.kinds for part in parts):
            raise InvalidRecordState("Renewing acquisition locks is not enabled for the group.")
        now_ms = self._timers.now_ms()
        with held.lock:
            change = held.partition.acknowledge(
                member_id,
                parts,
                now_ms=now_ms,
                deadline_ms=now_ms + settings.lock_ms,
                delivery_max=settings.delivery_max,
                dead_letters=bool(settings.letters_topic),
            )
            self._keep(held, change, done)

    def release(self, group_id: str, member_id: str) -> None:
        """Releases a member's records because the member, or its session, has ended."""
        with self._lock:
            rows = [held for key, held in self._held.items() if key.group_id == group_id]
        settings = self.settings(group_id)
        for held in rows:
            with held.lock:
                change = held.partition.release(
                    member_id, settings.delivery_max, bool(settings.letters_topic)
                )
                self._keep(held, change, _ignored)

    def _keep(self, held: _Held, change: Change, done: Done) -> None:
        """Makes a change durable, then calls `done`. The caller holds the lock of `held`."""
        if not change.batches:
            done(None)
            return

        def finished(error: KafkaError | None) -> None:
            with held.lock:
                if error is None:
                    held.partition.finish(change)
                    for row, rejected in change.letters:
                        self._send_letters(held, row, rejected)
                else:
                    held.partition.undo(change)
                self._set_timer(held)
            if isinstance(error, FENCED):
                self._drop(held)
            self._waiting.look([held.place])
            done(_as_answered(error))

        try:
            self._persister.write(
                held.key,
                held.kept.state_epoch,
                held.leader_epoch,
                held.partition.start,
                held.partition.complete_count(),
                change.batches,
                finished,
            )
        except KafkaError as error:
            finished(error)

    def _send_letters(self, held: _Held, row: StateBatch, rejected: bool) -> None:
        settings = self.settings(held.key.group_id)

        def written(_error: KafkaError | None) -> None:
            with held.lock:
                if not held.gone:
                    self._keep(held, held.partition.archived(row.first, row.last), _ignored)

        if not settings.letters_topic:  # the setting was removed
            written(None)
            return
        assert row.state == ARCHIVING
        self._letters.send(
            Letters(
                held.key.group_id,
                held.topic,
                held.key.partition,
                row,
                rejected,
                settings.letters_topic,
                settings.copies_letters,
                written,
            )
        )

    # -- acquisition locks that expire ----------------------------------------------------------

    def _set_timer(self, held: _Held) -> None:
        """Sets the timer at or before the first deadline. The caller holds the lock."""
        if held.timer is not None or held.gone:
            return
        deadline_ms = held.partition.next_deadline_ms()
        if deadline_ms is not None:
            delay_ms = deadline_ms - self._timers.now_ms()
            if delay_ms <= 0:  # it expired, and the change could not be written
                delay_ms = EXPIRY_RETRY_MS
            held.timer = self._timers.after(delay_ms, lambda: self._expire(held))

    def _expire(self, held: _Held) -> None:
        settings = self.settings(held.key.group_id)
        with held.lock:
            held.timer = None
            if held.gone:
                return
            change = held.partition.expire(
                self._timers.now_ms(), settings.delivery_max, bool(settings.letters_topic)
            )
            self._keep(held, change, _ignored)
            self._set_timer(held)

    # -- dropping -------------------------------------------------------------------------------

    def drop(self, keys: Iterable[ShareKey]) -> None:
        """Drops share partitions whose state was altered or deleted. The next fetch loads them
        again."""
        for key in keys:
            with self._lock:
                held = self._held.get(key)
            if held is not None:
                self._drop(held)

    def group_left(self, group_id: str) -> None:
        """Drops the share partitions of a group whose last session on this node has ended: a later
        group may have its name, and other brokers do not hear of the end of a group (Kafka:
        SharePartitionManager.ShareGroupListener). Those that write dead letters stay, so that no
        letter is written twice."""
        with self._lock:
            rows = [held for key, held in self._held.items() if key.group_id == group_id]
            for key in [key for key in self._loading if key.group_id == group_id]:
                del self._loading[key]
        for held in rows:
            with held.lock:
                stays = held.partition.is_archiving
            if not stays:
                self._drop(held)

    def apply(self, state: ClusterState) -> None:
        """Applies a new state of the cluster. The node calls this with each state."""

        def epoch_of(key: ShareKey) -> int | None:
            topic = state.topic_by_id(uuid_text(key.topic_id))
            found = topic.partitions.get(key.partition) if topic is not None else None
            if found is None or found.state is None or not state.leads(self._node_id, found):
                return None
            return found.state.leader_epoch

        gone = []
        with self._lock:
            for held in self._held.values():
                epoch = epoch_of(held.key)
                if epoch is None or not held.is_led_on(epoch, state.is_shared):
                    gone.append(held)
            given_up = [key for key in self._loading if epoch_of(key) is None]
            for key in given_up:
                del self._loading[key]
        for held in gone:
            self._drop(held)
        self._waiting.look((key.topic_id, key.partition) for key in given_up)

    def _drop(self, held: _Held) -> None:
        with self._lock:
            if self._held.get(held.key) is held:
                del self._held[held.key]
        with held.lock:
            held.gone = True
            if held.timer is not None:
                held.timer.cancel()
                held.timer = None
        self._waiting.look([held.place])


def unreadable_ranges(
    batches: Sequence[Batch], aborted: Iterable[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Returns first and last offset of the batches without records for members: transaction markers
    and aborted records. `aborted`: producer id and first offset of each aborted transaction."""
    to_come = sorted(aborted, key=lambda row: row[1], reverse=True)
    active: set[int] = set()
    found = []
    for batch in batches:
        while to_come and to_come[-1][1] <= batch.last_offset:
            active.add(to_come.pop()[0])
        if batch.control:
            active.discard(batch.producer_id)  # the marker that ends it
        if batch.control or (batch.transactional and batch.producer_id in active):
            found.append((batch.base_offset, batch.last_offset))
    return found


def _slice(data: bytes, batches: Sequence[Batch], given: Sequence[Acquired]) -> bytes:
    """Returns the batches from the first to the last one with acquired records."""
    first, last = given[0].first, given[-1].last
    within = [row for row in batches if row.last_offset >= first and row.base_offset <= last]
    return data[within[0].start : within[-1].start + within[-1].size_bytes]


def _log_of(handle: PartitionHandle) -> LogHandle:
    found = handle.log
    if found is None:
        raise NotLeaderOrFollower() if not handle.alive else KafkaStorageError()
    return found


def _as_answered(error: KafkaError | None) -> KafkaError | None:
    """Returns the error that a member gets for a failed read or write."""
    if isinstance(error, NOT_READY):
        return CoordinatorNotAvailable()
    return NotLeaderOrFollower() if isinstance(error, FENCED) else error


def _of_place(done: Callable[[Place, KafkaError | None], object], place: Place) -> Done:
    return lambda error: done(place, error)


def _ignored(_error: KafkaError | None) -> None:
    """The callback of a change without a request. After a failure the state is unchanged, and the
    lock expires again."""
