"""Chunks that fetchers pass to streams, in a bounded queue for each stream.

A chunk is the part of one fetch response for one partition: its batches, with checked checksums,
not yet decoded. A queue holds `queued.max.message.chunks`. A chunk that does not fit stays with its
partition, which is not fetched again until the chunk fits, so a slow stream never delays another.
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
    """A partition that a stream owns between two rebalances.

    The fetchers change `fetch_offset`. The stream changes `consumed` and `in_hand`: it has returned
    every message up to the one in hand. After `is_over` the stream returns none of its messages."""

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
        self.waiting: Chunk | None = None  # a chunk that did not fit into the queue
        self.is_over = False

    @property
    def position(self) -> int:
        """Returns the offset after the last returned message; UNKNOWN_OFFSET before the first
        fetch."""
        hand = self.in_hand
        return self.consumed if hand is None else hand.offset + 1


@dataclass(slots=True)
class Chunk:
    """Batches of one partition from `offset` to `next_offset`, or the error of the partition."""

    info: PartitionInfo
    offset: int
    next_offset: int
    batches: list[Batch] = field(default_factory=list)
    error: Exception | None = None


class QueueEmpty(Exception):
    """No chunk arrived within the timeout."""


class ChunkQueue:
    """The queue of one stream. It calls `freed`, on the stream's thread, when it is no longer
    full."""

    def __init__(self, chunks_max: int, freed: Callable[[], None]) -> None:
        self._chunks: deque[Chunk] = deque()
        self._chunks_max = chunks_max
        self._freed = freed
        self._closed = False
        self._changed = threading.Condition()

    def offer(self, chunk: Chunk) -> bool:
        """Adds a chunk. Returns False when the queue is full."""
        with self._changed:
            if len(self._chunks) >= self._chunks_max:
                return False
            self._chunks.append(chunk)
            self._changed.notify()
        return True

    def get(self, timeout_s: float | None) -> Chunk | None:
        """Returns the next chunk; None when the queue was closed.

        `timeout_s`: the longest wait in seconds; None is no limit. Raises QueueEmpty."""
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
        """Drops the chunks in the queue."""
        with self._changed:
            self._chunks.clear()

    def close(self) -> None:
        """Ends the stream and drops the chunks in the queue."""
        with self._changed:
            self._closed = True
            self._chunks.clear()
            self._changed.notify_all()
