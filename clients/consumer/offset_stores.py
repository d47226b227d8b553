"""The stores of a group's offsets: Kafka, ZooKeeper, or both while a group migrates.

With both, commits go to both and the larger offset counts, because a member that knows only one
store may have committed there last.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from barnabas.client.cluster import Cluster
from barnabas.client.failures import ClientError
from barnabas.client.groups import COMMIT_HIGH, FETCH_HIGH, OFFSET_COMMIT, OFFSET_FETCH
from barnabas.clients.consumer.coordinator import Coordinator
from barnabas.clients.consumer.requests import TopicAndPartition
from barnabas.clients.consumer.simple_consumer import (
    commit_body,
    committed_of,
    fetch_offsets_body,
)
from barnabas.errors import KafkaError

Offsets = Mapping[TopicAndPartition, int]


class StoreFailed(Exception):
    """ZooKeeper does not respond, or refuses a request."""


class OffsetStore(Protocol):
    """A store of committed offsets. Methods raise ClientError, KafkaError and StoreFailed."""

    def fetch(self, names: Iterable[TopicAndPartition]) -> dict[TopicAndPartition, int]:
        """Returns the committed offsets, without the partitions that have none."""

    def commit(self, offsets: Offsets, retries: int) -> None:
        """Commits offsets; returns when all are stored. Repeats up to `retries` times."""


class KafkaOffsets:
    """Offsets in __consumer_offsets. `member` returns the member id and generation of a commit."""

    def __init__(
        self,
        group_id: str,
        connect: Callable[[], Cluster],
        member: Callable[[], tuple[str, int]],
        backoff_s: float,
    ) -> None:
        self._group_id = group_id
        self._coordinator = Coordinator(group_id, connect)
        self._member = member
        self._backoff_s = backoff_s
        self._closed = threading.Event()

    def fetch(self, names: Iterable[TopicAndPartition]) -> dict[TopicAndPartition, int]:
        body = fetch_offsets_body(self._group_id, names)
        answer = self._coordinator.call(OFFSET_FETCH, body, low=1, high=FETCH_HIGH)
        for code in _codes(answer):
            self._coordinator.check_code(code)
        return {name: offset for name, offset in committed_of(answer).items() if offset >= 0}

    def commit(self, offsets: Offsets, retries: int) -> None:
        while True:
            try:
                return self._commit(offsets)
            except (KafkaError, ClientError) as error:
                passing = error.retriable if isinstance(error, KafkaError) else True
                if retries <= 0 or not passing or self._closed.wait(self._backoff_s):
                    raise
            retries -= 1

    def close(self) -> None:
        """Closes the connection and ends the repetition of a commit."""
        self._closed.set()
        self._coordinator.close()

    def _commit(self, offsets: Offsets) -> None:
        body = commit_body(self._group_id, offsets, member=self._member())
        answer = self._coordinator.call(OFFSET_COMMIT, body, low=2, high=COMMIT_HIGH)
        for code in _codes(answer):
            self._coordinator.check_code(code)


class BothStores:
    """Two stores; the first is the one of `offsets.storage`."""

    def __init__(self, first: OffsetStore, second: OffsetStore) -> None:
        self._stores = (first, second)

    def fetch(self, names: Iterable[TopicAndPartition]) -> dict[TopicAndPartition, int]:
        asked = list(names)
        first, second = (store.fetch(asked) for store in self._stores)
        return {
            name: max(first.get(name, -1), second.get(name, -1))
            for name in first.keys() | second.keys()
        }

    def commit(self, offsets: Offsets, retries: int) -> None:
        for store in self._stores:
            store.commit(offsets, retries)


def _codes(answer: object) -> Iterable[int]:
    """Yields every error code of a response, the one at the top and those of partitions."""
    if getattr(answer, "errorCode", 0):
        yield answer.errorCode  # type: ignore[attr-defined]
    for topic in answer.topics:  # type: ignore[attr-defined]
        for row in topic.partitions:
            if row.errorCode:
                yield row.errorCode
