"""What fetchers hand to streams: chunks, in a bounded queue for each stream.

A chunk is what one answer held of one partition: its batches, whose checksums were checked, not yet
decoded. A queue takes `queued.max.message.chunks`; what does not fit stays with its partition,
which is not asked for again until it does, so that a slow stream never holds up another one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.clients.consumer.messages import MessageAndMetadata
from barnabas.clients.consumer.requests import TopicAndPartition
from barnabas.wire.batches import Batch

UNKNOWN_OFFSET = -1


class PartitionInfo:
    """A partition that a stream owns, from one rebalance to the next.

    `fetch_offset` is the fetchers'; `consumed` and `in_hand` are the stream's, which has given out
    everything up to the message in hand. When it `is_over` nothing more of it is given out."""

    __slots__ = (
        "consumed",
        "fetch_offset",
        "in_hand",
        "is_over",
        "name",
        "queue",
        "waiting",
    )

    def __init__(self, name: TopicAndPartition, queue: ChunkQueue, offset: int) -> None:
        self.name = name
        self.queue = queue
        self.fetch_offset = offset
        self.consumed = offset
        self.in_hand: MessageAndMetadata | None = None
        self.waiting: Chunk | None = None  # found no room in the queue
        self.is_over = False

    @property
    def position(self) -> int:
        """The offset behind the last message given out; UNKNOWN_OFFSET before the first fetch."""
        hand = self.in_hand
        return self.consumed if hand is None else hand.offset + 1


@dataclass(slots=True)
class Chunk:
    """Batches of one partition from `offset` to `next_offset`, or what went wrong instead."""

    info: PartitionInfo
    offset: int
    next_offset: int
    batches: list[Batch] = field(default_factory=list)
    error: Exception | None = None


class QueueEmpty(Exception):
    """Nothing came within the time."""


class ChunkQueue:
    """Of one stream. `freed` is called, on the stream's thread, when there is room again."""

    def __init__(self, chunks_max: int, freed: Callable[[], None]) -> None:
        self._chunks: deque[Chunk] = deque()
        self._chunks_max = chunks_max
        self._freed = freed
        self._closed = False
        self._changed = threading.Condition()

    def offer(self, chunk: Chunk) -> bool:
        """False when it is full."""
        with self._changed:
            if len(self._chunks) >= self._chunks_max:
                return False
            self._chunks.append(chunk)
            self._changed.notify()
        return True

    def get(self, timeout_s: float | None) -> Chunk | None:
        """The next chunk; None when the queue was closed. Raises QueueEmpty."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while not self._chunks and not self._closed:
                left_s = None if deadline is None else deadline - time.monotonic()
                if left_s is not None and left_s <= 0:
                    raise QueueEmpty
                self._changed.wait(left_s)
            if self._closed:
                return None
            found = self._chunks.popleft()
        self._freed()
        return found

    def clear(self) -> None:
        with self._changed:
            self._chunks.clear()

    def close(self) -> None:
        """Ends the stream; what is still in the queue is not given out."""
        with self._changed:
            self._closed = True
            self._chunks.clear()
            self._changed.notify_all()
