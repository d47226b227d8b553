"""Sticky: all records of one send go to one partition, whatever their keys.

    partitioner.class=org.apache.kafka.clients.producer.UniformStickyPartitioner   (or sticky)

The next batch goes to another partition of those that have a leader, chosen at random. Batches are
as large as possible this way, and partitions fill evenly over time.
"""

import random
import threading
from collections.abc import Sequence

from barnabas.hooks import hookimpl

TOPICS_MAX = 10_000  # topics with a stored last partition


class StickyPartitioner:
    """One partition for each batch, whatever the keys."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[str, int] = {}

    @hookimpl
    def choose_partitions(self, topic: str, available: Sequence[int]) -> int:
        with self._lock:
            last = self._last.pop(topic, None)
            others = [partition for partition in available if partition != last]
            chosen = random.choice(others or available)
            self._last[topic] = chosen
            if len(self._last) > TOPICS_MAX:
                del self._last[next(iter(self._last))]
        return chosen
