"""Metrics of share groups, under Kafka's names. All are 0 until the first share group exists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from barnabas.coordinator.share.lazy import LazyShare
from barnabas.coordinator.share.share_counts import ShareCounts
from barnabas.telemetry.recent import NS_PER_MS, NS_PER_S, RecentRate, RecentTimes
from barnabas.telemetry.registry import (
    COUNTER,
    GAUGE,
    SUMMARY,
    Family,
    Metric,
    Page,
    Sample,
    of_mbean,
)

if TYPE_CHECKING:
    from barnabas.coordinator.share.service import ShareService


def _topics(name: str, meaning: str) -> Metric:
    return of_mbean(
        f"kafka.server:type=BrokerTopicMetrics,name={name}", COUNTER, meaning, ("topic",)
    )


def _cache(name: str, kind: str, meaning: str) -> Metric:
    return of_mbean(f"kafka.server:type=ShareSessionCache,name={name}", kind, meaning)


def _state(name: str, kind: str, meaning: str, labels: tuple[str, ...] = ()) -> Metric:
    mbean = f"kafka.server:type=share-coordinator-metrics,attribute={name}"
    return of_mbean(mbean, kind, meaning, labels)


def _groups(name: str, kind: str, meaning: str, labels: tuple[str, ...] = ()) -> Metric:
    mbean = f"kafka.server:type=group-coordinator-metrics,attribute={name}"
    return of_mbean(mbean, kind, meaning, labels)


FAILED = "Requests of them that failed for a topic"
BY_TOPIC = (  # in the order of share_counts
    _topics(
        "TotalShareFetchRequestsPerSec", "ShareFetch requests, counted once for each topic in them"
    ),
    _topics("FailedShareFetchRequestsPerSec", FAILED),
    _topics(
        "TotalShareAcknowledgementRequestsPerSec",
        "Requests that acknowledge records of share groups, counted once for each topic in them",
    ),
    _topics("FailedShareAcknowledgementRequestsPerSec", FAILED),
)
RECORDS = of_mbean(
    "kafka.server:type=ShareGroupMetrics,name=RecordAcknowledgementsPerSec",
    COUNTER,
    "Records acknowledged by members of share groups",
    ("ackType",),
)
KINDS = ((1, "Accept"), (2, "Release"), (3, "Reject"), (4, "Renew"))
LOADS = of_mbean(
    "kafka.server:type=ShareGroupMetrics,name=PartitionLoadTimeMs",
    SUMMARY,
    "Time from the first use of a share partition until its state is loaded, in ms",
)
SESSIONS = _cache("ShareSessionsCount", GAUGE, "Share sessions")
PARTITIONS = _cache("SharePartitionsCount", GAUGE, "Partitions in these sessions")
EVICTIONS = _cache(
    "ShareSessionEvictionsPerSec", COUNTER, "Sessions that ended because their connection closed"
)
BY_STATE = _groups("share-group-count", GAUGE, "Number of share groups, by state", ("state",))
REBALANCES = _groups("share-group-rebalance-count", COUNTER, "New epochs of share groups")
REBALANCE_RATE = _groups("share-group-rebalance-rate", GAUGE, "New epochs a second, last minute")
WRITES = _state("write-total", COUNTER, "Writes of the state of share partitions")
WRITE_RATE = _state("write-rate", GAUGE, "Writes of the state a second, last minute")
WRITE_LATENCY = _state(
    "write-latency-avg",
    GAUGE,
    "Time until a write of the state was durable, in ms, over the last minute",
)
STATE_PARTITIONS = _state(
    "num-partitions", GAUGE, "Partitions of __share_group_state that this node leads", ("state",)
)
METRICS = (
    *BY_TOPIC,
    RECORDS,
    LOADS,
    SESSIONS,
    PARTITIONS,
    EVICTIONS,
    BY_STATE,
    REBALANCES,
    REBALANCE_RATE,
    WRITES,
    WRITE_RATE,
    WRITE_LATENCY,
    STATE_PARTITIONS,
)
EMPTY, STABLE = "Empty", "Stable"


class ShareCollector:
    """The collector of one broker."""

    def __init__(
        self, door: LazyShare, led_partitions: Callable[[], dict[int, bool]], began_ns: int
    ) -> None:
        self._door = door
        self._led = led_partitions
        self._nothing = ShareCounts(lambda: 0)
        self._loads = RecentTimes(began_ns)
        self._rebalances = RecentRate(began_ns)
        self._writes = RecentRate(began_ns)
        self._write_times = RecentRate(began_ns)

    def __call__(self, page: Page) -> Iterator[Family]:
        loaded = list(self._led().values())
        yield (
            STATE_PARTITIONS,
            [
                (page.labels(state="active"), loaded.count(True)),
                (page.labels(state="loading"), loaded.count(False)),
            ],
        )
        share = self._door.made
        yield from self._sessions_and_groups(share, page)
        yield from self._counted(self._nothing if share is None else share.counts, page)

    def _sessions_and_groups(self, share: ShareService | None, page: Page) -> Iterator[Family]:
        yield SESSIONS, [("", 0 if share is None else len(share.sessions))]
        yield PARTITIONS, [("", 0 if share is None else share.sessions.place_count())]
        yield EVICTIONS, [("", 0 if share is None else share.sessions.evicted_count)]
        states: list[str] = []
        if share is not None:
            with share.groups.lock:
                states = [group.state for group in share.groups.groups.values()]
        yield BY_STATE, [(page.labels(state=name), states.count(name)) for name in (EMPTY, STABLE)]

    def _counted(self, counts: ShareCounts, page: Page) -> Iterator[Family]:
        by_topic = counts.by_topic()
        for at, metric in enumerate(BY_TOPIC):
            samples: list[Sample] = [("", counts.sums[at])]
            samples += [(page.labels(topic=name), row[at]) for name, row in by_topic.items()]
            yield metric, samples
        yield RECORDS, [(page.labels(ackType=name), counts.records[kind]) for kind, name in KINDS]
        yield LOADS, [("", self._loads.summary(page.now_ns, *counts.loads.read()))]
        yield REBALANCES, [("", counts.rebalances)]
        rate = self._rebalances.per_ns(page.now_ns, counts.rebalances) * NS_PER_S
        yield REBALANCE_RATE, [("", rate)]
        sum_ns, buckets = counts.writes.read()
        written = sum(buckets.values())
        yield WRITES, [("", written)]
        per_ns = self._writes.per_ns(page.now_ns, written)
        yield WRITE_RATE, [("", per_ns * NS_PER_S)]
        took_ns = self._write_times.per_ns(page.now_ns, sum_ns)
        yield WRITE_LATENCY, [("", took_ns / per_ns / NS_PER_MS if per_ns else float("nan"))]
