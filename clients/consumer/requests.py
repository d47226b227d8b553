"""The request classes of the old SimpleConsumer.

FetchRequest is from 0.7 and names one partition. FetchRequestBuilder is from 0.8 and builds a
request for several partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

T = TypeVar("T")

EARLIEST = -2
LATEST = -1
MAX_WAIT_MS = 0  # the default of 0.8: a broker answers at once, also without data
MIN_BYTES = 0


class TopicAndPartition(NamedTuple):
    """The name of a partition; it is equal to any pair (topic, partition)."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"[{self.topic},{self.partition}]"


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Requests records of one partition from an offset on: at most max_size bytes, or one batch
    when the batch is larger, because current brokers send whole batches. Raises ValueError."""

    topic: str
    partition: int
    offset: int
    max_size: int

    def __post_init__(self) -> None:
        if self.partition < 0 or self.offset < 0 or self.max_size <= 0:
            raise ValueError(f"{self}: the offset must be 0 or greater, the size 1 or greater")


@dataclass(frozen=True, slots=True)
class MultiFetchRequest:
    """Several partitions in one request. The broker waits up to max_wait_ms for min_bytes."""

    fetches: tuple[FetchRequest, ...]
    max_wait_ms: int = MAX_WAIT_MS
    min_bytes: int = MIN_BYTES

    def __post_init__(self) -> None:
        if not self.fetches:
            raise ValueError("a fetch request must name at least one partition")


@dataclass(slots=True)
class FetchRequestBuilder:
    """Builds a request: `FetchRequestBuilder().add_fetch("news", 0, 17, 100_000).build()`."""

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
        """Sets how long the broker may wait for min_bytes, in ms."""
        self._max_wait_ms = milliseconds
        return self

    def min_bytes(self, size_bytes: int) -> FetchRequestBuilder:
        """Sets the number of bytes with which the broker responds before the wait is over."""
        self._min_bytes = size_bytes
        return self

    def build(self) -> MultiFetchRequest:
        """Returns the request. Raises ValueError when it names no partition."""
        return MultiFetchRequest(tuple(self._fetches.values()), self._max_wait_ms, self._min_bytes)


def by_topic(rows: Iterable[tuple[tuple[str, int], T]]) -> dict[str, list[T]]:
    """Groups the values of partitions by topic, as in a request."""
    found: dict[str, list[T]] = defaultdict(list)
    for (topic, _), row in rows:
        found[topic].append(row)
    return found
