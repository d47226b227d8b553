"""The leaders of the partitions that one thread sends to, cached.

Metadata of a topic is fetched again every `refresh_ms`, and after an answer or a broken connection
showed that it is old. A subclass may learn of changes by other means (ZookeeperBrokers of the old
producer watches ZooKeeper). Nothing here waits for a broker to come back: the sender decides when
to try again.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from barnabas.client.cluster import Cluster, Topic
from barnabas.client.failures import raise_for
from barnabas.errors import UnknownTopicOrPartition

TOPICS_MAX = 10_000  # in the cache


class Brokers:
    """`refresh_ms`: -1 fetches metadata after errors only. `owns_cluster`: `close` closes the
    cluster too. Raises what `Cluster` raises."""

    def __init__(
        self,
        cluster: Cluster,
        refresh_ms: int,
        now_s: Callable[[], float] = time.monotonic,
        *,
        owns_cluster: bool = True,
    ) -> None:
        self.cluster, self._owns_cluster = cluster, owns_cluster
        self._refresh_s = refresh_ms / 1000 if refresh_ms > 0 else float("inf")
        self._now_s = now_s
        self._known: dict[str, tuple[Topic, float]] = {}

    def topic(self, name: str) -> Topic:
        """The topic with its partitions; a broker with auto.create.topics.enable creates it now.
        Raises KafkaError, ClientError."""
        found = self._known.get(name)
        if found is not None and self._now_s() < found[1]:
            return found[0]
        return self._ask(name)

    def _ask(self, name: str) -> Topic:
        self.cluster.forget(name)
        for row in self.cluster.refresh([name], create=True):
            raise_for(row.errorCode, f"topic {name}")
        # The cluster has it in its cache now: `topic` sends no request.
        topic = self.cluster.topic(name)
        if not topic.partitions:
            raise UnknownTopicOrPartition(f"topic {name} has no partitions yet")
        if len(self._known) >= TOPICS_MAX:
            del self._known[next(iter(self._known))]
        self._known[name] = (topic, self._now_s() + self._refresh_s)
        return topic

    def forget(self, name: str) -> None:
        """Drops a topic from the cache: its metadata is out of date."""
        self._known.pop(name, None)
        self.cluster.forget(name)

    def poll(self) -> None:
        """Applies changes that were seen meanwhile; called often, by the thread that sends."""

    def close(self) -> None:
        if self._owns_cluster:
            self.cluster.close()
