"""The idempotent producers of a simulated cluster.

A producer sends batches with acks=all, up to IN_FLIGHT_MAX for each partition at a time, and sends
each one again, with the same sequence numbers, until it is acknowledged or its topic is deleted. As
in Kafka, a log takes any first sequence number of a producer that it does not know: so the first
batch is acknowledged before others are sent. Requests name the topic by its id, and go to the
broker that some broker names as the leader. They and their answers may be lost; a lost request may
arrive later, after its batch was sent again.

The value of a record is its producer and its sequence number, so the judge sees duplicates, gaps,
and records in the log of another topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.cext.produce.produce import ParkedProduce
from barnabas.cext.record.records import encode_batch
from barnabas.errors import OutOfOrderSequenceNumber
from barnabas.metadata.znodes import uuid_bytes
from barnabas.wire import request, response
from barnabas.wire.headers import decode_response_header, encode_request

if TYPE_CHECKING:
    from simulation.base_world import BaseWorld
    from simulation.judge import Log
    from simulation.node import SimNode

PRODUCE, PRODUCE_VERSION = 0, 13  # the first version with topic ids
PRODUCERS, IN_FLIGHT_MAX, RECORDS_MAX = 3, 5, 3
TIMEOUT_MS = 5000
FIRST_ID = 1 << 40  # above the producer ids that brokers give


@dataclass(slots=True, eq=False)
class Batch:
    """A batch until it is acknowledged. `waiting`: the broker, and the request that waits for
    followers there; None: the batch must be sent again."""

    sequence: int
    values: list[bytes]
    waiting: tuple[SimNode, ParkedProduce] | None = None


@dataclass(slots=True, eq=False)
class Sequences:
    """A producer's batches for one partition, oldest first. `producer_id` is of its own."""

    producer_id: int
    next: int = 0
    in_flight_max: int = 1
    first: int | None = None  # the offset of its first acknowledged record
    batches: list[Batch] = field(default_factory=list)


class Producers:
    """The producers of a world."""

    def __init__(self, world: BaseWorld) -> None:
        self._world = world
        self._sequences: dict[tuple[int, Log], Sequences] = {}
        self._waiting: list[tuple[Log, Sequences, Batch]] = []
        self._logs: frozenset[Log] = frozenset()  # that exist
        self._ids = FIRST_ID

    @property
    def is_idle(self) -> bool:
        """Whether every batch of an existing topic is acknowledged."""
        self._world.partitions()
        return not any(
            row.batches for (_, log), row in self._sequences.items() if log in self._world.logs
        )

    def is_idle_in(self, log: Log) -> bool:
        """Returns whether every batch for one log is acknowledged."""
        return not any(row.batches for (_, key), row in self._sequences.items() if key == log)

    def send(self, may_begin: bool) -> None:
        """Sends one batch: one that was not acknowledged, or, with `may_begin`, a new one."""
        world = self._world
        topics = world.choice(world.alive()).reader.state.topics
        places = [(name, index) for name in world.TOPICS if name in topics
                  for index in topics[name].partitions]  # fmt: skip
        if not places:
            return
        name, index = world.choice(places)
        topic_id, state = topics[name].topic_id, topics[name].partitions[index].state
        if topic_id is None or state is None or state.leader not in world.brokers:
            return
        leader = world.brokers[state.leader]
        if not leader.is_running or leader.is_paused:
            return
        log = uuid_bytes(topic_id), index
        self.send_to(leader, log, may_begin)

    def send_again(self, leader: SimNode) -> None:
        """Sends one batch that was not acknowledged to a broker that leads all partitions."""
        left = [
            (log, rows, batch)
            for (_, log), rows in self._sequences.items()
            for batch in rows.batches
            if batch.waiting is None and log in self._world.logs
        ]
        if left:
            self._send(leader, *self._world.choice(left))

    def send_to(self, leader: SimNode, log: Log, may_begin: bool) -> None:
        """As `send`, for one partition."""
        world = self._world
        rows = self._sequences.setdefault((world.below(PRODUCERS), log), self._new())
        again = [batch for batch in rows.batches if batch.waiting is None]
        if again:
            self._send(leader, log, rows, world.choice(again))
        elif may_begin and len(rows.batches) < rows.in_flight_max:
            count = 1 + world.below(RECORDS_MAX)
            values = [b"%d:%d" % (rows.producer_id, rows.next + row) for row in range(count)]
            world.judge.send(log, values)
            rows.batches.append(Batch(rows.next, values))
            rows.next += count
            world.counts["produced"] += count
            self._send(leader, log, rows, rows.batches[-1])

    def _new(self) -> Sequences:
        self._ids += 1
        return Sequences(self._ids)

    def _send(self, leader: SimNode, log: Log, rows: Sequences, batch: Batch) -> None:
        frame = self._frame(leader, log, rows, batch)
        if self._world.loses(PRODUCE, leader, frame):
            return
        answer = leader.handle(frame)
        if isinstance(answer, ParkedProduce):
            batch.waiting = leader, answer
            self._waiting.append((log, rows, batch))
        elif answer is not None:
            self._answered(leader, log, rows, batch, answer)

    def _frame(self, leader: SimNode, log: Log, rows: Sequences, batch: Batch) -> bytes:
        message = request(PRODUCE)
        records = encode_batch(
            batch.values,
            base_timestamp=leader.system.wall_ms(),
            producer_id=rows.producer_id,
            producer_epoch=0,
            base_sequence=batch.sequence,
        )
        part = message.struct("topicData.partitionData")(index=log[1], records=records)
        topic = message.struct("topicData")(topicId=log[0], partitionData=[part])
        body = message.cls(acks=-1, timeoutMs=TIMEOUT_MS, topicData=[topic])
        return encode_request(PRODUCE, PRODUCE_VERSION, 1, "client", body, framed=False)

    def poll(self) -> None:
        """Takes the answers to requests that waited for followers, from the brokers that have done
        something in this step, and forgets the batches of deleted topics."""
        world = self._world
        if self._logs is not world.logs:
            self._logs = world.logs
            for (producer, log), rows in list(self._sequences.items()):
                if log not in world.logs:
                    del self._sequences[producer, log]
                    rows.batches.clear()
        for log, rows, batch in list(self._waiting):
            assert batch.waiting is not None
            if batch in rows.batches and batch.waiting[0] in world.touched:
                self._poll(log, rows, batch, *batch.waiting)
            if batch.waiting is None or batch not in rows.batches:
                self._waiting.remove((log, rows, batch))

    def lost(self, broker: SimNode) -> None:
        """Drops what waits at a broker that is killed."""
        for _, _, batch in self._waiting:
            if batch.waiting is not None and batch.waiting[0] is broker:
                batch.waiting = None
        self._waiting = [row for row in self._waiting if row[2].waiting is not None]

    def take_back(self, ends: Mapping[Log, int]) -> None:
        """Lets a producer begin anew whose acknowledged records a power cut has taken, all of
        those in one log: the log takes any sequence number of it."""
        for (producer, log), rows in list(self._sequences.items()):
            if rows.first is not None and rows.first >= ends.get(log, 0):
                del self._sequences[producer, log]

    def _poll(
        self,
        log: Log,
        rows: Sequences,
        batch: Batch,
        leader: SimNode,
        parked: ParkedProduce,
    ) -> None:
        if not leader.is_paused:
            answer = parked.resume(0)
            if isinstance(answer, bytes):
                batch.waiting = None
                if not self._world.loses_answer(PRODUCE, leader):
                    self._answered(leader, log, rows, batch, answer[4:])

    def _answered(
        self, leader: SimNode, log: Log, rows: Sequences, batch: Batch, frame: bytes
    ) -> None:
        _, at = decode_response_header(frame, PRODUCE, PRODUCE_VERSION)
        found = response(PRODUCE).decode(frame, PRODUCE_VERSION, at)
        part = found.responses[0].partitionResponses[0]
        world = self._world
        if part.errorCode == 0:
            rows.batches.remove(batch)
            rows.in_flight_max = IN_FLIGHT_MAX
            rows.first = part.baseOffset if rows.first is None else rows.first
            world.counts["acknowledged"] += len(batch.values)
            for delta, value in enumerate(batch.values):
                world.judge.acknowledge(log, part.baseOffset + delta, value)
            return
        world.counts[f"error {part.errorCode}"] += 1
        is_first = rows.batches[0] is batch
        if (
            part.errorCode == OutOfOrderSequenceNumber.code
            and is_first
            and world.leads(leader, log)
        ):
            self._out_of_order(log, rows, batch)

    def _out_of_order(self, log: Log, rows: Sequences, batch: Batch) -> None:
        """Handles the refusal of the oldest batch by the present leader. A log that was opened
        again knows the last batch of a producer only, as in Kafka: when later batches were sent, it
        may refuse a repetition of this one, and the producer begins anew. Otherwise the log has
        lost the batch before, or its sequence numbers."""
        if log not in self._world.judge.lossy and rows.next == batch.sequence + len(batch.values):
            self._world.judge.report(f"{log}: {batch.values[0]!r} is out of order")
        for key, value in list(self._sequences.items()):
            if value is rows:
                del self._sequences[key]
