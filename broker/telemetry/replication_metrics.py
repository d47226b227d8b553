"""Metrics of a broker that replicates: the rates of its throttled replicas, and its fetchers, which
have no samples on a single node; and of moves between its log directories."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from barnabas.cext.log.log_handle import LogError
from barnabas.telemetry.registry import GAUGE, Family, Page, of_mbean

if TYPE_CHECKING:
    from barnabas.server.replica_manager import ReplicaManager
    from barnabas.storage.log_manager import LogManager

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
MOVES_MAX_LAG = of_mbean(
    "kafka.server:type=ReplicaAlterLogDirsManager,name=MaxLag",
    GAUGE,
    "Records that the copy which is furthest behind lacks, of those to other log directories",
    ("clientId",),
)
FAILED_MOVES = of_mbean(
    "kafka.server:type=ReplicaAlterLogDirsManager,name=FailedPartitionsCount",
    GAUGE,
    "Replicas whose last move to another log directory failed",
    ("clientId",),
)
BETWEEN_BROKERS = (LEADER_RATE, FOLLOWER_RATE, MAX_LAG, FAILED_PARTITIONS)
METRICS = (*BETWEEN_BROKERS, MOVES_MAX_LAG, FAILED_MOVES)
CLIENT_ID, MOVES_CLIENT_ID = "Replica", "ReplicaAlterLogDirs"


class ReplicationCollector:
    """`monotonic_ns`: the clock of the network threads and of the fetchers."""

    def __init__(
        self, replicas: ReplicaManager, logs: LogManager, monotonic_ns: Callable[[], int]
    ) -> None:
        self._replicas = replicas
        self._logs = logs
        self._monotonic_ns = monotonic_ns

    def __call__(self, page: Page) -> Iterator[Family]:
        yield from self._between_brokers(page)
        labels = page.labels(clientId=MOVES_CLIENT_ID)
        yield MOVES_MAX_LAG, [(labels, self._max_lag_of_moves())]
        yield FAILED_MOVES, [(labels, len(self._logs.failed_moves))]

    def _max_lag_of_moves(self) -> int:
        found = 0
        for row in self._logs.futures():
            try:
                found = max(found, self._logs.future_lag(row))
            except LogError:
                continue  # the move has ended since the list was made
        return found

    def _between_brokers(self, page: Page) -> Iterator[Family]:
        throttles, fetchers = self._replicas.throttles, self._replicas.fetchers
        if throttles is None or fetchers is None:
            yield from ((metric, []) for metric in BETWEEN_BROKERS)
            return
        now_ms = self._monotonic_ns() // 1_000_000
        yield LEADER_RATE, [("", throttles.leader.rate(now_ms))]
        yield FOLLOWER_RATE, [("", throttles.follower.rate(now_ms))]
        rows = fetchers.states().values()
        labels = page.labels(clientId=CLIENT_ID)
        yield MAX_LAG, [(labels, max((0, *(lag for _, _, lag, _ in rows))))]
        yield FAILED_PARTITIONS, [(labels, sum(waits for *_, waits in rows))]
