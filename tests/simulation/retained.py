"""A topic of a simulated broker whose segments retention deletes, and whose records DeleteRecords
deletes.

Its producer is that of a compacted topic (keyed.py). Checked when the broker has started again, and
at the end: each acknowledged record that was not below the log's start is at its offset; the start
is not below an answered DeleteRecords, and nothing below it can be read. Retention leaves as many
bytes as retention.bytes says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.keyed import Content, Keyed, rows_of
from simulation.log_rows import Violation

from barnabas.cext.log.log_handle import LogError
from barnabas.errors import KafkaStorageError
from barnabas.wire import request, response
from barnabas.wire.headers import decode_response_header, encode_request

if TYPE_CHECKING:
    from simulation.base_world import BaseWorld

    from barnabas.cext.log.log_handle import LogHandle

DELETE_RECORDS, VERSION = 21, 2
BYTES, SEGMENT_BYTES, VALUE_BYTES = 1200, 600, 150


def _number(content: Content | None) -> bytes:
    return b"nothing" if content is None else (content[1] or b"").partition(b":")[0]


class Retained(Keyed):
    """The producer, and who deletes records, of a world with one broker."""

    def __init__(self, world: BaseWorld, topic: str) -> None:
        super().__init__(world, topic)
        self._count = 0
        self._start = 0  # the log's start, as the broker has shown it
        self._asked_to = self._deleted_to = 0

    def _new_batch(self) -> Content:
        self._count += 1
        return b"key", b"%d:" % self._count + bytes(VALUE_BYTES)

    def _log(self) -> LogHandle | None:
        handle = self._world.brokers[1].table.partition(self.topic, 0)
        return None if handle is None else handle.log

    def delete(self) -> None:
        """Deletes the records below an offset, sometimes all."""
        log, (broker,) = self._log(), self._world.alive()
        if log is None or not broker.takes_now(DELETE_RECORDS):
            return
        high_watermark = broker.table.partition(self.topic, 0).high_watermark
        if high_watermark <= log.start_offset:
            return
        offset = log.start_offset + 1 + self._world.below(high_watermark - log.start_offset)
        if self._world.happens(0.7):
            offset = log.start_offset + 1
        self._asked_to = max(self._asked_to, offset)
        message = request(DELETE_RECORDS)
        row = message.struct("topics.partitions")(partitionIndex=0, offset=offset)
        topic = message.struct("topics")(name=self.topic, partitions=[row])
        body = message.cls(topics=[topic], timeoutMs=1000)
        frame = encode_request(DELETE_RECORDS, VERSION, 1, "client", body, framed=False)
        answer = self._world.handled(broker, frame)
        assert isinstance(answer, bytes)
        _, at = decode_response_header(answer, DELETE_RECORDS, VERSION)
        found = response(DELETE_RECORDS).decode(answer, VERSION, at).topics[0].partitions[0]
        if found.errorCode == KafkaStorageError.code and self._world.may_be_offline(
            (self.topic, 0)
        ):
            return
        if found.errorCode:
            raise Violation(f"{self.topic}: DeleteRecords has answered {found.errorCode}")
        self._world.counts["deletions of records"] += 1
        self._deleted_to = max(self._deleted_to, found.lowWatermark)

    def look(self, is_whole: bool = True) -> None:
        """Notes the log's start, and checks what retention has left. `is_whole`: no power cut has
        taken records since the last check."""
        log = self._log()
        if log is None or log.start_offset <= self._start:
            return
        self._start = log.start_offset
        size_bytes = sum(row.size_bytes for row in log.segments())
        if self._start > self._asked_to and is_whole:
            self._world.counts["deletions by retention"] += 1
            if size_bytes < BYTES:
                raise Violation(f"{self.topic}: retention has left {size_bytes} bytes")

    def check(self, log: LogHandle) -> None:
        there, start = rows_of(log), log.start_offset
        if start < self._deleted_to:
            raise Violation(f"{self.topic}: begins at {start}, and the records below"
                            f" {self._deleted_to} were deleted")  # fmt: skip
        for offset, content in there.items():
            if content not in self._sent:
                raise Violation(f"{self.topic}: {_number(content)} at {offset} was not sent")
        for offset, content in self._acknowledged.items():
            if offset >= min(start, self._start) and there.get(offset) != content:
                raise Violation(f"{self.topic}: {_number(content)} was acknowledged at offset"
                                f" {offset}, where {_number(there.get(offset))} is; the log begins"
                                f" at {start}, and began at {self._start}")  # fmt: skip
        try:
            found = log.read(start - 1, 1) if start else b""
        except LogError:
            found = b""
        if found:
            raise Violation(f"{self.topic}: offset {start - 1} is read, and the log begins at"
                            f" {start}")  # fmt: skip
        self._start = start
