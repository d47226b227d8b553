"""The request classes of the old SimpleConsumer.

FetchRequest is 0.7's: one partition. FetchRequestBuilder is 0.8's and makes a request for several.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

T = TypeVar("T")

EARLIEST = -2
LATEST = -1
MAX_WAIT_MS = 0  # 0.8's own default: a fetch that finds nothing is answered at once
MIN_BYTES = 0


class TopicAndPartition(NamedTuple):
    """A partition's name; any pair (topic, partition) is equal to it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"[{self.topic},{self.partition}]"


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Records of one partition from an offset on: at most max_size bytes, or one batch when it is
    larger, because today's brokers send whole batches."""

    topic: str
    partition: int
    offset: int
    max_size: int

    def __post_init__(self) -> None:
        if self.partition < 0 or self.offset < 0 or self.max_size <= 0:
            raise ValueError(f"{self} asks for nothing: offsets begin at 0, sizes at 1")


@dataclass(frozen=True, slots=True)
class MultiFetchRequest:
    """Several partitions in one request. The broker waits up to max_wait_ms for min_bytes."""

    fetches: tuple[FetchRequest, ...]
    max_wait_ms: int = MAX_WAIT_MS
    min_bytes: int = MIN_BYTES

    def __post_init__(self) -> None:
        if not self.fetches:
            raise ValueError("a fetch request names no partition")


@dataclass(slots=True)
class FetchRequestBuilder:
    """`FetchRequestBuilder().add_fetch("news", 0, 17, 100_000).max_wait(500).build()`."""

    _fetches: dict[TopicAndPartition, FetchRequest] = field(default_factory=dict)
    _max_wait_ms: int = MAX_WAIT_MS
    _min_bytes: int = MIN_BYTES

    def add_fetch(
        self, topic: str, partition: int, offset: int, fetch_size: int
    ) -> FetchRequestBuilder:
        """Adds a partition; a second call for the same partition replaces the first."""
        row = FetchRequest(topic, partition, offset, fetch_size)
        self._fetches[TopicAndPartition(topic, partition)] = row
        return self

    def max_wait(self, milliseconds: int) -> FetchRequestBuilder:
        """How long the broker may wait for min_bytes, in ms."""
        self._max_wait_ms = milliseconds
        return self

    def min_bytes(self, size_bytes: int) -> FetchRequestBuilder:
        """The number of bytes with which the broker answers before the wait is over."""
        self._min_bytes = size_bytes
        return self

    def build(self) -> MultiFetchRequest:
        """The request. Raises ValueError when nothing was added."""
        return MultiFetchRequest(tuple(self._fetches.values()), self._max_wait_ms, self._min_bytes)


def by_topic(rows: Iterable[tuple[tuple[str, int], T]]) -> dict[str, list[T]]:
    """The values of partitions, grouped by topic as in a request."""
    found: dict[str, list[T]] = defaultdict(list)
    for (topic, _), row in rows:
        found[topic].append(row)
    return found
