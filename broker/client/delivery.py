"""The producer pipeline: gathers batches, sends them to the leaders of their partitions, and
retries.

Every producer here sends through it: the client's (producer.py), the old producer and the mirror
(barnabas.clients). One thread at a time uses a Delivery. `add` gives it records of one partition;
records that wait join one batch, so batches grow with the load. `step` sends the batches that may
be sent and handles the answers that have arrived; each batch ends with one call of `done`.

    gathered -> waiting -> in flight -> done
                   ^           |
                   +- failed <-+      again after retry.backoff.ms, in the order they had

A partition has up to IN_FLIGHT requests in flight to one broker. It has only one when batches have
no sequence numbers (acks other than -1) or belong to a transaction, so that the order stays. An
idempotent delivery (acks=-1) gives each partition a producer id: a batch that is sent again after a
broken connection is stored once, and a broker takes no batch before its predecessors. When one of
them fails, its successors fail too and wait with it. After a batch that is given up, the partition
continues with another producer id as soon as none of its batches is in flight, because the client
does not know whether the broker has used the batch's sequence numbers.

With a TransactionalId (transactional_id.py) batches have its producer id and belong to its open
transaction. A failure of such a batch is final: the owner aborts the transaction.

Limits: `batch_bytes` a batch, REQUEST_BYTES a request; the owner limits `pending_bytes`. A batch is
sent again at most `retries_max` times, or for `delivery_timeout_ms` if that is given.
"""

from __future__ import annotations

import logging
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from barnabas.cext.record.records import Record
from barnabas.client.brokers import Brokers
from barnabas.client.cluster import Cluster, Topic
from barnabas.client.connection import API_VERSIONS, Connection
from barnabas.client.failures import (
    AuthenticationFailed,
    ClientError,
    ConnectionLost,
    NoTls,
    NotSpokenByBroker,
    raise_for,
)
from barnabas.client.pipeline import Pipeline
from barnabas.client.transactional_id import IMPLICIT_FROM, TransactionalId
from barnabas.errors import (
    DuplicateSequenceNumber,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    KafkaError,
    MessageTooLarge,
    OutOfOrderSequenceNumber,
    RecordListTooLarge,
    UnknownProducerId,
    name_of,
)
from barnabas.wire import Struct, request
from barnabas.wire.batches import encode_batch
from barnabas.wire.compression import ZSTD

log = logging.getLogger("barnabas.clients")

PRODUCE, INIT_PRODUCER_ID = 0, 22
RECORD_V2, ZSTD_FROM = 3, 7  # versions of Produce
IN_FLIGHT = 5  # brokers remember so many batches of a producer
BATCH_BYTES = 512 * 1024  # before compression; below the 1 MiB that brokers take
REQUEST_BYTES = 4 * 1024 * 1024
RECORD_OVERHEAD_BYTES = 24  # lengths, deltas and counts around a record, at most
SEQUENCE_MASK = 2**31 - 1
GRACE_S = 5.0  # added to the broker's own time for an answer
FOREVER = -1
NUMBERS_LOST = (
    OutOfOrderSequenceNumber, UnknownProducerId, InvalidProducerIdMapping, InvalidProducerEpoch,
)  # fmt: skip
TOO_LARGE = (MessageTooLarge, RecordListTooLarge)


class Cancelled(Exception):
    """`cancel` was called: raised by `step`."""


class Batch:
    """Records of one partition that are sent together. `notes`: for each `add` that contributed
    records, its note and the number of its records in this batch."""

    __slots__ = (
        "attempts", "base_offset", "data", "first_sent_s", "last_error", "notes", "place",
        "records", "sequence", "size_bytes", "timestamp_ms",
    )  # fmt: skip

    def __init__(self, place: Place, timestamp_ms: int) -> None:
        self.place = place
        self.records: list[Record | bytes] = []
        self.notes: list[tuple[Any, int]] = []
        self.size_bytes = 0
        self.timestamp_ms = timestamp_ms
        self.attempts = 0
        self.first_sent_s = 0.0
        self.base_offset = -1  # of the first record; -1: not acknowledged, or not known
        self.sequence = -1  # -1: not numbered so far
        self.data: bytes | None = None  # as sent
        self.last_error: Exception | None = None


class Place:
    """One partition that the delivery writes to."""

    __slots__ = (
        "failed", "gathering", "in_flight", "index", "is_known", "key", "line", "next_sequence",
        "producer_epoch", "producer_id", "retry_at", "stuck_since", "topic", "waiting",
    )  # fmt: skip

    def __init__(self, topic: str, index: int) -> None:
        self.topic, self.index = topic, index
        self.gathering: Batch | None = None  # the last of `waiting`, if it has space
        self.waiting: deque[Batch] = deque()
        self.in_flight: deque[Batch] = deque()
        self.failed: list[Batch] = []  # wait for those in flight, then are sent again
        self.line: _Line | None = None  # the connection of those in flight
        self.producer_id = self.producer_epoch = -1
        # Whether the broker has a batch with this producer id, so that it refuses the second batch
        # when the first one fails. Until then one batch is in flight: order would be lost.
        self.is_known = False
        self.next_sequence = 0
        self.retry_at = 0.0
        self.stuck_since: float | None = None  # time since when no leader can be reached

    @property
    def what(self) -> str:
        return f"partition {self.index} of topic {self.topic}"


class _Line:
    """One connection to one broker."""

    __slots__ = ("asked_at", "events", "node_id", "pipeline")

    def __init__(self, node_id: int, pipeline: Pipeline[list[Batch]]) -> None:
        self.node_id, self.pipeline = node_id, pipeline
        self.events = selectors.EVENT_READ
        self.asked_at: deque[float] = deque()


class Delivery:
    """Sends batches to the leaders of their partitions. `step` calls `done(batch, error)` once for
    each batch; error is None when the batch is acknowledged (with acks 0: sent)."""

    def __init__(
        self,
        brokers: Brokers,
        done: Callable[[Batch, Exception | None], None],
        *,
        acks: int,
        codec_of: Callable[[str], int],
        retries_max: int,
        retry_backoff_ms: int,
        request_timeout_ms: int,
        delivery_timeout_ms: int | None = None,
        idempotent: bool = True,
        transaction: TransactionalId | None = None,
        batch_bytes: int = BATCH_BYTES,
        send_buffer_bytes: int = -1,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.brokers = brokers
        self._batch_bytes, self._transaction = batch_bytes, transaction
        self._delivery_s = None if delivery_timeout_ms is None else delivery_timeout_ms / 1000
        self.pending_bytes = 0
        self.pending_batches = 0
        self.retried = 0
        self._done, self._acks, self._codec_of = done, acks, codec_of
        self._retries_max, self._backoff_s = retries_max, retry_backoff_ms / 1000
        self._timeout_ms = request_timeout_ms
        self._send_buffer_bytes = send_buffer_bytes
        self._now_s = now_s
        self._is_numbered = acks == -1 and (idempotent or transaction is not None)
        self._in_flight_max = IN_FLIGHT if self._is_numbered and transaction is None else 1
        self._places: dict[tuple[str, int], Place] = {}
        self._active: dict[Place, None] = {}  # with waiting batches, in the order of their turns
        self._lines: dict[int, _Line] = {}
        self._selector = selectors.DefaultSelector()
        self._message = request(PRODUCE)
        self._cancelled = False
        self._bell_lock = threading.Lock()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._bell, selectors.EVENT_READ, None)

    # -- from outside -----------------------------------------------------------------------------

    def add(
        self,
        topic: str,
        index: int,
        records: Sequence[Record | bytes],
        size_bytes: int,
        note: Any,
    ) -> None:
        """Adds records for partition `index`. `size_bytes`: the size of all keys, values and
        headers. A record of plain bytes is a value without a key. `Batch.notes` returns `note`."""
        place = self._places.get((topic, index))
        if place is None:
            place = self._places[(topic, index)] = Place(topic, index)
        size_bytes += RECORD_OVERHEAD_BYTES * len(records)
        batch = place.gathering
        if batch is not None and batch.size_bytes + size_bytes > self._batch_bytes:
            batch = place.gathering = None
        if batch is None:
            if size_bytes > self._batch_bytes and len(records) > 1:
                half = len(records) // 2
                for part in (records[:half], records[half:]):
                    self.add(topic, index, part, sum(map(size_of, part)), note)
                return
            batch = place.gathering = Batch(place, _first_ms(records[0]))
            place.waiting.append(batch)
            self._active[place] = None
            self.pending_batches += 1
        batch.records.extend(records)
        batch.notes.append((note, len(records)))
        batch.size_bytes += size_bytes
        self.pending_bytes += size_bytes

    def wake(self) -> None:
        """Ends the wait of `step`. Any thread may call it, also after `close`."""
        with self._bell_lock:
            if self._bell >= 0:
                os.eventfd_write(self._bell, 1)

    def cancel(self) -> None:
        """Makes the current and every later `step` raise Cancelled. Any thread may call it."""
        self._cancelled = True
        self.wake()

    @property
    def is_idle(self) -> bool:
        """Returns whether every batch has ended and every byte is sent."""
        wants_out = any(line.pipeline.wants_out for line in self._lines.values())
        return not self.pending_batches and not wants_out

    def step(self, wait_s: float) -> None:
        """Sends the batches that may be sent, then waits up to `wait_s` seconds for answers and
        handles them. Raises Cancelled."""
        if self._cancelled:
            raise Cancelled("the delivery was cancelled")
        self.brokers.poll()
        before = self.pending_batches
        wait_s = min(wait_s, self._send_all())
        if self.pending_batches < before:
            wait_s = 0  # the owner may wait for these
        self._watch_lines()
        for entry, _ in self._selector.select(max(wait_s, 0)):
            if entry.data is None:
                os.eventfd_read(self._bell)
            else:
                self._take(entry.data)
        self._drop_silent()

    def settle(self) -> None:
        """With acks 0, when everything is sent: waits until the brokers have read all of it, but
        not longer than a request may take. Closing a connection earlier may lose bytes that the
        broker has not read; the answer to one more request proves that it has read them."""
        if self._acks != 0:
            return
        body = request(API_VERSIONS).cls(
            clientSoftwareName="barnabas", clientSoftwareVersion="client"
        )
        for line in [row for row in self._lines.values() if row.pipeline.is_free]:
            version = line.pipeline.connection.version_of(API_VERSIONS)
            try:
                line.pipeline.send(API_VERSIONS, version, body, [], counted_from_ns=0)
                line.asked_at.append(self._now_s())
            except ClientError as error:
                self._lost(line, error)
        while any(line.pipeline.sent for line in self._lines.values()):
            self.step(GRACE_S)

    def fail_all(self, error: Exception) -> None:
        """Ends every batch with `error`, also those in flight, and closes the connections. A batch
        in flight may have been written."""
        for line in list(self._lines.values()):
            self._close_line(line)
        for place in list(self._places.values()):
            batches = [*place.in_flight, *place.failed, *place.waiting]
            place.in_flight.clear()
            place.failed.clear()
            place.waiting.clear()
            place.gathering = None
            for batch in batches:
                self._end(batch, error)
        self._active.clear()

    def fail_unsent(self, error: Exception) -> None:
        """Ends every batch that is not in flight with `error`. The partition then continues with
        another producer id, or in a transaction with the sequence numbers of these batches."""
        for place in list(self._places.values()):
            batches = [*place.failed, *place.waiting]
            place.failed.clear()
            place.waiting.clear()
            place.gathering = None
            for batch in batches:
                self._give_up_numbers(place, batch.sequence)
                self._end(batch, error)

    def close(self) -> None:
        for line in list(self._lines.values()):
            self._close_line(line)
        self._selector.close()
        with self._bell_lock:
            bell, self._bell = self._bell, -1
        if bell >= 0:
            os.close(bell)
        self.brokers.close()

    # -- sending ----------------------------------------------------------------------------------

    def _send_all(self) -> float:
        """Sends the batches that may be sent. Returns the seconds until the next batch may be
        sent."""
        now_s = self._now_s()
        wait_s = 3600.0
        ready: dict[int, list[Place]] = {}
        for place in list(self._active):
            if not place.waiting:
                del self._active[place]
                continue
            if self._waits(place):
                continue
            if place.retry_at > now_s:
                wait_s = min(wait_s, place.retry_at - now_s)
                continue
            node_id = self._leader_of(place, now_s)
            if node_id is None:
                wait_s = min(wait_s, self._backoff_s)
            else:
                ready.setdefault(node_id, []).append(place)
        for node_id, places in ready.items():
            wait_s = min(wait_s, self._send_to(node_id, places, now_s))
        return wait_s

    def _waits(self, place: Place) -> bool:
        """Returns whether the next batch of a partition must wait for those in flight."""
        if place.failed or len(place.in_flight) >= self._in_flight_max:
            return True
        return bool(place.in_flight) and self._is_numbered and not place.is_known

    def _leader_of(self, place: Place, now_s: float) -> int | None:
        """Returns the broker id of the leader, or None. Batches that wait too long for a leader
        fail."""
        try:
            topic: Topic = self.brokers.topic(place.topic)
            row = topic.partition(place.index)
            if row.leader < 0:
                self.brokers.forget(place.topic)
                raise ConnectionLost(f"{place.what} has no leader now")
        except (ClientError, KafkaError) as error:
            self._stuck(place, error, now_s)
            return None
        return row.leader

    def _stuck(self, place: Place, error: Exception, now_s: float) -> None:
        """Handles a leader that cannot be reached: tries again after a pause, until the timeout."""
        place.retry_at = now_s + self._backoff_s
        self.retried += 1
        if place.stuck_since is None:
            place.stuck_since = now_s
        limit_s = self._timeout_ms / 1000 if self._delivery_s is None else self._delivery_s
        has_time = now_s - place.stuck_since < limit_s
        endless = self._retries_max == FOREVER and self._delivery_s is None
        if is_passing(error) and (has_time or endless):
            return
        if place.in_flight or place.failed:
            return  # their answers decide
        place.stuck_since = None
        batches = list(place.waiting)
        place.waiting.clear()
        place.gathering = None
        used = [batch.sequence for batch in batches if batch.sequence >= 0]
        if used:
            self._give_up_numbers(place, used[0])
        for batch in batches:
            self._end(batch, batch.last_error or error)

    def _send_to(self, node_id: int, places: list[Place], now_s: float) -> float:
        try:
            line = self._line(node_id)
        except (ClientError, KafkaError) as error:
            for place in places:
                self.brokers.forget(place.topic)
                self._stuck(place, error, now_s)
            return self._backoff_s
        sends = [row for row in places if row.line in (None, line) or not row.in_flight]
        while sends and line.pipeline.is_free:
            group: list[Batch] = []
            size_bytes = 0
            for place in sends:
                if size_bytes and size_bytes + place.waiting[0].size_bytes > REQUEST_BYTES:
                    break
                try:
                    batch = self._prepared(place)
                except (ClientError, KafkaError) as error:  # there is no producer id now
                    self._stuck(place, error, now_s)
                    continue
                size_bytes += batch.size_bytes
                group.append(batch)
            if not group:
                return self._backoff_s
            if not self._send_group(line, group, now_s):
                return self._backoff_s
            for batch in group:  # their turn is over
                if self._active.pop(batch.place, 1) is None and batch.place.waiting:
                    self._active[batch.place] = None
            sends = [
                row
                for row in sends
                if row.waiting and row.retry_at <= now_s and not self._waits(row)
            ]
        return 3600.0

    def _prepared(self, place: Place) -> Batch:
        """Takes the next waiting batch of a partition, and numbers and encodes it."""
        self._identify(place)
        batch = place.waiting.popleft()
        if batch is place.gathering:
            place.gathering = None
        if batch.sequence < 0 and self._is_numbered:
            batch.sequence = place.next_sequence
            self._number(place, place.next_sequence + len(batch.records))
        if batch.data is None:
            batch.data = encode_batch(
                batch.records,
                codec=self._codec_of(place.topic),
                producer_id=place.producer_id,
                producer_epoch=place.producer_epoch,
                base_sequence=batch.sequence,
                base_timestamp=batch.timestamp_ms,
                transactional=self._transaction is not None,
            )
        return batch

    def _identify(self, place: Place) -> None:
        """Gives a partition its producer id if it needs one: the transaction's, or its own."""
        if self._transaction is not None:
            held = self._transaction
            place.producer_id, place.producer_epoch = held.producer_id, held.producer_epoch
            place.next_sequence = held.sequences_of(place.topic).get(place.index, 0)
        elif self._is_numbered and place.producer_id < 0:
            place.producer_id, place.producer_epoch = producer_identity(self.brokers.cluster)
            place.next_sequence = 0
            for batch in place.waiting:
                batch.sequence, batch.data = -1, None
            if place.producer_id < 0:  # an old broker, which gives none
                self._is_numbered, self._in_flight_max = False, 1

    def _number(self, place: Place, sequence: int) -> None:
        """Sets the sequence number of the partition's next record."""
        place.next_sequence = sequence & SEQUENCE_MASK
        if self._transaction is not None:
            self._transaction.sequences_of(place.topic)[place.index] = place.next_sequence

    def _send_group(self, line: _Line, group: list[Batch], now_s: float) -> bool:
        message = self._message
        row = message.struct("topicData.partitionData")
        by_topic: dict[str, list[Struct]] = {}
        codecs = set()
        for batch in group:
            rows = by_topic.setdefault(batch.place.topic, [])
            rows.append(row(index=batch.place.index, records=batch.data))
            codecs.add(self._codec_of(batch.place.topic))
            if not batch.attempts:
                batch.first_sent_s = now_s
            batch.attempts += 1
            batch.place.in_flight.append(batch)
            batch.place.line = line
            batch.place.stuck_since = None
        topic = message.struct("topicData")
        body = message.cls(
            acks=self._acks,
            timeoutMs=self._timeout_ms,
            topicData=[topic(name=name, partitionData=rows) for name, rows in by_topic.items()],
        )
        is_answered = self._acks != 0
        try:
            high = self._include(line, group, body)
            low = ZSTD_FROM if ZSTD in codecs else RECORD_V2
            version = line.pipeline.connection.version_of(PRODUCE, low, high)
            line.pipeline.send(
                PRODUCE, version, body, group, counted_from_ns=0, is_answered=is_answered
            )
        except (NotSpokenByBroker, KafkaError) as error:
            for batch in group:
                self._settle(batch, error)
            return False
        except ClientError as error:
            for batch in group:  # the line does not have them yet
                self._settle(batch, error)
            self._lost(line, error)
            return False
        if is_answered:
            line.asked_at.append(now_s)
        else:
            for batch in group:
                self._settle(batch, None)
        return True

    def _include(self, line: _Line, group: list[Batch], body: Struct) -> int | None:
        """Adds the group's partitions to the transaction. Returns the newest version of Produce
        that may then be sent; None: any. Raises KafkaError, ClientError."""
        held = self._transaction
        if held is None:
            return None
        body.transactionalId = held.name
        connection = line.pipeline.connection
        rows = [held.include(connection, row.place.topic, row.place.index) for row in group]
        return None if all(rows) else IMPLICIT_FROM - 1

    # -- lines ------------------------------------------------------------------------------------

    def _line(self, node_id: int) -> _Line:
        """Returns the connection to a broker, and opens it if necessary. Raises ClientError,
        KafkaError."""
        found = self._lines.get(node_id)
        if found is not None:
            return found
        cluster = self.brokers.cluster
        broker = cluster.brokers.get(node_id)
        if broker is None:
            raise ConnectionLost(f"broker {node_id} is not among the live brokers")
        connection = Connection(
            broker.host,
            broker.port,
            client_id=cluster.client_id,
            connect_timeout_s=cluster.connect_timeout_s,
            answer_timeout_s=cluster.answer_timeout_s,
            security=cluster.security,
            send_buffer_bytes=self._send_buffer_bytes,
        )
        line = _Line(node_id, Pipeline(connection, IN_FLIGHT))
        self._lines[node_id] = line
        self._selector.register(line.pipeline, selectors.EVENT_READ, line)
        return line

    def _watch_lines(self) -> None:
        for line in self._lines.values():
            events = selectors.EVENT_READ
            if line.pipeline.wants_out:
                events |= selectors.EVENT_WRITE
            if events != line.events:
                self._selector.modify(line.pipeline, events, line)
                line.events = events

    def _take(self, line: _Line) -> None:
        try:
            for sent, answer, _ in line.pipeline.pump():
                line.asked_at.popleft()
                if sent.key == PRODUCE:
                    self._answered(sent.note, answer)
        except ClientError as error:
            self._lost(line, error)

    def _lost(self, line: _Line, error: Exception) -> None:
        """Handles a lost connection: the broker may or may not have stored the batches in
        flight."""
        if self._lines.get(line.node_id) is not line:
            return
        self._close_line(line)
        for sent in list(line.pipeline.sent):
            for batch in sent.note:
                self.brokers.forget(batch.place.topic)
                self._settle(batch, error)

    def _close_line(self, line: _Line) -> None:
        del self._lines[line.node_id]
        self._selector.unregister(line.pipeline)
        line.pipeline.close()

    def _drop_silent(self) -> None:
        now_s = self._now_s()
        for line in list(self._lines.values()):
            limit_s = self._timeout_ms / 1000 + GRACE_S
            if line.asked_at and now_s - line.asked_at[0] > limit_s:
                what = f"no answer from {line.pipeline.connection.address} within {limit_s:g} s"
                self._lost(line, ConnectionLost(what))

    # -- answers ----------------------------------------------------------------------------------

    def _answered(self, group: list[Batch], answer: Struct) -> None:
        left = {(batch.place.topic, batch.place.index): batch for batch in group}
        for topic, row in _rows(answer):
            batch = left.pop((topic, row.index), None)
            if batch is not None:
                error = _error_of(batch, row)
                if not row.errorCode:
                    batch.base_offset = int(row.baseOffset)
                self._settle(batch, error)
        for batch in left.values():
            self._settle(batch, ConnectionLost(f"an answer without {batch.place.what}"))

    def _settle(self, batch: Batch, error: Exception | None) -> None:
        """Handles the result of a batch that is no longer in flight."""
        place = batch.place
        place.in_flight.remove(batch)
        if error is None:
            place.is_known = place.producer_id >= 0
            self._end(batch, None)
        elif isinstance(error, TOO_LARGE) and len(batch.records) > 1:
            place.failed += self._halves(batch)
            self._give_up_numbers(place, batch.sequence)
        elif self._lost_its_number(error) and self._has_tries(batch, IN_FLIGHT):
            if not place.failed:  # no batch failed before it: the broker forgot the producer id
                place.producer_id, place.is_known = -1, False
            place.failed.append(batch)
        elif is_passing(error) and self._has_tries(batch):
            batch.last_error = error
            place.failed.append(batch)
            self.retried += 1
            if isinstance(error, KafkaError):
                self.brokers.forget(place.topic)
        else:
            if isinstance(error, TOO_LARGE):
                size = f"a record that makes a batch of {len(batch.data or b''):,} bytes"
                error = type(error)(f"{size} for {error}")
            self._give_up_numbers(place, batch.sequence)
            self._end(batch, error)
        if place.failed and not place.in_flight:
            self._again(place)

    def _give_up_numbers(self, place: Place, sequence: int) -> None:
        """Handles the sequence numbers of a batch that failed for good. A transaction has one batch
        of a partition in flight, so its numbers are free again; without a transaction the partition
        continues with another producer id."""
        if self._transaction is None:
            place.producer_id, place.is_known = -1, False
        elif sequence >= 0:
            self._number(place, sequence)

    def _lost_its_number(self, error: Exception) -> bool:
        """Returns whether a new producer id helps. A transaction has only one."""
        return isinstance(error, NUMBERS_LOST) and self._transaction is None

    def _has_tries(self, batch: Batch, more: int = 0) -> bool:
        if self._delivery_s is not None:
            return self._now_s() - batch.first_sent_s < self._delivery_s
        return self._retries_max == FOREVER or batch.attempts <= self._retries_max + more

    def _halves(self, batch: Batch) -> Iterator[Batch]:
        middle = len(batch.records) // 2
        notes = list(batch.notes)
        self.pending_batches += 1
        self.pending_bytes -= batch.size_bytes
        for records in (batch.records[:middle], batch.records[middle:]):
            half = Batch(batch.place, batch.timestamp_ms)
            half.records = records
            half.attempts, half.first_sent_s = batch.attempts, batch.first_sent_s
            half.size_bytes = sum(map(size_of, records)) + RECORD_OVERHEAD_BYTES * len(records)
            self.pending_bytes += half.size_bytes
            left = len(records)
            while left:
                note, count = notes.pop(0)
                taken = min(count, left)
                half.notes.append((note, taken))
                left -= taken
                if taken < count:
                    notes.insert(0, (note, count - taken))
            yield half

    def _again(self, place: Place) -> None:
        """Queues the failed batches again, before the others and in their order; no batch is in
        flight any more."""
        place.waiting.extendleft(reversed(place.failed))
        place.failed.clear()
        place.retry_at = self._now_s() + self._backoff_s
        self._active[place] = None

    def _end(self, batch: Batch, error: Exception | None) -> None:
        self.pending_bytes -= batch.size_bytes
        self.pending_batches -= 1
        self._done(batch, error)


def is_passing(error: Exception) -> bool:
    """Returns whether another attempt may succeed: for a retriable KafkaError, and for a
    ClientError other than NotSpokenByBroker, NoTls and AuthenticationFailed."""
    if isinstance(error, KafkaError):
        return error.retriable
    return not isinstance(error, NotSpokenByBroker | NoTls | AuthenticationFailed)


def _first_ms(record: Record | bytes) -> int:
    """Returns the base timestamp of a batch that begins with this record."""
    if isinstance(record, Record) and record.timestamp >= 0:
        return record.timestamp
    return time.time_ns() // 1_000_000


def size_of(record: Record | bytes) -> int:
    """Returns the size in bytes of a record's key, value and headers, without compression. `record`
    of type bytes is a value without a key."""
    if type(record) is bytes:
        return len(record)
    assert isinstance(record, Record)
    size_bytes = len(record.value or b"") + len(record.key or b"")
    for name, value in record.headers:
        size_bytes += RECORD_OVERHEAD_BYTES + len(name.encode()) + len(value or b"")
    return size_bytes


def _rows(answer: Struct) -> Iterator[tuple[str, Struct]]:
    for topic in answer.responses:
        for row in topic.partitionResponses:
            yield topic.name, row


def _error_of(batch: Batch, row: Struct) -> Exception | None:
    if not row.errorCode or row.errorCode == DuplicateSequenceNumber.code:
        return None
    message = row.errorMessage and f"{row.errorMessage} ({name_of(row.errorCode)})"
    for bad in row.recordErrors or ():
        if bad.batchIndexErrorMessage and not message:
            message = f"record {bad.batchIndex}: {bad.batchIndexErrorMessage}"
    try:
        raise_for(row.errorCode, batch.place.what, message)
    except KafkaError as error:
        return error
    return None


def producer_identity(cluster: Cluster) -> tuple[int, int]:
    """Returns a new producer id and its epoch; -1 and -1 from a broker before Kafka 0.11, which
    gives none. Raises KafkaError, ClientError; it does not retry."""
    connection = cluster.any_connection()
    if INIT_PRODUCER_ID not in connection.versions:
        return -1, -1
    body = request(INIT_PRODUCER_ID).cls(transactionalId=None, transactionTimeoutMs=60_000)
    answer = connection.call(INIT_PRODUCER_ID, body, high=5)
    raise_for(answer.errorCode, "producer id")
    return int(answer.producerId), int(answer.producerEpoch)
