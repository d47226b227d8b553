"""Decides the internal topics of a topology: how many partitions each has, and which are missing.

A repartition topic without a count gets the largest count of the topics that its writer reads; one
that is copartitioned gets the count of the others. A changelog has one partition for each task. The
result is not ready while a topic is missing or has another count: then the group assigns no tasks,
and heartbeats say why. Plain functions. Next: streams_heartbeats.py. Kafka: InternalTopicManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from barnabas.coordinator.streams.topology import InternalTopic, Subtopology, Topology
from barnabas.errors import StreamsInvalidTopology

SHOWN_MAX = 3  # names in a message
PartitionCount = Callable[[str], int | None]  # of a topic; None: it does not exist


class Status(NamedTuple):
    """A status of a heartbeat's response."""

    code: int
    detail: str


STALE_TOPOLOGY = 0
MISSING_SOURCE_TOPICS = 1
INCORRECTLY_PARTITIONED_TOPICS = 2
MISSING_INTERNAL_TOPICS = 3
SHUTDOWN_APPLICATION = 4
ASSIGNMENT_DELAYED = 5
MISSING_CLIENT_TAGS = 6


class ConfiguredSubtopology(NamedTuple):
    """A subtopology whose topics have their numbers of partitions."""

    task_count: int
    subtopology: Subtopology
    repartition_sources: tuple[InternalTopic, ...]
    changelogs: tuple[InternalTopic, ...]


class Configured(NamedTuple):
    """The result. `problem` is None when tasks can run."""

    subtopologies: Mapping[str, ConfiguredSubtopology]  # empty while counts are unknown
    missing: Mapping[str, InternalTopic]
    problem: Status | None

    @property
    def is_ready(self) -> bool:
        return self.problem is None


class _Wrong(Exception):
    """The topics of the cluster do not fit the topology."""

    def __init__(self, code: int, detail: str) -> None:
        super().__init__(detail)
        self.status = Status(code, detail)


def configured(topology: Topology, count_of: PartitionCount) -> Configured:
    """Returns the configured topology. Raises StreamsInvalidTopology when no topics of the cluster
    could fit it."""
    try:
        _check_sources(topology, count_of)
        decided = _repartition_counts(topology, count_of)

        def known(name: str) -> int:
            actual = count_of(name)
            return decided[name] if actual is None else actual

        _copartition(topology, decided, known)
        rows = {i: _configured(row, decided, known) for i, row in topology.subtopologies.items()}
        missing = _missing(rows.values(), count_of)
    except _Wrong as wrong:
        return Configured({}, {}, wrong.status)
    if missing:
        detail = f"Internal topics are missing: {summary(sorted(missing))}"
        return Configured(rows, missing, Status(MISSING_INTERNAL_TOPICS, detail))
    return Configured(rows, {}, None)


def summary(names: list[str]) -> str:
    """Returns the first names of a list, and how many more there are."""
    shown = ", ".join(names[:SHOWN_MAX])
    more = len(names) - SHOWN_MAX
    return f"{shown} and {more} additional topics" if more > 0 else shown


def _check_sources(topology: Topology, count_of: PartitionCount) -> None:
    names = {name for row in topology.subtopologies.values() for name in row.sources}
    missing = sorted(name for name in names if count_of(name) is None)
    if missing:
        raise _Wrong(MISSING_SOURCE_TOPICS, f"Source topics {summary(missing)} are missing.")


def _repartition_counts(topology: Topology, count_of: PartitionCount) -> dict[str, int]:
    """Returns the partition count of each repartition topic that a subtopology reads or writes."""
    rows = topology.subtopologies.values()
    found = {
        topic.name: topic.partition_count
        for row in rows
        for topic in row.repartition_sources
        if topic.partition_count
    }
    waiting = [row for row in rows if any(name not in found for name in row.repartition_sinks)]
    while waiting:
        later = []
        for row in waiting:
            counts = [found[topic.name] for topic in row.repartition_sources if topic.name in found]
            counts += [count for name in row.sources if (count := count_of(name)) is not None]
            if counts:
                for name in row.repartition_sinks:
                    found.setdefault(name, max(counts))
            else:
                later.append(row)
        if len(later) == len(waiting):
            raise StreamsInvalidTopology(
                "Failed to compute number of partitions for all repartition topics. There may be"
                " loops in the topology that cannot be resolved."
            )
        waiting = later
    if any(topic.name not in found for row in rows for topic in row.repartition_sources):
        raise StreamsInvalidTopology(
            "Failed to compute number of partitions for all repartition topics, because a"
            " repartition source topic is never used as a sink topic."
        )
    return found


def _copartition(topology: Topology, decided: dict[str, int], known: Callable[[str], int]) -> None:
    """Gives copartitioned repartition topics the count of the other topics of their set."""
    rows = topology.subtopologies.values()
    internal = {topic.name for row in rows for topic in row.repartition_sources}
    fixed = {
        topic.name for row in rows for topic in row.repartition_sources if topic.partition_count
    }
    for names in (names for row in rows for names in row.copartitioned() if names):
        deciding = (names - internal) or (names & fixed)
        if deciding:
            counts = {name: known(name) for name in sorted(deciding)}
            if len(set(counts.values())) > 1:
                shown = ", ".join(f"{name}={count}" for name, count in counts.items())
                raise _Wrong(
                    INCORRECTLY_PARTITIONED_TOPICS,
                    f"Following topics do not have the same number of partitions: [{{{shown}}}]",
                )
            count = next(iter(counts.values()))
        else:
            count = max(known(name) for name in names)
        for name in sorted(names & internal):
            if name in fixed and known(name) != count:
                raise _Wrong(
                    INCORRECTLY_PARTITIONED_TOPICS,
                    f"Number of partitions [{known(name)}] of repartition topic [{name}] doesn't"
                    f" match number of partitions [{count}] of the source topic.",
                )
            decided[name] = count


def _configured(
    row: Subtopology, decided: Mapping[str, int], known: Callable[[str], int]
) -> ConfiguredSubtopology:
    task_count = max(known(name) for name in row.inputs)
    return ConfiguredSubtopology(
        task_count,
        row,
        tuple(
            topic._replace(partition_count=topic.partition_count or decided[topic.name])
            for topic in row.repartition_sources
        ),
        tuple(topic._replace(partition_count=task_count) for topic in row.changelogs),
    )


def _missing(
    rows: Iterable[ConfiguredSubtopology], count_of: PartitionCount
) -> dict[str, InternalTopic]:
    missing: dict[str, InternalTopic] = {}
    for row in rows:
        for topic in (*row.repartition_sources, *row.changelogs):
            count = count_of(topic.name)
            if count is None:
                missing[topic.name] = topic
            elif count != topic.partition_count:
                raise _Wrong(
                    INCORRECTLY_PARTITIONED_TOPICS,
                    f"Existing topic {topic.name} has different number of partitions: expected"
                    f" {topic.partition_count}, found {count}",
                )
    return missing
