"""Answers the requests of Kafka 0.7 on the listener LEGACY07.

A produce request becomes a Produce request for the native handler (produce.py); that takes no
time, unless a topic has to be created first: one thread waits for that. Two threads read logs, so
that request handlers do not wait for it. A connection has one request at a time, and the byte
budget of the network threads holds its bytes until it is answered, so that the queue needs no
other limit.

A fetch never waits for records; 0.7's consumers ask again after fetcher.backoff.ms. An index that
has to be made or extended for longer than EXTEND_S goes on with the next request: a fetch then
answers what is covered already, or nothing while another request extends it for longer than BUSY_S.

Memory: each connection holds at most one answer of ANSWER_BYTES_MAX, or of one message, until it is
sent.

Where 0.7 has no error code the answer is -1 (unknown), and the log says why, once for each topic.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.api.call import Call
from barnabas.api.k02_list_offsets import visible_end
from barnabas.cext.log.log_handle import LogError
from barnabas.cext.memory.threads import start_when_allowed
from barnabas.cext.network.request_queue import PendingRequest
from barnabas.cext.record.messages07 import MissingRecords
from barnabas.cext.record.records import CorruptRecords
from barnabas.controller.topic_names import check_topic_name
from barnabas.errors import (
    InvalidTopicException,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from barnabas.legacy07 import frames
from barnabas.legacy07.addresses import AddressOutOfRange, PartitionAddresses
from barnabas.legacy07.frames import Asked, BadRequest, FetchAsked, OffsetsAsked, ProduceAsked
from barnabas.legacy07.produce import produce_request
from barnabas.security.acl_codes import CREATE, DESCRIBE, READ, TOPIC
from barnabas.storage.address_index import DamagedIndex
from barnabas.wire.uuids import uuid_text

if TYPE_CHECKING:
    from barnabas.cext.partition.partitions import PartitionHandle
    from barnabas.config import DynamicConfig
    from barnabas.controller.auto_creation import AutoTopicCreation
    from barnabas.metadata.cluster_state import ClusterState
    from barnabas.security.authorizer import Authorizer
    from barnabas.server.replica_manager import ReplicaManager
    from barnabas.storage.log_manager import LogManager, PartitionLog

log = logging.getLogger("barnabas.legacy07")

KEY = -7  # in place of an API key (cext/network/network_state.pxd)
READERS = 2
EXTEND_S = 2.0
BUSY_S = 1.0
CREATION_S = 10.0
CREATION_LOOK_S = 0.01
ANSWER_BYTES_MAX = 1024 * 1024  # of one fetch or multi-fetch; clients ask again for the rest
LOGGED_MAX = 1000
CONTENT_MAX = "max.decompressed.bytes"
MAGIC = "legacy07.message.magic"
REFUSED = (KafkaError, LogError, CorruptRecords, MissingRecords, DamagedIndex, OSError)


Requests = queue.SimpleQueue[tuple[PendingRequest, list[Any]] | None]


class Refused(Exception):
    """The topic cannot be read with the protocol of 0.7; the text says why."""


class Busy(Exception):
    """Another request has worked on the partition's addresses for BUSY_S."""


@contextmanager
def _held(found: PartitionAddresses) -> Iterator[None]:
    """Holds the lock of the addresses of a partition. Raises Busy."""
    if not found.lock.acquire(timeout=BUSY_S):
        raise Busy
    try:
        yield
    finally:
        found.lock.release()


class Legacy07:
    """The requests of 0.7 at one broker."""

    def __init__(
        self,
        node_id: int,
        replicas: ReplicaManager,
        logs: LogManager,
        cluster: Callable[[], ClusterState],
        config: DynamicConfig,
        authorizer: Authorizer | None,
        auto_creation: AutoTopicCreation,
        charge_later: Callable[[PendingRequest], Callable[[int], object]],
        meter: Callable[[PendingRequest], object],
        fetched: Callable[[PendingRequest, int], object],
        bad_request: Callable[[str, int, str], object],
        wall_ms: Callable[[], int],
        is_stopping: Callable[[], bool],
    ) -> None:
        """`charge_later`, `meter` and `fetched`: quotas of the client; `bad_request`: host, port
        and why a connection closes, for the log; `is_stopping`: whether the broker stops."""
        self._node_id = node_id
        self._replicas, self._logs, self._cluster = replicas, logs, cluster
        self._config, self._authorizer = config, authorizer
        self._auto_creation, self._charge_later = auto_creation, charge_later
        self._meter, self._fetched = meter, fetched
        self._bad_request, self._wall_ms = bad_request, wall_ms
        self._is_stopping = is_stopping
        self._reads: Requests = queue.SimpleQueue()
        self._creations: Requests = queue.SimpleQueue()  # produce requests for absent topics
        self._lock = threading.Lock()  # of the two below and the threads
        self._known: dict[tuple[bytes, int], PartitionAddresses] = {}
        self._logged: set[str] = set()
        self._threads: list[threading.Thread] = []
        self._is_stopped = False

    def stop(self) -> None:
        """Ends the threads; requests in the queue close their connections."""
        with self._lock:
            self._is_stopped = True
        for _ in self._threads:
            self._reads.put(None)
            self._creations.put(None)
        for thread in self._threads:
            thread.join()

    def take(self, pending: PendingRequest) -> None:
        """Answers a request, now or later."""
        self._meter(pending)
        try:
            asked: list[Any] = frames.parse_request(
                pending.api_version, pending.data, pending.body_at
            )
            is_produce = pending.api_version in (frames.PRODUCE, frames.MULTI_PRODUCE)
            if is_produce:
                if not any(self._may_come(row, set()) for row in asked):
                    self._produce(pending, asked)
                    return
        except BadRequest as error:
            self._bad_request(*pending.peer, f"Kafka 0.7: {error}")
            pending.close()
            return
        self._begin()
        (self._creations if is_produce else self._reads).put((pending, asked))

    def _begin(self) -> None:
        with self._lock:
            if self._threads or self._is_stopped:
                return
            for number in range(READERS):
                run = partial(self._run, self._reads)
                self._threads.append(start_when_allowed(run, f"legacy07-{number}"))
            run = partial(self._run, self._creations)
            self._threads.append(start_when_allowed(run, "legacy07-create"))

    def _run(self, requests: Requests) -> None:
        while (taken := requests.get()) is not None:
            pending, asked = taken
            try:
                if self._is_stopping():
                    pending.close()
                else:
                    self._answer(pending, asked)
            except BadRequest as error:
                self._bad_request(*pending.peer, f"Kafka 0.7: {error}")
                pending.close()
            except Exception:
                log.exception("a request of Kafka 0.7 from %s failed", pending.peer)
                pending.close()
            del pending, taken

    def _answer(self, pending: PendingRequest, asked: list[Any]) -> None:
        kind = pending.api_version
        if kind in (frames.PRODUCE, frames.MULTI_PRODUCE):
            self._create(asked, pending)
            self._produce(pending, asked)
        elif kind == frames.OFFSETS:
            pending.reply(self._offsets(asked[0], pending))
        elif kind == frames.FETCH:
            self._send(self._fetch(asked[0], ANSWER_BYTES_MAX, pending), pending)
        else:
            answers: list[bytes] = []
            left = ANSWER_BYTES_MAX
            for row in asked:
                answers.append(self._fetch(row, left, pending))
                left -= len(answers[-1])
            self._send(frames.multi_fetch_answer(answers), pending)

    def _send(self, records: bytes, pending: PendingRequest) -> None:
        """Sends the answer to a fetch, and counts it against the quota of the client."""
        self._fetched(pending, len(records))
        pending.reply(records)

    # -- produce ----------------------------------------------------------------------------------

    def _produce(self, pending: PendingRequest, asked: list[ProduceAsked]) -> None:
        """Passes the messages to the native handler of Produce. Raises BadRequest."""
        rows = [row._replace(partition=self._chosen(row)) for row in asked]
        frame = produce_request(rows, self._config.integer(CONTENT_MAX))
        if frame is None:
            pending.silent()
        else:
            pending.proceed_as(frame)

    def _chosen(self, row: ProduceAsked) -> int:
        """Returns the partition of a request; for -1 a random one that this node leads."""
        if row.partition != -1:
            return row.partition
        topic = self._cluster().topic(row.topic)
        led = (
            []
            if topic is None
            else [index for index in topic.partitions if self._replicas.is_served(row.topic, index)]
        )
        return random.choice(led) if led else row.partition

    def _may_come(self, row: Asked, absent: Container[str]) -> bool:
        """Returns whether a partition will be served here soon: its topic is absent and not in
        `absent`, or was created a moment ago."""
        cluster = self._cluster()
        topic = cluster.topic(row.topic)
        if topic is None:
            return row.topic not in absent
        partition = topic.partitions.get(max(row.partition, 0))
        return (
            partition is not None
            and cluster.leads(self._node_id, partition)
            and not self._replicas.is_served(row.topic, max(row.partition, 0))
            and not self._replicas.is_offline(row.topic, max(row.partition, 0))
        )

    def _create(self, asked: Sequence[ProduceAsked], pending: PendingRequest) -> None:
        """Creates the absent topics of a produce request, if the broker may, and waits for them:
        the client would not send its messages again."""
        absent = set()
        for name in {row.topic for row in asked} - self._cluster().topics.keys():
            try:
                check_topic_name(name)
            except InvalidTopicException as error:
                raise BadRequest(str(error)) from None
            call = self._call(pending)
            if self._config.boolean("auto.create.topics.enable") and (
                call.may_by_cluster(CREATE, TOPIC, name) or call.may(CREATE, TOPIC, name)
            ):
                self._auto_creation.ask(name, self._charge_later(pending))
            else:
                absent.add(name)
        end_s = time.monotonic() + CREATION_S
        while any(self._may_come(row, absent) for row in asked):
            if time.monotonic() > end_s or self._is_stopping():
                break
            time.sleep(CREATION_LOOK_S)

    def _call(self, pending: PendingRequest) -> Call[None]:
        return Call(None, KEY, pending.api_version, pending, self._authorizer)

    # -- fetch and offsets ------------------------------------------------------------------------

    def _fetch(self, row: FetchAsked, bytes_max: int, pending: PendingRequest) -> bytes:
        if row.size_max < 0:
            return frames.fetch_answer(frames.INVALID_FETCH_SIZE)
        if self._is_absent(row):
            return frames.fetch_answer(frames.NO_ERROR)  # as 0.7 does
        try:
            found, is_complete = self._addresses(row, READ, pending)
            with _held(found):
                if bytes_max <= 0 or (not is_complete and row.address >= found.end):
                    return frames.fetch_answer(frames.NO_ERROR)
                size = min(row.size_max, bytes_max)
                return frames.fetch_answer(
                    frames.NO_ERROR, found.read(row.address, size, row.size_max)
                )
        except AddressOutOfRange:
            return frames.fetch_answer(frames.OFFSET_OUT_OF_RANGE)
        except Busy:
            return frames.fetch_answer(frames.NO_ERROR)
        except (Refused, *REFUSED) as error:
            return frames.fetch_answer(self._code(error, row))

    def _offsets(self, row: OffsetsAsked, pending: PendingRequest) -> bytes:
        if self._is_absent(row):  # as 0.7 does
            is_end = row.time in (frames.LATEST, frames.EARLIEST)
            return frames.offsets_answer(frames.NO_ERROR, (0,) if is_end else ())
        try:
            found, is_complete = self._addresses(row, DESCRIBE, pending)
            with _held(found):
                if row.time == frames.EARLIEST:
                    return frames.offsets_answer(
                        frames.NO_ERROR, [found.earliest()][: max(row.count_max, 0)]
                    )
                if not is_complete:
                    raise Refused("its addresses are not known yet; the next request goes on")
                addresses = self._before(row, found)
            return frames.offsets_answer(frames.NO_ERROR, addresses)
        except Busy:
            return frames.offsets_answer(frames.UNKNOWN_ERROR)
        except (Refused, AddressOutOfRange, *REFUSED) as error:
            return frames.offsets_answer(self._code(error, row))

    def _is_absent(self, row: FetchAsked | OffsetsAsked) -> bool:
        """Returns whether there is no such topic, or not yet its partition, which will be here."""
        return self._cluster().topic(row.topic) is None or self._may_come(row, (row.topic,))

    def _before(self, row: OffsetsAsked, found: PartitionAddresses) -> list[int]:
        """Returns the addresses at which segments begin, and the end, from the newest one at or
        before a time on. Kafka 0.7: Log.getOffsetsBefore."""
        kept = self._log_of(row.topic, row.partition)
        segments = kept.handle.segments()
        points = [
            (max(segment.base_offset, kept.handle.start_offset), kept.largest_ms(segment))
            for segment in segments
        ]
        if segments[-1].size_bytes:
            points.append((found.end_offset, self._wall_ms()))
        if row.time != frames.LATEST:
            while points and points[-1][1] > row.time:
                points.pop()
        points = points[::-1][: max(row.count_max, 0)]
        return [found.address_of(offset) for offset, _ in points]

    def _addresses(
        self, row: FetchAsked | OffsetsAsked, operation: int, pending: PendingRequest
    ) -> tuple[PartitionAddresses, bool]:
        """Returns the addresses of a partition, extended to its last stable offset, and whether
        they reach so far. Raises Refused, and those of REFUSED."""
        if not self._call(pending).may(operation, TOPIC, row.topic):
            raise TopicAuthorizationFailed()
        partition = self._replicas.partition(row.topic, row.partition)
        self._check_topic(row.topic)
        limit = visible_end(partition, committed_only=True)
        kept = self._log_of(row.topic, row.partition)
        found = self._of(partition, kept)
        end_s = time.monotonic() + EXTEND_S
        with _held(found):
            found.use(kept.directory, kept.handle)
            return found, found.extend(
                limit, lambda: self._is_stopping() or time.monotonic() > end_s
            )

    def _check_topic(self, name: str) -> None:
        config = self._replicas.topic_config(name)
        if "compact" in config.names("cleanup.policy"):
            raise Refused("it is compacted (cleanup.policy), and addresses would have holes")
        if config.names("fetch.interceptors"):
            raise Refused("it has fetch.interceptors, which do not see messages of 0.7")

    def _log_of(self, topic: str, partition: int) -> PartitionLog:
        found = self._logs.get(topic, partition)
        if found is None:
            raise NotLeaderOrFollower()
        return found

    def _of(self, partition: PartitionHandle, kept: PartitionLog) -> PartitionAddresses:
        """Returns the addresses of a partition; opens or makes their file. The caller calls use().
        Raises DamagedIndex, OSError."""
        key = kept.topic_id, partition.index
        with self._lock:
            found = self._known.get(key)
            if found is None:
                self._forget_deleted()
                found = self._known[key] = PartitionAddresses(
                    kept.directory,
                    kept.handle,
                    magic=self._config.integer(MAGIC),
                    content_max=self._config.integer(CONTENT_MAX),
                )
        return found

    def _forget_deleted(self) -> None:
        cluster = self._cluster()
        for key in [key for key in self._known if cluster.topic_by_id(uuid_text(key[0])) is None]:
            del self._known[key]

    def _code(self, error: Exception, row: FetchAsked | OffsetsAsked) -> int:
        """Returns the error code of 0.7, and logs what an operator has to know."""
        if isinstance(error, (UnknownTopicOrPartition, NotLeaderOrFollower)):
            return frames.WRONG_PARTITION
        if isinstance(error, (LogError, KafkaError)) and error.code == OffsetOutOfRange.code:
            return frames.OFFSET_OUT_OF_RANGE
        if not isinstance(error, (TopicAuthorizationFailed, KafkaStorageError)):
            text = (
                f"{row.topic}-{row.partition} cannot be read with the protocol of Kafka 0.7:"
                f" {error}"
            )
            with self._lock:
                is_new = text not in self._logged and len(self._logged) < LOGGED_MAX
                if is_new:
                    self._logged.add(text)
            if is_new:
                log.warning("%s", text)
        return frames.UNKNOWN_ERROR

    # -- changes ----------------------------------------------------------------------------------

    def start_moves(self, topic: str, partition: int, offset: int) -> None:
        """Keeps the address of `offset`, before the records below it are removed. If that fails,
        the records behind it follow the last known address."""
        kept = self._logs.get(topic, partition)
        if kept is None:
            return
        try:
            handle = self._replicas.partition(topic, partition)
            found = self._of(handle, kept)
            with found.lock:
                found.use(kept.directory, kept.handle)
                found.extend(min(offset, handle.last_stable_offset))
                found.keep(offset)
        except NotLeaderOrFollower:
            return
        except (*REFUSED, AddressOutOfRange) as error:
            log.warning(
                "%s-%d: the addresses of Kafka 0.7 are not kept before records are removed: %s",
                topic,
                partition,
                error,
            )
