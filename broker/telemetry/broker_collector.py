"""Collects metrics of topics, partitions, logs and the controller, under Kafka's names and
kafka_exporter's.

Counters come from the partition table, offsets and sizes from one read of each partition, the rest
from the cluster's state; no code here assumes a cluster of one node. With more partitions than
`metrics.max.partitions` the page omits metrics with a partition label, and
`barnabas_partition_metrics` is 0; sums over partitions stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from barnabas.cext.fetch.fetch import FetchHandler
from barnabas.cext.fetch.sessions import FetchSessions
from barnabas.cext.memory.counters import COUNT_NAMES
from barnabas.cext.partition.group_commit import GroupCommit
from barnabas.cext.partition.partition_metrics import (
    PartitionMetrics,
    partition_metrics,
    topic_counts,
)
from barnabas.cext.partition.partitions import PartitionTable
from barnabas.metadata.cluster_state import ClusterState
from barnabas.server.replica_manager import ReplicaManager
from barnabas.storage.log_dirs import disk_space
from barnabas.storage.log_manager import LogManager
from barnabas.telemetry import broker_metrics as m
from barnabas.telemetry.recent import RecentTimes
from barnabas.telemetry.registry import Family, Metric, Page, Sample

PARTITIONS_A_LOOK = 200
TRIES = 3

# Kafka's name of a metric -> the counters of the table that it sums.
BY_TOPIC = {
    m.MESSAGES_IN: ("messages",),
    m.BYTES_IN: ("bytes",),
    m.BYTES_OUT: ("bytes_out",),
    m.PRODUCE_REQUESTS: ("produces",),
    m.FETCH_REQUESTS: ("fetches",),
    m.FAILED_PRODUCES: ("produces_failed",),
    m.FAILED_FETCHES: ("fetches_failed",),
    m.BYTES_REJECTED: ("bytes_rejected",),
    m.PRODUCE_CONVERSIONS: ("produce_conversions",),
    m.FETCH_CONVERSIONS: ("fetch_conversions",),
}
ALL_TOPICS = {
    m.INVALID_CRC: ("rejected_corrupt",),
    m.INVALID_SEQUENCE: ("rejected_sequence",),
    m.NO_KEY: ("rejected_no_key",),
}
REJECTED = tuple(name for name in COUNT_NAMES if name.startswith("rejected_"))


class BrokerParts(NamedTuple):
    """The parts of the broker that the collector reads."""

    node_id: int
    table: PartitionTable
    cluster: Callable[[], ClusterState]
    replicas: ReplicaManager
    unclean_elections: Callable[[], int]  # by this node as the controller
    logs: LogManager
    fetch: FetchHandler
    sessions: FetchSessions
    commits: Iterable[GroupCommit]
    flush_times: Callable[
        [], tuple[int, dict[int, int]]
    ]  # flushes that did not go through the group commit
    partitions_max: Callable[[], int]
    began_ns: int


class BrokerCollector:
    """The collector of one broker."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        self._flushes = RecentTimes(parts.began_ns)

    def __call__(self, page: Page) -> Iterator[Family]:
        yield from self._topics(page)
        yield from self._partitions(page)
        yield from self._cluster(page)
        yield from self._logs(page)
        yield from self._sessions()

    # -- counters by topic ------------------------------------------------------------------------

    def _counts(self) -> tuple[dict[str, tuple[int, ...]], tuple[int, ...]]:
        """Returns the counters by topic, and their sums over all topics, deleted ones included.

        A sum must never shrink: when a topic is deleted during the calculation, this repeats it."""
        table = self._parts.table
        for _ in range(TRIES):
            removals, gone = table.removed_counts()
            found = {}
            for name, _, _ in table.topics():
                counts = topic_counts(table, name)
                if counts is not None:
                    found[name] = counts
            if table.removed_counts()[0] == removals:
                break
        return found, tuple(sum(column) for column in zip(gone, *found.values(), strict=True))

    def _topics(self, page: Page) -> Iterator[Family]:
        by_topic, everything = self._counts()
        labels = {name: page.labels(topic=name) for name in by_topic}

        def picked(counts: tuple[int, ...], names: tuple[str, ...]) -> int:
            return sum(counts[COUNT_NAMES.index(name)] for name in names)

        for metric, names in BY_TOPIC.items():
            samples: list[Sample] = [("", picked(everything, names))]
            samples += [
                (labels[topic], picked(counts, names)) for topic, counts in by_topic.items()
            ]
            yield metric, samples
        for metric, names in ALL_TOPICS.items():
            yield metric, [("", picked(everything, names))]
        yield m.BATCHES, [("", picked(everything, ("batches",)))]
        yield m.DUPLICATES, [("", picked(everything, ("duplicates",)))]
        yield (
            m.BATCHES_REJECTED,
            [
                (page.labels(reason=name.removeprefix("rejected_")), picked(everything, (name,)))
                for name in REJECTED
            ],
        )

    # -- partitions -------------------------------------------------------------------------------

    def _rows(self) -> Iterator[tuple[str, PartitionMetrics]]:
        """Yields every partition on this node, a few at a time."""
        state = self._parts.cluster()
        for name in sorted(state.topics):
            count = 1 + max(state.topics[name].partitions, default=-1)
            for first in range(0, count, PARTITIONS_A_LOOK):
                for row in partition_metrics(self._parts.table, name, first, PARTITIONS_A_LOOK):
                    yield name, row

    def _partitions(self, page: Page) -> Iterator[Family]:
        rows = list(self._rows())
        led = [(name, row) for name, row in rows if row.leader_id == self._parts.node_id]
        yield m.PARTITION_COUNT, [("", len(rows))]
        yield m.LEADER_COUNT, [("", len(led))]
        yield m.UNDER_REPLICATED, [("", sum(is_under_replicated(row) for _, row in led))]
        yield m.UNDER_MIN_ISR, [("", sum(is_under_min_isr(row) for _, row in led))]
        yield m.AT_MIN_ISR, [("", sum(is_at_min_isr(row) for _, row in led))]
        yield m.OFFLINE_REPLICAS, [("", sum(row.offline for _, row in rows))]
        yield m.PRODUCER_IDS, [("", sum(row.producer_count for _, row in rows))]
        has_partition_metrics = len(rows) <= self._parts.partitions_max()
        yield m.PARTITION_METRICS, [("", has_partition_metrics)]
        if has_partition_metrics:
            yield from self._each_partition(page, rows)
            yield m.EXPORTER_PREFERRED, self._preferred(page)

    def _each_partition(
        self, page: Page, rows: list[tuple[str, PartitionMetrics]]
    ) -> Iterator[Family]:
        labelled = [(page.labels(topic=name, partition=row.partition), row) for name, row in rows]
        led = [(label, row) for label, row in labelled if row.leader_id == self._parts.node_id]
        for metric, value in m.OF_LOG.items():
            yield metric, ((label, value(row)) for label, row in labelled)
        for metric, value in OF_LEADER.items():
            yield metric, ((label, value(row)) for label, row in led)
        yield m.EXPORTER_LEADER, ((label, row.leader_id) for label, row in labelled)

    def _preferred(self, page: Page) -> Iterator[Sample]:
        for topic in self._parts.cluster().topics.values():
            for index, row in topic.partitions.items():
                if row.replicas and row.state is not None and not topic.deleting:
                    label = page.labels(topic=topic.name, partition=index)
                    yield label, row.state.leader == row.replicas[0]

    # -- the cluster's state ----------------------------------------------------------------------

    def _cluster(self, page: Page) -> Iterator[Family]:
        state, replicas = self._parts.cluster(), self._parts.replicas
        topics = [topic for topic in state.topics.values() if not topic.deleting]
        partitions = [
            (topic.name, index, row) for topic in topics for index, row in topic.partitions.items()
        ]
        leaders = {
            (name, index): row.state.leader
            for name, index, row in partitions
            if row.state is not None and row.state.leader in state.brokers
        }
        here = {
            place
            for place, leader in leaders.items()
            if leader == self._parts.node_id and replicas.is_offline(*place)
        }
        moving = sum(
            len(topic.assignment.adding_replicas.keys() | topic.assignment.removing_replicas.keys())
            for topic in topics
        )
        is_controller = state.controller_id == self._parts.node_id
        yield m.ACTIVE_CONTROLLER, [("", is_controller)]
        yield m.ACTIVE_BROKERS, [("", len(state.brokers))]
        yield m.TOPICS, [("", len(topics))]
        yield m.PARTITIONS, [("", len(partitions))]
        yield m.OFFLINE_PARTITIONS, [("", len(partitions) - len(leaders) + len(here))]
        yield (
            m.IMBALANCE,
            [
                (
                    "",
                    sum(
                        leaders.get((name, index)) != row.replicas[0]
                        for name, index, row in partitions
                        if row.replicas
                    ),
                )
            ],
        )
        yield m.TOPICS_TO_DELETE, [("", len(state.topics) - len(topics))]
        yield m.REASSIGNING, [("", moving)]
        yield m.UNCLEAN_ELECTIONS, [("", self._parts.unclean_elections())]
        yield m.ISR_SHRINKS, [("", replicas.isr_shrinks)]
        yield m.ISR_EXPANDS, [("", replicas.isr_expands)]
        yield m.EXPORTER_BROKERS, [("", len(state.brokers))]
        yield (
            m.EXPORTER_TOPIC_PARTITIONS,
            [(page.labels(topic=topic.name), len(topic.partitions)) for topic in topics],
        )
        yield (
            m.EXPORTER_BROKER_INFO,
            [
                (page.labels(id=broker.broker_id, address=f"{end.host}:{end.port}"), 1)
                for broker in state.brokers.values()
                for end in broker.registration.endpoints[:1]
            ],
        )

    # -- logs, sessions ---------------------------------------------------------------------------

    def _logs(self, page: Page) -> Iterator[Family]:
        offline = {
            str(row.directory.parent) for row in self._parts.logs.logs() if row.handle.offline
        }
        failed = [str(path) for path in self._parts.logs.failed_directories]
        offline.update(failed)
        everywhere = [str(directory.path) for directory in self._parts.logs.directories()] + failed
        yield m.OFFLINE_DIRECTORIES, [("", len(offline))]
        yield m.FAILED_DISK_CALLS, [("", self._parts.logs.failures_total)]
        yield (
            m.DIRECTORY_OFFLINE,
            [(page.labels(logDirectory=path), path in offline) for path in everywhere],
        )
        yield from self._disks(page)
        sum_ns, buckets = self._parts.flush_times()
        for commit in self._parts.commits:
            more_ns, more = commit.flush_times()
            sum_ns += more_ns
            buckets = {key: buckets.get(key, 0) + more.get(key, 0) for key in buckets | more}
        yield m.FLUSHES, [("", self._flushes.summary(page.now_ns, sum_ns, buckets))]

    def _disks(self, page: Page) -> Iterator[Family]:
        sizes: list[Sample] = []
        free: list[Sample] = []
        for directory in self._parts.logs.directories():
            with suppress(OSError):  # a disk that fails has no sizes
                size_bytes, free_bytes = disk_space(directory.path)
                labels = page.labels(logDirectory=str(directory.path))
                sizes.append((labels, size_bytes))
                free.append((labels, free_bytes))
        yield m.DISK_SIZE, sizes
        yield m.DISK_FREE, free

    def _sessions(self) -> Iterator[Family]:
        sessions, fetch = self._parts.sessions.counters, self._parts.fetch.counters
        yield m.SESSIONS, [("", sessions["sessions"])]
        yield m.SESSION_EVICTIONS, [("", sessions["evicted"])]
        yield m.FETCHES_EXPIRED, [('{fetcherType="consumer"}', fetch["expired"])]
        yield m.COLD_BYTES, [("", fetch["cold_bytes_read"])]
        yield m.CONVERSION_BYTES, [("", fetch["conversion_bytes"])]
        yield m.CONVERSION_WAITS, [("", fetch["conversion_waits"])]


def effective_min_isr(row: PartitionMetrics) -> int:
    """Returns min.insync.replicas, limited to the number of replicas, as produce uses it
    (KIP-966)."""
    return min(row.min_insync_replicas, row.replica_count)


def is_under_replicated(row: PartitionMetrics) -> bool:
    """Returns whether a replica is not in sync, as Kafka's UnderReplicated counts it."""
    return row.isr_count < row.replica_count


def is_under_min_isr(row: PartitionMetrics) -> bool:
    """Returns whether fewer replicas than min.insync.replicas are in sync."""
    return row.isr_count < effective_min_isr(row)


def is_at_min_isr(row: PartitionMetrics) -> bool:
    """Returns whether exactly min.insync.replicas replicas are in sync."""
    return row.isr_count == effective_min_isr(row)


OF_LEADER: dict[Metric, Callable[[PartitionMetrics], int]] = {
    m.PARTITION_UNDER_REPLICATED: is_under_replicated,
    m.PARTITION_UNDER_MIN_ISR: is_under_min_isr,
    m.PARTITION_AT_MIN_ISR: is_at_min_isr,
    m.PARTITION_ISR: lambda row: row.isr_count,
    m.PARTITION_REPLICAS: lambda row: row.replica_count,
    m.PARTITION_STABLE_LAG: lambda row: row.high_watermark - row.last_stable_offset,
    m.EXPORTER_CURRENT: lambda row: row.high_watermark,
    m.EXPORTER_OLDEST: lambda row: row.log_start_offset,
    m.EXPORTER_ISR: lambda row: row.isr_count,
    m.EXPORTER_REPLICAS: lambda row: row.replica_count,
    m.EXPORTER_UNDER_REPLICATED: is_under_replicated,
}
