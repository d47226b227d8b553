"""Round robin: each record goes to the next partition, whatever its key.

    partitioner.class=org.apache.kafka.clients.producer.RoundRobinPartitioner   (or round-robin)

The plugin skips partitions without a leader. Each topic has its own sequence, which begins at a
random partition.
"""

import random
import threading
from collections.abc import Sequence
from typing import Any

from barnabas.hooks import hookimpl

TOPICS_MAX = 10_000  # topics with a stored position; beyond this number the oldest starts again


class RoundRobinPartitioner:
    """Sends each record to the next partition, whatever its key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: dict[str, int] = {}

    @hookimpl
    def choose_partitions(
        self, topic: str, keys: Sequence[Any], available: Sequence[int]
    ) -> Sequence[int]:
        with self._lock:
            first = self._next.pop(topic, None)
            if first is None:
                first = random.randrange(len(available))
            self._next[topic] = first + len(keys)
            if len(self._next) > TOPICS_MAX:
                del self._next[next(iter(self._next))]
        return [available[(first + i) % len(available)] for i in range(len(keys))]
