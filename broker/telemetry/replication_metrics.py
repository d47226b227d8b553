"""Metrics of a broker that replicates: the rates of its throttled replicas, and its fetchers. They
have no samples on a single node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from barnabas.telemetry.registry import GAUGE, Family, Page, of_mbean

if TYPE_CHECKING:
    from barnabas.server.replica_manager import ReplicaManager

LEADER_RATE = of_mbean(
    "kafka.server:type=LeaderReplication,attribute=byte-rate",
    GAUGE,
    "Bytes a second of throttled partitions that this broker sends to followers",
)
FOLLOWER_RATE = of_mbean(
    "kafka.server:type=FollowerReplication,attribute=byte-rate",
    GAUGE,
    "Bytes a second of throttled partitions that this broker receives from leaders",
)
MAX_LAG = of_mbean(
    "kafka.server:type=ReplicaFetcherManager,name=MaxLag",
    GAUGE,
    "Records by which the followed partition that is furthest behind is behind its leader",
    ("clientId",),
)
FAILED_PARTITIONS = of_mbean(
    "kafka.server:type=ReplicaFetcherManager,name=FailedPartitionsCount",
    GAUGE,
    "Followed partitions that wait for a new leader epoch or for their log",
    ("clientId",),
)
METRICS = (LEADER_RATE, FOLLOWER_RATE, MAX_LAG, FAILED_PARTITIONS)
CLIENT_ID = "Replica"


class ReplicationCollector:
    """`monotonic_ns`: the clock of the network threads and of the fetchers."""

    def __init__(self, replicas: ReplicaManager, monotonic_ns: Callable[[], int]) -> None:
        self._replicas = replicas
        self._monotonic_ns = monotonic_ns

    def __call__(self, page: Page) -> Iterator[Family]:
        throttles, fetchers = self._replicas.throttles, self._replicas.fetchers
        if throttles is None or fetchers is None:
            yield from ((metric, []) for metric in METRICS)
            return
        now_ms = self._monotonic_ns() // 1_000_000
        yield LEADER_RATE, [("", throttles.leader.rate(now_ms))]
        yield FOLLOWER_RATE, [("", throttles.follower.rate(now_ms))]
        rows = fetchers.states().values()
        labels = page.labels(clientId=CLIENT_ID)
        yield MAX_LAG, [(labels, max((0, *(lag for _, _, lag, _ in rows))))]
        yield FAILED_PARTITIONS, [(labels, sum(waits for *_, waits in rows))]
