"""A cache of the leaders of the partitions that one thread sends to.

Metadata of a topic is fetched again every `refresh_ms`, and when an answer or a broken connection
shows that it is out of date. A subclass may get changes in another way (ZookeeperBrokers of the old
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
    """The cache of one sender. `refresh_ms`: -1 fetches metadata only after errors. `owns_cluster`:
    `close` closes the cluster too. Methods raise what `Cluster` raises."""

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
        """Returns the topic with its partitions; a broker with auto.create.topics.enable creates a
        missing topic now. Raises KafkaError, ClientError."""
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
        """Drops a topic from the cache of this object and of its cluster, because its metadata is
        out of date. The next `topic` asks a broker."""
        self._known.pop(name, None)
        self.cluster.forget(name)

    def poll(self) -> None:
        """Applies the changes that were seen since the last call. The sending thread calls it
        often."""

    def close(self) -> None:
        if self._owns_cluster:
            self.cluster.close()
