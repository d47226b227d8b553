"""Metrics of groups: the lag of each, under kafka_exporter's names, and the number of groups.

The lag ends at the high watermark of the partition on this node, where a consumer without
isolation.level=read_committed stops. With more committed offsets than `metrics.max.partitions` the
page omits the metrics of each partition and keeps the sums by topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from barnabas.coordinator.groups.classic_group import COMPLETING, DEAD, EMPTY, PREPARING, STABLE
from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.telemetry.recent import NS_PER_S, RecentRate
from barnabas.telemetry.registry import COUNTER, GAUGE, Family, Metric, Page, Sample, of_mbean

_PARTITION = ("consumergroup", "topic", "partition")
_TOPIC = ("consumergroup", "topic")

CURRENT_OFFSET = Metric(
    "kafka_consumergroup_current_offset", GAUGE, _PARTITION, "Committed offset of a group"
)
LAG = Metric(
    "kafka_consumergroup_lag",
    GAUGE,
    _PARTITION,
    "Records between the committed offset and the high watermark",
)
CURRENT_OFFSET_SUM = Metric(
    "kafka_consumergroup_current_offset_sum",
    GAUGE,
    _TOPIC,
    "Sum of the committed offsets of all partitions",
)
LAG_SUM = Metric("kafka_consumergroup_lag_sum", GAUGE, _TOPIC, "Lag over all partitions of a topic")
MEMBERS = Metric("kafka_consumergroup_members", GAUGE, ("consumergroup",), "Members of a group")

_MANAGER = "kafka.coordinator.group:type=GroupMetadataManager,name="
GROUPS = of_mbean(f"{_MANAGER}NumGroups", GAUGE, "Groups that this node coordinates")
OFFSETS = of_mbean(f"{_MANAGER}NumOffsets", GAUGE, "Committed offsets of these groups")
_STATES = {
    PREPARING: of_mbean(f"{_MANAGER}NumGroupsPreparingRebalance", GAUGE, "Groups that rebalance"),
    COMPLETING: of_mbean(
        f"{_MANAGER}NumGroupsCompletingRebalance", GAUGE, "Groups that wait for their assignment"
    ),
    STABLE: of_mbean(f"{_MANAGER}NumGroupsStable", GAUGE, "Groups that read"),
    DEAD: of_mbean(
        f"{_MANAGER}NumGroupsDead", GAUGE, "Groups that were deleted and still have state here"
    ),
    EMPTY: of_mbean(f"{_MANAGER}NumGroupsEmpty", GAUGE, "Groups without members"),
}


def _of_coordinator(name: str, kind: str, meaning: str, labels: tuple[str, ...] = ()) -> Metric:
    mbean = f"kafka.server:type=group-coordinator-metrics,attribute={name}"
    return of_mbean(mbean, kind, meaning, labels)


GROUP_COUNT = _of_coordinator("group-count", GAUGE, "Number of groups, by protocol", ("protocol",))
PROTOCOLS = ("classic", "consumer", "share", "streams")
_OF_EPOCHS = (EMPTY, "Assigning", "Reconciling", STABLE, DEAD)
_BY_STATE = {  # the states that Kafka counts; share_metrics.py has those of share groups
    "classic": (EMPTY, PREPARING, COMPLETING, STABLE, DEAD),
    "consumer": _OF_EPOCHS,
    "streams": (*_OF_EPOCHS, "NotReady"),
}
BY_STATE = {
    protocol: _of_coordinator(
        f"{protocol}-group-count", GAUGE, f"Number of {protocol} groups, by state", ("state",)
    )
    for protocol in _BY_STATE
}
PARTITIONS = _of_coordinator(
    "num-partitions", GAUGE, "Partitions of __consumer_offsets that this node leads", ("state",)
)
_COUNTED = {  # by the name of the count: Kafka's name without -count and -rate, and its meaning
    "rebalances": ("group-completed-rebalance", "Completed rebalances of classic groups"),
    "consumer_epochs": ("consumer-group-rebalance", "New epochs of consumer groups"),
    "streams_epochs": ("streams-group-rebalance", "New epochs of streams groups"),
    "commits": ("offset-commit", "Committed offsets"),
    "expired": ("offset-expiration", "Committed offsets that expired"),
    "deleted": ("offset-deletion", "Committed offsets that were deleted"),
}
COUNTED = {
    count: (
        _of_coordinator(f"{name}-count", COUNTER, meaning),
        _of_coordinator(f"{name}-rate", GAUGE, f"{meaning} a second, last minute"),
    )
    for count, (name, meaning) in _COUNTED.items()
}
METRICS = (
    CURRENT_OFFSET,
    LAG,
    CURRENT_OFFSET_SUM,
    LAG_SUM,
    MEMBERS,
    GROUPS,
    OFFSETS,
    *_STATES.values(),
    GROUP_COUNT,
    *BY_STATE.values(),
    PARTITIONS,
    *chain.from_iterable(COUNTED.values()),
)

Row = tuple[str, str, int, int]  # group, topic, partition, committed offset


class GroupCollector:
    """The collector of one coordinator."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        end_offset: Callable[[str, int], int],
        rows_max: Callable[[], int],
        began_ns: int,
    ) -> None:
        self._coordinator = coordinator
        self._end_offset = end_offset
        self._rows_max = rows_max
        self._rates = {name: RecentRate(began_ns) for name in COUNTED}

    def __call__(self, page: Page) -> Iterator[Family]:
        coordinator = self._coordinator
        with coordinator.lock:  # a copy, because the page is written without the lock
            names = list(coordinator.groups)
            groups: list[tuple[str, str]] = [
                (group.group_type, group.state) for group in coordinator.groups.values()
            ]
            share_count = sum(len(other.listings()) for other in coordinator.others)
            members = [len(group.members) for group in coordinator.groups.values()]
            rows: list[Row] = [
                (name, topic, partition, row.offset)
                for name in names
                for topic, partitions in coordinator.offsets.of(name).items()
                for partition, row in partitions.items()
            ]
            counts = {name: getattr(coordinator.counts, name) for name in COUNTED}
        yield GROUPS, [("", len(names))]
        yield OFFSETS, [("", len(rows))]
        states = [state for _, state in groups]
        for state, metric in _STATES.items():
            yield metric, [("", states.count(state))]
        types = [group_type for group_type, _ in groups] + ["share"] * share_count
        yield GROUP_COUNT, [(page.labels(protocol=name), types.count(name)) for name in PROTOCOLS]
        for protocol, counted in _BY_STATE.items():
            yield (
                BY_STATE[protocol],
                [(page.labels(state=name), groups.count((protocol, name))) for name in counted],
            )
        loaded = list(coordinator.journal.led_partitions().values())
        by_state = {"active": loaded.count(True), "loading": loaded.count(False)}
        yield PARTITIONS, [(page.labels(state=name), value) for name, value in by_state.items()]
        for name, (total, rate) in COUNTED.items():
            yield total, [("", counts[name])]
            yield rate, [("", self._rates[name].per_ns(page.now_ns, counts[name]) * NS_PER_S)]
        labelled = zip(names, members, strict=True)
        yield MEMBERS, [(page.labels(consumergroup=name), count) for name, count in labelled]
        yield from self._offsets(page, rows)

    def _offsets(self, page: Page, rows: list[Row]) -> Iterator[Family]:
        each = len(rows) <= self._rows_max()
        current: list[Sample] = []
        lags: list[Sample] = []
        sums: dict[tuple[str, str], list[int]] = {}
        for group, topic, partition, offset in rows:
            lag = max(self._end_offset(topic, partition) - offset, 0)
            found = sums.setdefault((group, topic), [0, 0])
            found[0] += offset
            found[1] += lag
            if each:
                labels = page.labels(consumergroup=group, topic=topic, partition=partition)
                current.append((labels, offset))
                lags.append((labels, lag))
        yield CURRENT_OFFSET, current
        yield LAG, lags
        by_topic = {
            page.labels(consumergroup=group, topic=topic): both
            for (group, topic), both in sums.items()
        }
        yield CURRENT_OFFSET_SUM, [(labels, both[0]) for labels, both in by_topic.items()]
        yield LAG_SUM, [(labels, both[1]) for labels, both in by_topic.items()]
