"""The producer of a compacted topic of a simulated broker.

It writes values and tombstones of a few keys, with acks=all, each again until it is acknowledged.
Checked when the broker has started again, and at the end: no record is in the log that was not
sent; an acknowledged one is at its offset, unless the log has a later one of its key; a key whose
deletion was acknowledged has no earlier value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.log_rows import Violation

from barnabas.cext.produce.produce import ParkedProduce
from barnabas.cext.record.records import Record
from barnabas.metadata.znodes import uuid_bytes
from barnabas.wire import request, response
from barnabas.wire.batches import decode_batches, encode_batch
from barnabas.wire.headers import decode_response_header, encode_request

if TYPE_CHECKING:
    from simulation.base_world import BaseWorld
    from simulation.node import SimNode

    from barnabas.cext.log.log_handle import LogHandle

PRODUCE, VERSION, TIMEOUT_MS = 0, 13, 5000
KEYS, DELETES = 6, 0.1
PRODUCER_ID = 1 << 41  # above those that brokers give, and those of clients.py
READ_BYTES = 1 << 20

Content = tuple[bytes, bytes | None]  # key and value


def rows_of(log: LogHandle) -> dict[int, Content]:
    """Returns key and value of all records of a log, by offset."""
    found: dict[int, Content] = {}
    at = log.start_offset
    while at < log.end_offset:
        batches = list(decode_batches(log.read(at, READ_BYTES), size_max=READ_BYTES))
        for batch in batches:
            for row in batch.records:
                assert row.key is not None
                value = None if row.value is None else bytes(row.value)
                found[row.offset] = bytes(row.key), value
        if not batches:
            break  # at the end, offsets may have no record
        at = batches[-1].last_offset + 1
    return found


class Keyed:
    """The producer of a world with one broker. It writes to partition 0 of `topic`."""

    def __init__(self, world: BaseWorld, topic: str) -> None:
        self._world, self.topic = world, topic
        self._number, self._producer_id = 0, PRODUCER_ID
        self._sent: set[Content] = set()
        self._acknowledged: dict[int, Content] = {}  # by offset
        self._batch: Content | None = None  # not acknowledged yet
        self._waiting: ParkedProduce | None = None
        self._perhaps_deleted: dict[bytes, int] = {}  # by key: from which offset on

    @property
    def is_idle(self) -> bool:
        return self._batch is None

    def send(self, may_begin: bool) -> None:
        """Sends the batch that is not acknowledged, or, with `may_begin`, a new one."""
        world = self._world
        if self._waiting is not None or (self._batch is None and not may_begin):
            return
        if self._batch is None:
            self._batch = self._new_batch()
            self._sent.add(self._batch)
        for broker in world.alive():
            answer = broker.handle(self._frame(broker, self._batch))
            if isinstance(answer, ParkedProduce):
                self._waiting = answer
            elif isinstance(answer, bytes):
                self._answered(answer)

    def _new_batch(self) -> Content:
        key, is_deleted = b"%d" % self._world.below(KEYS), self._world.happens(DELETES)
        return key, None if is_deleted else b"%s:%d" % (key, self._number)

    def _frame(self, broker: SimNode, batch: Content) -> bytes:
        message = request(PRODUCE)
        key, value = batch
        records = encode_batch(
            [Record(value, key=key, timestamp=broker.system.wall_ms())],
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=self._number,
        )
        topic_id = broker.reader.state.topics[self.topic].topic_id
        part = message.struct("topicData.partitionData")(index=0, records=records)
        topic = message.struct("topicData")(topicId=uuid_bytes(topic_id), partitionData=[part])
        body = message.cls(acks=-1, timeoutMs=TIMEOUT_MS, topicData=[topic])
        return encode_request(PRODUCE, VERSION, 1, "client", body, framed=False)

    def lost(self, _broker: SimNode) -> None:
        self._waiting = None

    def poll(self) -> None:
        for broker in self._world.alive():
            answer = None if self._waiting is None else self._waiting.resume(0)
            if isinstance(answer, bytes) and not self._world.loses_answer(PRODUCE, broker):
                self._waiting = None
                self._answered(answer[4:])

    def _answered(self, frame: bytes) -> None:
        _, at = decode_response_header(frame, PRODUCE, VERSION)
        found = response(PRODUCE).decode(frame, VERSION, at)
        part = found.responses[0].partitionResponses[0]
        if part.errorCode:
            self._world.counts[f"error {part.errorCode}"] += 1
            return
        assert self._batch is not None
        self._acknowledged[part.baseOffset] = self._batch
        self._world.counts[f"acknowledged in {self.topic}"] += 1
        self._batch, self._number = None, self._number + 1

    def take_back(self, end: int) -> None:
        """Forgets the acknowledged records from an offset on, which a power cut has taken."""
        left = {at: content for at, content in self._acknowledged.items() if at < end}
        if len(left) < len(self._acknowledged):  # the log may not know the producer any more
            # In a compacted log, records behind a gap that a power cut has left may stay.
            gone = {at: row for at, row in self._acknowledged.items() if at >= end}
            if self._batch is not None:
                gone[max(gone) + 1] = self._batch
            self._perhaps_deleted |= {key: at for at, (key, value) in gone.items() if value is None}
            self._acknowledged, self._number, self._batch = left, 0, None
            self._producer_id += 1

    def check(self, log: LogHandle) -> None:
        """Checks the content of the log. Raises Violation."""
        there = rows_of(log)
        newest = {key: offset for offset, (key, _) in sorted(there.items())}
        for offset, content in there.items():
            if content not in self._sent:
                raise Violation(f"{self.topic}: {content} at offset {offset} was not sent")
            if self._acknowledged.get(offset, content) != content:
                raise Violation(f"{self.topic}: {content} is at offset {offset}, where"
                                f" {self._acknowledged[offset]} was acknowledged")  # fmt: skip
        last = {key: offset for offset, (key, _) in sorted(self._acknowledged.items())}
        for key, offset in last.items():
            content, found = self._acknowledged[offset], newest.get(key, -1)
            is_deleted = self._batch == (key, None) or self._perhaps_deleted.get(key, -1) > offset
            is_gone = found < 0 and (content[1] is None or is_deleted)
            if found < offset and not is_gone:
                now = there.get(found)
                raise Violation(f"{self.topic}: {content} was acknowledged at offset {offset}, and"
                                f" the newest of its key is {now}")  # fmt: skip
