"""Counts the events of share groups on this broker since it started, for the broker's metrics.

The counts follow Kafka: a request counts once for each of its topics, an acknowledgement once for
each record. The counts of a topic are removed with the topic; the sums keep them. Next:
telemetry/share_metrics.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from barnabas.cext.memory.histogram import Times

if TYPE_CHECKING:
    from barnabas.coordinator.share.share_partition import Acknowledgement

FETCHES, FAILED_FETCHES, ACKNOWLEDGEMENTS, FAILED_ACKNOWLEDGEMENTS = range(4)
KINDS = 5  # kinds of acknowledgement: gap, accept, release, reject, renew


class ShareCounts:
    """The counts of one broker. Any thread may count."""

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self.monotonic_ns = monotonic_ns
        self._lock = threading.Lock()
        self.sums = [0, 0, 0, 0]
        self._by_topic: dict[str, list[int]] = {}
        self.records = [0] * KINDS  # acknowledged records, by kind
        self.loads = Times()  # load times of partitions, in ns
        self.writes = Times()  # times until states were durable, in ns
        self.rebalances = 0

    def count(self, what: int, topics: Iterable[str]) -> None:
        """Counts one event of the kind `what` for each topic."""
        with self._lock:
            for topic in topics:
                self.sums[what] += 1
                self._by_topic.setdefault(topic, [0, 0, 0, 0])[what] += 1

    def acknowledged(self, parts: Sequence[Acknowledgement]) -> None:
        """Counts acknowledged records by kind."""
        with self._lock:
            for part in parts:
                if len(part.kinds) == 1:
                    self.records[part.kinds[0]] += part.last - part.first + 1
                else:
                    for kind in part.kinds:
                        self.records[kind] += 1

    def rebalanced(self) -> None:
        """Counts a rebalance."""
        with self._lock:
            self.rebalances += 1

    def by_topic(self) -> dict[str, tuple[int, ...]]:
        """Returns the counts of each topic, by the kind of event."""
        with self._lock:
            return {topic: tuple(row) for topic, row in self._by_topic.items()}

    def forget_topics(self, is_there: Callable[[str], bool]) -> None:
        """Removes the counts of topics for which `is_there` returns False."""
        with self._lock:
            for topic in [name for name in self._by_topic if not is_there(name)]:
                del self._by_topic[topic]
