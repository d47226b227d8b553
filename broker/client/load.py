"""Load for any Kafka broker: produce, consume, and the latency from one to the other.

One thread; each connection has several requests in flight (pipeline.py). A latency counts from the
time when the request was due. With a rate, the timetable is fixed beforehand, so that a slow answer
also makes the next requests late, as for a real sender. Records are encoded again for each batch,
with its time; records that are read are not examined one by one. An error ends the load.

The load is Python and uses at most one core: it can measure brokers up to some hundred thousand
records a second. bench/loadgen.c reaches more and reports less.
"""

import random
import selectors
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from barnabas.client.cluster import Cluster
from barnabas.client.connection import Connection
from barnabas.client.delivery import RECORD_V2 as PRODUCE_V2
from barnabas.client.delivery import ZSTD_FROM
from barnabas.client.failures import ClientError, raise_for
from barnabas.client.histogram import Histogram
from barnabas.client.offsets import LATEST, list_offsets
from barnabas.client.pipeline import Pipeline
from barnabas.client.producer import ACKS
from barnabas.client.reader import BATCH_BYTES_MAX, FETCH_BYTES, PARTITION_BYTES
from barnabas.client.reader import RECORD_V2 as FETCH_V2
from barnabas.wire import Struct, request
from barnabas.wire.batches import decode_batches, encode_batch
from barnabas.wire.compression import CODECS, ZSTD

PRODUCE, FETCH = 0, 1
POOL = 512  # values that the batches use in turn
WAIT_MAX_S = 0.2  # longest wait for answers between two reads of the clock
WAIT_MS = 500
SILENCE_S = 40.0
WORDS = (
    "order payment click view item user session error retry cart page search price stock".split()
)


@dataclass(slots=True)
class Totals:
    """Totals so far. `latency` is in nanoseconds, of requests or (in `through`) of records."""

    records: int = 0
    requests: int = 0
    size_bytes: int = 0  # of the records' values in produce, of the answers' records in consume
    wire_bytes: int = 0  # of the batches as they were sent or received
    began_ns: int = field(default_factory=time.perf_counter_ns)
    ended_ns: int = 0
    late_ns: int = 0  # longest delay of a request after its due time
    latency: Histogram = field(default_factory=Histogram)

    @property
    def seconds(self) -> float:
        return max((self.ended_ns or time.perf_counter_ns()) - self.began_ns, 1) / 1e9


Tick = Callable[[Totals], None]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The form of the records and how they are sent."""

    record_bytes: int = 100
    batch_records: int = 600
    acks: str = "all"
    codec: str = "none"
    in_flight: int = 5
    connections: int = 1  # to each leader
    rate: float | None = None  # records a second; None: as fast as answers come


@dataclass(frozen=True, kw_only=True)
class Until:
    """The end of a load: the limit that is reached first. None: no limit."""

    records: int | None = None
    seconds: float | None = None


def payloads(record_bytes: int, count: int = POOL, seed: int = 1) -> list[bytes]:
    """Returns values that compress about as well as events in JSON: known words and varying
    numbers. `seed`: the same seed gives the same values."""
    pick = random.Random(seed)
    values = []
    for _ in range(count):
        text = ""
        while len(text) < record_bytes:
            word, other = pick.choice(WORDS), pick.choice(WORDS)
            text += f'{{"{word}": "{other}", "id": {pick.randrange(10**9)}, "at": {pick.random()}}}'
        values.append(text[:record_bytes].encode())
    return values


def produce(cluster: Cluster, topic: str, shape: Shape, until: Until, tick: Tick) -> Totals:
    """Sends batches to all partitions in turn, until `until`; calls `tick` now and then with the
    totals. Returns the totals. Raises ClientError, KafkaError."""
    with _Loop() as loop:
        sender = _Sender(cluster, topic, shape, loop)
        totals = Totals()
        while not sender.is_over(totals, until):
            wait_s = sender.send_due(totals, until)
            for sent, answer, now_ns in loop.answers(wait_s):
                sender.take(sent.note, answer)
                _count(totals, sent.note, now_ns - sent.counted_from_ns)
            tick(totals)
        totals.ended_ns = time.perf_counter_ns()
    return totals


def consume(
    cluster: Cluster, topic: str, offsets: dict[int, int], until: Until, tick: Tick
) -> Totals:
    """Reads from `offsets` (partition -> offset) to the present ends. Raises ClientError,
    KafkaError."""
    found = list_offsets(cluster, topic, dict.fromkeys(offsets, LATEST))
    ends = {index: row.offset for index, row in found.items()}
    with _Loop() as loop:
        fetcher = _Fetcher(cluster, topic, dict(offsets), loop)
        totals = Totals()
        fetcher.finish(ends)
        while fetcher.is_open and not _reached(totals, until):
            fetcher.ask()
            for sent, answer, now_ns in loop.answers(WAIT_MAX_S):
                for batch in fetcher.take(sent.note, answer):
                    totals.records += batch.count
                    totals.size_bytes += batch.size_bytes
                totals.wire_bytes = totals.size_bytes
                totals.requests += 1
                totals.latency.add(now_ns - sent.counted_from_ns)
                fetcher.finish(ends)
            tick(totals)
        totals.ended_ns = time.perf_counter_ns()
    return totals


def through(cluster: Cluster, topic: str, shape: Shape, until: Until, tick: Tick) -> Totals:
    """Produces at a rate and reads at the same time; latency is the time from when a record was due
    until it arrived. Only records of this load count, by the mark in the value."""
    found = list_offsets(
        cluster, topic, dict.fromkeys(cluster.topic(topic, create=True).partitions, LATEST)
    )
    mark = random.Random().randbytes(8)
    with _Loop() as loop:
        sender = _Sender(cluster, topic, shape, loop, mark)
        offsets = {index: row.offset for index, row in found.items()}
        fetcher = _Fetcher(cluster, topic, offsets, loop)
        totals, sent_totals = Totals(), Totals()
        while not sender.is_over(sent_totals, until) or totals.records < sent_totals.records:
            fetcher.ask()
            wait_s = sender.send_due(sent_totals, until)
            for sent, answer, now_ns in loop.answers(wait_s):
                if sent.key == PRODUCE:
                    sender.take(sent.note, answer)
                    _count(sent_totals, sent.note, now_ns - sent.counted_from_ns)
                    continue
                for batch in fetcher.take(sent.note, answer):
                    for record in batch.records:
                        _arrived(totals, record.value, mark, now_ns)
            totals.late_ns = sent_totals.late_ns
            tick(totals)
        totals.ended_ns = time.perf_counter_ns()
    return totals


def _arrived(totals: Totals, value: bytes | None, mark: bytes, now_ns: int) -> None:
    if value is None or value[8:16] != mark:
        return
    totals.records += 1
    totals.requests += 1
    totals.size_bytes += len(value)
    totals.latency.add(now_ns - struct.unpack_from(">q", value)[0])


@dataclass(slots=True)
class _Out:
    """A batch in flight."""

    records: int
    size_bytes: int
    wire_bytes: int
    partition: int


def _count(totals: Totals, out: _Out, latency_ns: int) -> None:
    totals.records += out.records
    totals.size_bytes += out.size_bytes
    totals.wire_bytes += out.wire_bytes
    totals.requests += 1
    totals.latency.add(latency_ns)


def _reached(totals: Totals, until: Until) -> bool:
    if until.records is not None and totals.records >= until.records:
        return True
    return until.seconds is not None and totals.seconds >= until.seconds


class _Loop:
    """Waits for answers of all pipelines."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._lines: list[Pipeline] = []
        self._watched: dict[int, int] = {}
        self._heard = time.monotonic()

    def __enter__(self) -> "_Loop":
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        for line in self._lines:
            line.close()

    def add(self, line: Pipeline) -> Pipeline:
        self._lines.append(line)
        self._selector.register(line, selectors.EVENT_READ, line)
        self._watched[line.fileno()] = selectors.EVENT_READ
        return line

    def answers(self, wait_s: float) -> Iterator:
        """Yields (request, answer, time of arrival) for all answers within `wait_s` seconds;
        returns earlier when some have arrived."""
        for line in self._lines:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if line.wants_out else 0)
            if self._watched[line.fileno()] != events:
                self._selector.modify(line, events, line)
                self._watched[line.fileno()] = events
        waiting = any(line.sent or line.wants_out for line in self._lines)
        for entry, _ in self._selector.select(wait_s):
            self._heard = time.monotonic()
            yield from entry.data.pump()
        if waiting and time.monotonic() - self._heard > SILENCE_S:
            raise ClientError(f"no answer within {SILENCE_S:g} s")
        if not waiting:
            self._heard = time.monotonic()


class _Sender:
    """Sends batches to the partitions of a topic, in turns, at a rate or as fast as answers
    arrive."""

    def __init__(
        self, cluster: Cluster, topic: str, shape: Shape, loop: _Loop, mark: bytes | None = None
    ) -> None:
        self.topic, self.shape, self.mark = topic, shape, mark
        known = cluster.topic(topic, create=True).partitions
        self._lines: dict[int, list[Pipeline]] = {}
        self._places: list[tuple[int, int]] = [(index, p.leader) for index, p in known.items()]
        low = ZSTD_FROM if CODECS[shape.codec] == ZSTD else PRODUCE_V2
        self._version = 0
        for leader in {leader for _, leader in self._places}:
            lines = [
                _line(cluster, topic, self._places, leader, shape.in_flight)
                for _ in range(shape.connections)
            ]
            self._lines[leader] = [loop.add(line) for line in lines]
            self._version = lines[0].connection.version_of(PRODUCE, low)
        values = payloads(shape.record_bytes)
        self._pool = values * (shape.batch_records // POOL + 2)
        self._turn = 0
        self._started = 0  # records sent so far
        self._due_ns = 0
        self._gap_ns = int(1e9 * shape.batch_records / shape.rate) if shape.rate else 0
        self._message = request(PRODUCE)

    def is_over(self, totals: Totals, until: Until) -> bool:
        """Returns whether there is nothing more to send and every request is answered."""
        return self._is_enough(totals, until) and totals.records >= self._started

    def _is_enough(self, totals: Totals, until: Until) -> bool:
        if until.records is not None and self._started >= until.records:
            return True
        return until.seconds is not None and totals.seconds >= until.seconds

    def send_due(self, totals: Totals, until: Until) -> float:
        """Sends the batches that are due; returns how many seconds to wait for answers until the
        next one is."""
        if not self._due_ns:
            self._due_ns = time.perf_counter_ns()
        while not self._is_enough(totals, until):
            now_ns = time.perf_counter_ns()
            if self._gap_ns and self._due_ns > now_ns:
                return min((self._due_ns - now_ns) / 1e9, WAIT_MAX_S)
            line, partition = self._free_line()
            if line is None:
                return WAIT_MAX_S
            due_ns = self._due_ns if self._gap_ns else now_ns
            totals.late_ns = max(totals.late_ns, now_ns - due_ns)
            self._send(line, partition, due_ns, totals, until)
            self._due_ns += self._gap_ns
        return WAIT_MAX_S

    def _free_line(self) -> tuple[Pipeline | None, int]:
        """Returns a connection that can take one more request, and its partition; the partition
        whose turn it is comes first."""
        for step in range(len(self._places)):
            partition, leader = self._places[(self._turn + step) % len(self._places)]
            lines = self._lines[leader]
            for place in range(len(lines)):
                line = lines[(self._turn + place) % len(lines)]
                if line.is_free:
                    self._turn += step + 1
                    return line, partition
        return None, 0

    def _send(
        self, line: Pipeline, partition: int, due_ns: int, totals: Totals, until: Until
    ) -> None:
        count = self.shape.batch_records
        if until.records is not None:
            count = min(count, until.records - self._started)
        values = self._values(count, due_ns)
        size_bytes = sum(map(len, values))
        batch = encode_batch(
            values,
            codec=CODECS[self.shape.codec],
            base_timestamp=time.time_ns() // 1_000_000,
        )
        out = _Out(count, size_bytes, len(batch), partition)
        is_answered = self.shape.acks != "0"
        line.send(
            PRODUCE,
            self._version,
            self._body(partition, batch),
            out,
            counted_from_ns=due_ns,
            is_answered=is_answered,
        )
        self._started += count
        if not is_answered:
            _count(totals, out, time.perf_counter_ns() - due_ns)

    def _values(self, count: int, due_ns: int) -> list[bytes]:
        start = self._started % POOL
        values = self._pool[start : start + count]
        if self.mark is None:
            return values
        head = struct.pack(">q", due_ns) + self.mark
        return [head + value[len(head) :] for value in values]

    def _body(self, partition: int, batch: bytes) -> Struct:
        message = self._message
        rows = [message.struct("topicData.partitionData")(index=partition, records=batch)]
        return message.cls(
            acks=ACKS[self.shape.acks],
            timeoutMs=30_000,
            topicData=[message.struct("topicData")(name=self.topic, partitionData=rows)],
        )

    def take(self, out: _Out, answer: Struct) -> None:
        for row in (row for rows in answer.responses for row in rows.partitionResponses):
            raise_for(row.errorCode, f"partition {out.partition} of topic {self.topic}")


class _Fetcher:
    """Keeps one fetch in flight to each leader, for all its partitions that are not at their
    end."""

    def __init__(self, cluster: Cluster, topic: str, offsets: dict[int, int], loop: _Loop) -> None:
        self.topic, self.offsets = topic, offsets
        known = cluster.topic(topic).partitions
        places = [(index, known[index].leader) for index in offsets]
        self._led: dict[int, list[int]] = {}
        for index, leader in places:
            self._led.setdefault(leader, []).append(index)
        self._lines = {
            leader: loop.add(_line(cluster, topic, places, leader, 1)) for leader in self._led
        }
        self._versions = {
            leader: line.connection.version_of(FETCH, FETCH_V2)
            for leader, line in self._lines.items()
        }
        self._message = request(FETCH)

    @property
    def is_open(self) -> bool:
        return any(self._led.values())

    def finish(self, ends: dict[int, int]) -> None:
        """Stops fetching the partitions that have been read to their end."""
        for leader, led in self._led.items():
            self._led[leader] = [index for index in led if self.offsets[index] < ends[index]]

    def ask(self) -> None:
        for leader, line in self._lines.items():
            if line.is_free and self._led[leader]:
                now_ns = time.perf_counter_ns()
                body = self._body(self._led[leader])
                line.send(FETCH, self._versions[leader], body, leader, counted_from_ns=now_ns)

    def _body(self, partitions: list[int]) -> Struct:
        message = self._message
        row = message.struct("topics.partitions")
        rows = [
            row(partition=i, fetchOffset=self.offsets[i], partitionMaxBytes=PARTITION_BYTES)
            for i in partitions
        ]
        return message.cls(
            replicaId=-1,
            maxWaitMs=WAIT_MS,
            minBytes=1,
            maxBytes=FETCH_BYTES,
            topics=[message.struct("topics")(topic=self.topic, partitions=rows)],
        )

    def take(self, leader: int, answer: Struct) -> Iterator:
        """Yields the batches of an answer, and moves the offsets past them."""
        raise_for(answer.errorCode, f"fetch from broker {leader}")
        for row in (row for rows in answer.responses for row in rows.partitions):
            index = row.partitionIndex
            raise_for(row.errorCode, f"partition {index} of topic {self.topic}")
            batches = decode_batches(
                row.records or b"", size_max=BATCH_BYTES_MAX, partial_tail=True
            )
            for batch in batches:
                if batch.last_offset >= self.offsets[index]:
                    self.offsets[index] = batch.last_offset + 1
                    if not batch.control:
                        yield batch


def _line(
    cluster: Cluster, topic: str, places: list[tuple[int, int]], leader: int, in_flight: int
) -> Pipeline:
    """Opens a separate connection to a leader."""
    partition = next(index for index, led_by in places if led_by == leader)
    found = cluster.retrying(lambda: cluster.leader(topic, partition), topic=topic)
    made = Connection(
        found.host,
        found.port,
        client_id="barnabas-bench",
        connect_timeout_s=cluster.connect_timeout_s,
        answer_timeout_s=cluster.answer_timeout_s,
        security=cluster.security,
    )
    return Pipeline(made, in_flight)
