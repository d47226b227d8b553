"""Delayed delivery: the plugin keeps a record and appends it to its topic when it is due.

    plugins=delay
    produce.interceptors=delay        (a setting of the topic)

The time of a record comes from its header `deliver-at` (ms since 1970, decimal), its header
`deliver-after` (ms, from the arrival at the broker), or `plugin.delay.after.ms`, in this order; a
record without any of them is appended at once. A delayed record leaves its place in the batch
empty: no consumer sees that offset. When the record is due, the plugin appends it at the end of the
same partition with its key, value, timestamp and headers (without those two), so offsets stay in
order and every client works.

    __delayed        key int64 number             value: a delayed record, see _parked
                     key int64 number             value null: that record was delivered

A delayed record is on disk before the producer gets its response, and a delivered record is on disk
before its tombstone. So a crash loses no record. Delivery is at least once: the plugin delivers a
record without a tombstone again, and delays a batch that a producer sends again once more. At a
start the plugin reads the topic from its log start offset, which advances as the oldest records are
delivered. All delayed records are in memory: the plugin rejects batches beyond `pending.max`
records. It needs `isolation=thread`, because it appends records."""

import heapq
import json
import logging
import os
import threading
from base64 import b64decode, b64encode

from barnabas.hooks import Option, Options, Record, RecordBatch, Reject, Replace, Services, hookimpl

log = logging.getLogger("barnabas.plugins.delay")

TOPIC = "__delayed"
AT = "deliver-at"
AFTER = "deliver-after"
WAIT_S = 1.0  # longest time between two reads of the clock, which an operator may set
TRIM_EVERY = 1000  # deliveries
BATCH_RECORDS_MAX = 500


class Delay:
    """Keeps records until they are due, then appends them."""

    OPTIONS = {
        "after.ms": Option(
            "integer", "delay of records without such a header; 0: no delay", 0, least=0
        ),
        "pending.max": Option("integer", "largest number of delayed records", 1_000_000, least=1),
        "topic": Option("text", "the topic of the delayed records", TOPIC),
    }

    def __init__(self, options: Options) -> None:
        self._after_ms = options["after.ms"]
        self._pending_max = options["pending.max"]
        self._topic = options["topic"]
        self._lock = threading.Condition()
        self._due: list[tuple[int, int]] = []  # heap of (due ms, number)
        self._parked: dict[
            int, tuple[int, str, int, Record]
        ] = {}  # number -> (offset, topic, partition)
        self._next = (
            int.from_bytes(os.urandom(5), "big") << 20
        )  # so that the numbers of two runs differ
        self._services: Services | None = None
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._delivered = 0

    @hookimpl
    def broker_started(self, services: Services | None) -> None:
        if services is None:
            raise ValueError("delay appends records: it needs isolation=thread")
        settings = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
        services.create_topic(self._topic, 1, settings)
        self._load(services)
        self._services = services
        self._thread = threading.Thread(
            target=self._run, args=(services,), name="delayed-delivery", daemon=True
        )
        self._thread.start()

    @hookimpl
    def broker_stopping(self) -> None:
        with self._lock:
            self._stopping = True
            self._lock.notify()
        if self._thread is not None:
            self._thread.join()

    def _load(self, services: Services) -> None:
        """Loads the records that were delayed before this start and are not delivered."""
        found: dict[int, tuple[int, int, str, int, Record]] = {}
        for row in services.read(self._topic, 0, 0):
            number = int.from_bytes(row.key or b"", "big")
            if row.value is None:
                found.pop(number, None)
            else:
                due_ms, topic, partition, record = _unparked(row.value)
                found[number] = row.offset, due_ms, topic, partition, record
        with self._lock:
            for number, (offset, due_ms, topic, partition, record) in found.items():
                self._parked[number] = offset, topic, partition, record
                heapq.heappush(self._due, (due_ms, number))

    # -- delaying ---------------------------------------------------------------------------------

    @hookimpl
    def intercept_produce(self, batch: RecordBatch) -> Replace | Reject | None:
        services = self._services
        if services is None:
            raise RuntimeError("the plugin is still loading the delayed records")
        now_ms = services.now_ms()
        kept: list[Record | None] = []
        held: list[tuple[int, Record]] = []
        for index, record in enumerate(batch.records):
            try:
                due_ms = self._due_ms(record, now_ms)
            except ValueError as error:
                return Reject(f"record {index}: {error}")
            kept.append(record if due_ms <= now_ms else None)
            if due_ms > now_ms:
                held.append((due_ms, _without_delay(record)))
        if not held:
            return None
        if batch.transactional:
            return Reject("a record of a transaction cannot be delayed")
        with self._lock:
            if len(self._parked) + len(held) > self._pending_max:
                return Reject(f"{len(self._parked)} delayed records are waiting (pending.max)")
            numbers = range(self._next, self._next + len(held))
            self._next += len(held)
        rows = [
            Record(
                _parked(due_ms, batch.topic, batch.partition, record),
                number.to_bytes(8, "big"),
                timestamp=now_ms,
            )
            for number, (due_ms, record) in zip(numbers, held, strict=True)
        ]
        first = services.append(self._topic, 0, rows)
        with self._lock:
            for place, (number, (due_ms, record)) in enumerate(zip(numbers, held, strict=True)):
                self._parked[number] = first + place, batch.topic, batch.partition, record
                heapq.heappush(self._due, (due_ms, number))
            self._lock.notify()
        return Replace(kept)

    def _due_ms(self, record: Record, now_ms: int) -> int:
        """Returns when a record is due, in ms since 1970; 0 for a record without a delay."""
        headers = dict(record.headers)
        if AT in headers:
            return _number(AT, headers[AT])
        if AFTER in headers:
            return now_ms + _number(AFTER, headers[AFTER])
        return now_ms + self._after_ms if self._after_ms else 0

    # -- delivery ---------------------------------------------------------------------------------

    def _run(self, services: Services) -> None:
        while True:
            with self._lock:
                if self._stopping:
                    return
                due = self._take(services.now_ms())
                if not due:
                    self._lock.wait(self._wait_s(services))
                    continue
            try:
                self._deliver(services, due)
            except Exception as error:  # an offline partition may come back
                with self._lock:
                    for entry in due:
                        if entry[1] in self._parked:
                            heapq.heappush(self._due, entry)
                    log.warning("cannot append %d due records; trying again: %s", len(due), error)
                    self._lock.wait(WAIT_S)

    def _wait_s(self, services: Services) -> float:
        if not self._due:
            return WAIT_S
        return min(max((self._due[0][0] - services.now_ms()) / 1000, 0.001), WAIT_S)

    def _take(self, now_ms: int) -> list[tuple[int, int]]:
        """Returns the due records of one partition, by time. The caller holds the lock."""
        taken: list[tuple[int, int]] = []
        where = None
        while self._due and self._due[0][0] <= now_ms and len(taken) < BATCH_RECORDS_MAX:
            _, topic, partition, _ = self._parked[self._due[0][1]]
            if where not in (None, (topic, partition)):
                break
            where = topic, partition
            taken.append(heapq.heappop(self._due))
        return taken

    def _deliver(self, services: Services, due: list[tuple[int, int]]) -> None:
        with self._lock:
            rows = [self._parked[number] for _, number in due]
        _, topic, partition, _ = rows[0]
        if services.partition_count(topic) > partition:
            services.append(topic, partition, [record for *_, record in rows])
        else:
            log.warning(
                "dropped %d delayed records: %s-%d no longer exists", len(rows), topic, partition
            )
        now_ms = services.now_ms()
        ticks = [Record(None, number.to_bytes(8, "big"), timestamp=now_ms) for _, number in due]
        last = services.append(self._topic, 0, ticks)
        with self._lock:
            for _, number in due:
                del self._parked[number]
            self._delivered += len(due)
            trims = self._delivered >= TRIM_EVERY or not self._parked
            oldest = min((row[0] for row in self._parked.values()), default=last)
            if trims:
                self._delivered = 0
        if trims:
            services.delete_records(self._topic, 0, oldest)


def _number(name: str, value: bytes | None) -> int:
    text = (value or b"").decode("ascii", "replace")
    if not text.isdecimal() or len(text) > 15:
        raise ValueError(f"its header {name} is {text[:40]!r}; it must be a number of ms")
    return int(text)


def _without_delay(record: Record) -> Record:
    return Record(
        record.value,
        record.key,
        timestamp=record.timestamp,
        headers=[row for row in record.headers if row[0] not in (AT, AFTER)],
    )


def _parked(due_ms: int, topic: str, partition: int, record: Record) -> bytes:
    """Returns a delayed record as JSON, with bytes in base64."""
    said = {
        "due_ms": due_ms,
        "topic": topic,
        "partition": partition,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }
    return json.dumps(said, separators=(",", ":")).encode()


def _unparked(data: bytes) -> tuple[int, str, int, Record]:
    said = json.loads(data)
    record = Record(
        _bytes(said["value"]),
        _bytes(said["key"]),
        timestamp=said["timestamp"],
        headers=[(name, _bytes(value)) for name, value in said["headers"]],
    )
    return said["due_ms"], said["topic"], said["partition"], record


def _text(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
