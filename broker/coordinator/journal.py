"""An internal topic as the journal of a coordinator: append, report durability, replay.

A coordinator keeps its state in memory and writes every change here first, as key and value. The
hash of an id chooses the partition of the topic, and the leader of that partition coordinates the
id. `append` never waits: a round (rounds.py) takes all entries since the last round, one batch for
each partition, requests one group commit and then calls each `done`. So ten thousand commits a
second share a few hundred fsyncs.

Order: the appends of a partition reach the log, and their `done` is called, in the order of the
calls. `done` gets None, or the KafkaError for the client; it runs on the round's thread, without
locks, and must not wait. After an error the records may still have reached the log.

Loading: partitions that this node leads at the start, or becomes leader of, are replayed on a
separate thread; until then every call about them raises CoordinatorLoadInProgress. An empty
partition is ready at once. With `waits_for_commit` a partition is ready when the records that were
replayed are also committed: a leader may have some that its followers lack, and that the next
leader cuts off. A damaged batch is skipped with an ERROR that names the file and the
byte, and the rest is loaded. Limit: when PENDING_BYTES_MAX wait to be written, `append` raises
CoordinatorNotAvailable. A crash between append and flush loses nothing that `done` had reported.
Next: cext/partition/partitions.pyx."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from barnabas.cext.coordinator.partition_states import LED, LOADING, NOT_LED, PartitionStates
from barnabas.cext.log.log_handle import TRUSTED, LogError, LogHandle, SegmentInfo
from barnabas.cext.memory.threads import start_when_allowed
from barnabas.cext.partition.partitions import PartitionHandle
from barnabas.cext.record.key_hash import java_hash
from barnabas.cext.record.records import CorruptRecords, Record, parse_header
from barnabas.config import TopicConfig
from barnabas.coordinator.rounds import Rounds
from barnabas.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    CorruptMessage,
    KafkaError,
    MessageTooLarge,
    NotCoordinator,
)
from barnabas.metadata.cluster_state import ClusterState, Topic
from barnabas.wire.batches import Batch, decode_batches, encode_batch
from barnabas.wire.compression import NONE

log = logging.getLogger("barnabas.coordinator")

PENDING_BYTES_MAX = 64 << 20  # limit of keys and values that wait to be written
BATCH_BYTES_MAX = 256 << 10  # a single append may be as large as the topic allows
RECORD_OVERHEAD_BYTES = 32  # varints, timestamps: more than a record without headers needs
LOAD_BYTES = 5 << 20  # size of one read while a partition loads
DECOMPRESSED_BYTES_MAX = 64 << 20
NO_NEXT_BATCH = "its length leads to no batch"
COMMIT_WAIT_MS = 100  # until the loader looks for other work
FRAME_BYTES = 12  # a batch begins with its base offset and the length of the rest

Entry = tuple[bytes, bytes | None]  # key and value; None deletes the key
Done = Callable[[KafkaError | None], object]


class Replicas(Protocol):
    """The part of the replica manager that this module uses."""

    def partition(self, topic: str, index: int) -> PartitionHandle: ...
    def topic_config(self, name: str) -> TopicConfig: ...


class Journal(Protocol):
    """The coordinator as its journal sees it. The journal calls these methods without any lock."""

    def replay(self, partition: int, batch: Batch) -> None:
        """Applies records of the log, in order, while the partition loads, control batches
        included."""

    def loaded(self, partition: int) -> None:
        """Called when the partition has been replayed. From then on the coordinator gets
        requests."""

    def unloaded(self, partition: int) -> None:
        """Drops the state of a partition that another node leads now, or that is deleted."""


@dataclass(slots=True)
class _Append:
    entries: Sequence[Entry]
    done: Done
    timestamp_ms: int
    size_bytes: int


@dataclass(slots=True)
class _Led:
    """A partition that this node leads."""

    topic_id: str | None
    leader_epoch: int
    ready: bool = False
    waiting: list[_Append] = field(default_factory=list)
    handle: PartitionHandle | None = None


class CoordinatorLog:
    """The journal of one coordinator of one node (Kafka: CoordinatorRuntime, CoordinatorLoader)."""

    def __init__(
        self,
        topic: str,
        *,
        node_id: int,
        replicas: Replicas,
        create: Callable[[], object],
        wall_ms: Callable[[], int],
        commit_timeout_ms: Callable[[], int],
        may_wait: Callable[[], bool] = lambda: True,
        states: PartitionStates | None = None,
        codec: int = NONE,
        load_bytes: int = LOAD_BYTES,
        waits_for_commit: bool = False,
    ) -> None:
        """`create` creates the topic at the first use; it succeeds when another broker has created
        it. `may_wait` returns whether an append becomes durable only after a flush. `states`: the
        states of the topic's partitions, for native handlers. `waits_for_commit`: no request is
        served from records that were replayed and are not committed yet."""
        self._states = states if states is not None else PartitionStates()
        self._codec = codec
        self._load_bytes = load_bytes
        self._waits_for_commit = waits_for_commit
        self.topic = topic
        self._node_id = node_id
        self._replicas = replicas
        self._create = create
        self._wall_ms = wall_ms
        self._commit_timeout_ms = commit_timeout_ms
        self._may_wait = may_wait
        self._journal: Journal | None = None
        self._making = threading.Lock()
        self._lock = threading.Lock()
        self._led: dict[int, _Led] = {}
        self._dirty: dict[int, _Led] = {}  # partitions with waiting entries, oldest first
        self._pending_bytes = 0
        self._to_load: deque[int] = deque()
        self._rounds = Rounds(f"{topic}-writer", self._write_waiting, may_wait=may_wait)
        self._loader: threading.Thread | None = None
        self._stopping = False
        self.appended_records = 0
        self.appended_batches = 0

    # -- the partition of an id -----------------------------------------------------------------

    def attach(self, journal: Journal) -> None:
        """Sets the coordinator that replays records. Call it once, before the first `apply`."""
        self._journal = journal

    def ensure(self) -> None:
        """Creates the topic if it is missing."""
        if self.partition_count == 0:
            with self._making:  # a concurrent call waits, and then finds the topic
                if self.partition_count == 0:
                    self._create()

    @property
    def partition_count(self) -> int:
        """Returns the number of partitions of the topic; 0 until it exists."""
        return self._states.count

    def partition_of(self, name: str) -> int:
        """Returns the partition of an id, as every Kafka client and broker computes it; -1 while
        the topic does not exist."""
        count = self._states.count
        return id_hash(name) % count if count else -1

    def check(self, partition: int) -> None:
        """Raises CoordinatorLoadInProgress or NotCoordinator unless requests may be served."""
        self._ready(partition)

    def _ready(self, partition: int) -> _Led:
        led = self._led.get(partition)
        if led is None:
            raise NotCoordinator()
        if not led.ready:
            raise CoordinatorLoadInProgress()
        return led

    def leader_epoch(self, partition: int) -> int:
        """Returns the leader epoch of a partition that this node leads; -1 for others."""
        led = self._led.get(partition)
        return -1 if led is None else led.leader_epoch

    def led_partitions(self) -> dict[int, bool]:
        """Returns the partitions that this node leads, and whether each is loaded."""
        with self._lock:
            return {partition: led.ready for partition, led in self._led.items()}

    # -- appending ------------------------------------------------------------------------------

    def append(
        self,
        partition: int,
        entries: Sequence[Entry],
        done: Done,
    ) -> None:
        """Appends entries, all in one batch, and calls `done` when they are durable or have failed.

        Raises as `check` does, MessageTooLarge, and CoordinatorNotAvailable when too many bytes
        wait; then `done` is not called."""
        assert entries, "a batch holds at least one record"
        size_bytes = len(entries) * RECORD_OVERHEAD_BYTES
        for key, value in entries:
            size_bytes += len(key) + (len(value) if value is not None else 0)
        if size_bytes > BATCH_BYTES_MAX and size_bytes > self._batch_bytes_max():
            raise MessageTooLarge()
        row = _Append(entries, done, self._wall_ms(), size_bytes)
        with self._lock:
            led = self._ready(partition)
            if self._stopping or self._pending_bytes + size_bytes > PENDING_BYTES_MAX:
                raise CoordinatorNotAvailable("too many records wait for the write")
            led.waiting.append(row)
            self._pending_bytes += size_bytes
            self._dirty.setdefault(partition, led)
        self._rounds.ask()

    def _batch_bytes_max(self) -> int:
        return self._replicas.topic_config(self.topic).integer("max.message.bytes") - 100

    def _write_waiting(self) -> None:
        """Runs one round: appends all entries, then waits once for their shared flushes."""
        with self._lock:
            dirty, self._dirty = self._dirty, {}
            rows = []
            for partition, led in dirty.items():
                rows.append((partition, led, led.waiting))
                led.waiting = []
            self._pending_bytes = 0
        written = []
        for partition, led, appends in rows:
            handle, outcomes = self._write(partition, led, appends)
            if handle is not None:
                handle.appended(wanted=True)
            written.append((handle, led.leader_epoch, outcomes))
        timeout_ms = self._commit_timeout_ms() if self._may_wait() else 0
        for handle, leader_epoch, outcomes in written:
            late = None
            if handle is not None and not handle.commit(timeout_ms, leader_epoch):
                late = NotCoordinator() if handle.offline else CoordinatorNotAvailable()
            for row, error in outcomes:
                self._tell(row.done, error or late)

    def _write(
        self, partition: int, led: _Led, appends: list[_Append]
    ) -> tuple[PartitionHandle | None, list[tuple[_Append, KafkaError | None]]]:
        """Writes appends. Returns the partition's handle when records were written, and the outcome
        of each append."""
        outcomes: list[tuple[_Append, KafkaError | None]] = []
        try:
            if self._led.get(partition) is not led:
                raise NotCoordinator()
            handle = led.handle
            if handle is None or not handle.alive:
                handle = led.handle = self._replicas.partition(self.topic, partition)
            log_handle = handle.log
            if log_handle is None:
                raise NotCoordinator()
        except KafkaError:
            return None, [(row, NotCoordinator()) for row in appends]
        any_written = False
        for batch in _batches(appends):
            try:
                self._append_batch(log_handle, batch, led.leader_epoch)
            except LogError as error:
                log.error("%s-%d: %s", self.topic, partition, error)
                outcomes += [(row, NotCoordinator()) for row in batch]
            else:
                any_written = True
                outcomes += [(row, None) for row in batch]
        return handle if any_written else None, outcomes

    def _append_batch(self, handle: LogHandle, batch: list[_Append], leader_epoch: int) -> None:
        records = [
            Record(value, key, timestamp=row.timestamp_ms)
            for row in batch
            for key, value in row.entries
        ]
        encoded = encode_batch(records, codec=self._codec)
        handle.append(bytearray(encoded), leader_epoch=leader_epoch, verification=TRUSTED)
        self.appended_records += len(records)
        self.appended_batches += 1

    def _tell(self, done: Done, error: KafkaError | None) -> None:
        try:
            done(error)
        except Exception:  # an error for one client must not affect the others
            log.exception("%s: the callback of a finished append failed", self.topic)

    # -- leadership and loading -----------------------------------------------------------------

    def apply(self, state: ClusterState) -> None:
        """Loads and unloads partitions according to their leaders. The node calls this after the
        replica manager has applied `state`."""
        topic = state.topic(self.topic)
        if topic is not None and topic.deleting:
            topic = None
        gone: list[tuple[int, _Led]] = []
        come: list[int] = []
        with self._lock:
            led_now = self._led_in(topic, state) if topic is not None else {}
            for index, led in list(self._led.items()):
                if led_now.get(index) != (led.topic_id, led.leader_epoch):
                    gone.append((index, self._led.pop(index)))
                    self._states.set(index, NOT_LED)
            self._states.count = len(topic.partitions) if topic is not None else 0
            for index, (topic_id, leader_epoch) in led_now.items():
                if index not in self._led:
                    self._led[index] = _Led(topic_id, leader_epoch)
                    self._states.set(index, LOADING)
                    come.append(index)
        for index, led in gone:
            self._forget(index, led)
        self._load(come)

    def load_again(self, topic: str, index: int) -> None:
        """Loads a partition whose log is usable again, if this node leads it and has not loaded
        it."""
        with self._lock:
            led = self._led.get(index)
            if topic != self.topic or led is None or led.ready or index in self._to_load:
                return
        self._load([index])

    def _led_in(self, topic: Topic, state: ClusterState) -> dict[int, tuple[str | None, int]]:
        return {
            index: (topic.topic_id, partition.state.leader_epoch)
            for index, partition in topic.partitions.items()
            if partition.state is not None and state.leads(self._node_id, partition)
        }

    def _forget(self, index: int, led: _Led) -> None:
        with self._lock:
            waiting, led.waiting = led.waiting, []
            self._pending_bytes -= sum(row.size_bytes for row in waiting)
            self._dirty.pop(index, None)
        for row in waiting:
            self._tell(row.done, NotCoordinator())
        if self._journal is not None:
            self._journal.unloaded(index)

    def _load(self, indexes: list[int]) -> None:
        """Loads empty partitions at once, and the others on the loader's thread."""
        full = [index for index in indexes if not self._load_if_empty(index)]
        if not full:
            return
        with self._lock:
            self._to_load.extend(full)
            if self._loader is None and not self._stopping:
                self._loader = start_when_allowed(self._load_all, f"{self.topic}-loader")

    def _load_if_empty(self, index: int) -> bool:
        try:
            found = self._replicas.partition(self.topic, index).log
        except KafkaError:
            return False
        if found is None or found.end_offset > found.start_offset:
            return False
        self._set_ready(index, self._led.get(index))
        return True

    def _set_ready(self, index: int, led: _Led | None) -> None:
        if led is not None and self._led.get(index) is led:
            if self._journal is not None:
                self._journal.loaded(index)
            with self._lock:
                led.ready = True
                if self._led.get(index) is led:
                    self._states.set(index, LED)

    def _load_all(self) -> None:
        replayed: dict[int, tuple[_Led, int]] = {}  # wait for the commit of records below an offset
        while True:
            with self._lock:
                if self._stopping or not (self._to_load or replayed):
                    self._loader = None
                    return
                index = self._to_load.popleft() if self._to_load else None
                led = None if index is None else self._led.get(index)
            if index is None:
                self._await_commits(replayed)
                continue
            replayed.pop(index, None)
            if led is None:
                continue
            try:
                end_offset = self._replay(index, led)
                if end_offset is not None and not self._is_settled(index, led, end_offset):
                    replayed[index] = led, end_offset
            except (LogError, CorruptRecords, KafkaError, ValueError) as error:
                # It stays "loading": clients try again, and no decision is based on an incomplete
                # state.
                log.error(
                    "%s-%d cannot be loaded: %s. Its clients are answered"
                    " COORDINATOR_LOAD_IN_PROGRESS until its log is served again, the broker"
                    " starts again, or another one leads the partition",
                    self.topic,
                    index,
                    error,
                )

    def _replay(self, index: int, led: _Led) -> int | None:
        """Replays a partition. Returns the end of its log, or None when this node does not lead it
        in the same epoch any more."""
        assert self._journal is not None
        for batch in self._batches_of(index):
            if self._stopping or self._led.get(index) is not led:
                break
            self._journal.replay(index, batch)
        else:
            found = self._replicas.partition(self.topic, index).log
            if found is not None and self._led.get(index) is led:
                return found.end_offset
        self._journal.unloaded(index)
        return None

    def _await_commits(self, replayed: dict[int, tuple[_Led, int]]) -> None:
        """Waits a moment for the commit of replayed records, and removes the partitions that are
        ready and those that another node leads now."""
        timeout_ms = COMMIT_WAIT_MS
        for index, (led, end_offset) in list(replayed.items()):
            if self._is_settled(index, led, end_offset, timeout_ms):
                del replayed[index]
            timeout_ms = 0

    def _is_settled(self, index: int, led: _Led, end_offset: int, timeout_ms: int = 0) -> bool:
        """Returns whether a replayed partition waits no more: its records below `end_offset` are
        committed, and it is ready now, or this node cannot commit them any more. Waits for the
        commit for at most `timeout_ms`."""
        if self._waits_for_commit:
            try:
                handle = self._replicas.partition(self.topic, index)
            except KafkaError:
                return True
            if not handle.commit(timeout_ms, led.leader_epoch, end_offset):
                leads = handle.leader_id, handle.leader_epoch
                return handle.offline or leads != (self._node_id, led.leader_epoch)
        self._set_ready(index, led)
        return True

    def _batches_of(self, index: int) -> Iterator[Batch]:
        handle = self._replicas.partition(self.topic, index).log
        if handle is None:
            raise NotCoordinator()
        at = handle.start_offset
        while at < handle.end_offset:  # markers may be appended during the load
            before, damage = at, NO_NEXT_BATCH
            try:
                data = handle.read(at, self._load_bytes)
                if not data:
                    return
                for batch in decode_batches(
                    data, size_max=DECOMPRESSED_BYTES_MAX, partial_tail=True
                ):
                    if batch.last_offset >= at:
                        yield batch
                    at = max(at, batch.last_offset + 1)
                if at > before:
                    continue
            except CorruptRecords as error:
                damage = error.reason
            except LogError as error:
                if error.code != CorruptMessage.code:
                    raise
            at = self._behind_damage(index, handle, at, damage)

    def _behind_damage(self, index: int, handle: LogHandle, at: int, reason: str) -> int:
        """Returns the offset at which loading continues after the damaged batch at offset `at`: the
        next batch, or the next segment when the damaged length leads to no batch. Logs the lost
        offsets. Kafka loads only the records before the damage."""
        segments = handle.segments()
        found = next(row for row in reversed(segments) if row.base_offset <= at)
        go_on = min(
            (row.base_offset for row in segments if row.base_offset > at),
            default=handle.end_offset,
        )
        rest = b""
        with contextlib.suppress(LogError):
            rest = handle.read(at, found.size_bytes)
        size_bytes = FRAME_BYTES + int.from_bytes(rest[8:FRAME_BYTES], "big", signed=True)
        with contextlib.suppress(CorruptRecords):
            if FRAME_BYTES < size_bytes < len(rest):
                go_on = max(at + 1, parse_header(rest, size_bytes).base_offset)
        log.error(
            "%s-%d: the batch at byte %d of %s is damaged (%s); the records at offsets %d to %d"
            " were not loaded, and what they changed is as earlier records say. To bring them back"
            " stop the broker and put a good copy of the file in its place; `barnabas log dump`"
            " lists its batches",
            self.topic,
            index,
            found.size_bytes - len(rest) if rest else _bytes_before(handle, found, at),
            Path(handle.directory) / f"{found.base_offset:020d}.log",
            reason,
            at,
            go_on - 1,
        )
        return go_on

    def stop(self) -> None:
        """Writes the waiting entries, then ends the threads. Later appends are refused."""
        with self._lock:
            self._stopping = True
            loader = self._loader
        self._rounds.stop()
        self._write_waiting()
        if loader is not None:
            loader.join()


def _bytes_before(handle: LogHandle, segment: SegmentInfo, offset: int) -> int:
    """Returns the size in bytes of the intact batches before an offset in its segment."""
    size_bytes = 0
    with contextlib.suppress(LogError, CorruptRecords):
        data = handle.read(segment.base_offset, segment.size_bytes)
        for batch in decode_batches(data, size_max=DECOMPRESSED_BYTES_MAX, partial_tail=True):
            size_bytes += batch.size_bytes if batch.last_offset < offset else 0
    return size_bytes


def _batches(appends: list[_Append]) -> Iterator[list[_Append]]:
    """Yields runs of appends that share a batch within the size limits."""
    batch: list[_Append] = []
    size_bytes = 0
    for row in appends:
        if batch and size_bytes + row.size_bytes > BATCH_BYTES_MAX:
            yield batch
            batch, size_bytes = [], 0
        batch.append(row)
        size_bytes += row.size_bytes
    if batch:
        yield batch


@lru_cache(maxsize=4096)  # every request computes it for its id
def id_hash(name: str) -> int:
    """Returns Java's String.hashCode, made positive as Kafka's Utils.abs does."""
    found = abs(java_hash(name))
    return 0 if found == 1 << 31 else found
