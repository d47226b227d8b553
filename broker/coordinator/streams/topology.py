"""The topology of a Kafka Streams application, as a member sends it and the group stores it.

A topology has subtopologies; a subtopology reads source topics and repartition topics and writes
changelogs of its state. Repartition topics and changelogs are internal topics, which the broker
creates (topic_configuration.py). A group has one topology; a member with an older epoch is told so,
and gets tasks of the group's. Plain values, read from requests and records of the same fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from barnabas.errors import InvalidRequest, StreamsInvalidTopology


class InternalTopic(NamedTuple):
    """An internal topic. `partition_count` 0: the group decides."""

    name: str
    partition_count: int
    replication_factor: int  # 0: the broker's default
    configs: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, row: Any) -> InternalTopic:
        configs = tuple((one.key, one.value) for one in row.topicConfigs)
        return cls(row.name, row.partitions, row.replicationFactor, configs)


class Copartition(NamedTuple):
    """Topics that must have the same number of partitions: indexes of a subtopology's lists."""

    sources: tuple[int, ...]
    regexes: tuple[int, ...]
    repartition_sources: tuple[int, ...]


class Subtopology(NamedTuple):
    """One part of a topology, whose tasks run independently."""

    subtopology_id: str
    sources: tuple[str, ...]
    regexes: tuple[str, ...]
    changelogs: tuple[InternalTopic, ...]
    repartition_sinks: tuple[str, ...]
    repartition_sources: tuple[InternalTopic, ...]
    copartitions: tuple[Copartition, ...]

    @classmethod
    def of(cls, row: Any) -> Subtopology:
        return cls(
            row.subtopologyId,
            tuple(row.sourceTopics),
            tuple(row.sourceTopicRegex),
            tuple(InternalTopic.of(one) for one in row.stateChangelogTopics),
            tuple(row.repartitionSinkTopics),
            tuple(InternalTopic.of(one) for one in row.repartitionSourceTopics),
            tuple(
                Copartition(
                    tuple(one.sourceTopics),
                    tuple(one.sourceTopicRegex),
                    tuple(one.repartitionSourceTopics),
                )
                for one in row.copartitionGroups
            ),
        )

    @property
    def inputs(self) -> tuple[str, ...]:
        """Returns the topics whose partitions its tasks read."""
        return (*self.sources, *(topic.name for topic in self.repartition_sources))

    def copartitioned(self) -> list[frozenset[str]]:
        """Returns the names of each set of topics with the same number of partitions."""
        return [
            frozenset(
                [self.sources[i] for i in row.sources]
                + [self.repartition_sources[i].name for i in row.repartition_sources]
            )
            for row in self.copartitions
        ]


class Topology(NamedTuple):
    """The topology of a group."""

    epoch: int
    subtopologies: Mapping[str, Subtopology]  # by id, in the order of ids

    @classmethod
    def of(cls, message: Any) -> Topology:
        """Reads a topology from a request or a record."""
        rows = sorted(
            (Subtopology.of(row) for row in message.subtopologies), key=lambda row: row[0]
        )
        return cls(message.epoch, {row.subtopology_id: row for row in rows})

    def required_topics(self) -> set[str]:
        """Returns the topics that must exist before tasks run."""
        return {
            name
            for row in self.subtopologies.values()
            for name in (*row.inputs, *(topic.name for topic in row.changelogs))
        }

    def all_topics(self) -> list[str]:
        """Returns every topic that it names, without repetition."""
        return list(
            dict.fromkeys(
                name
                for row in self.subtopologies.values()
                for name in (
                    *row.sources,
                    *row.repartition_sinks,
                    *(topic.name for topic in row.repartition_sources),
                    *(topic.name for topic in row.changelogs),
                )
            )
        )

    def reads(self, topic: str) -> bool:
        """Returns whether a task reads the topic."""
        return any(topic in row.inputs for row in self.subtopologies.values())


def checked_topology(message: Any) -> Topology:
    """Returns the topology of a member that joins. Raises StreamsInvalidTopology, or InvalidRequest
    for a regular expression, which Kafka does not take either."""
    if any(row.sourceTopicRegex for row in message.subtopologies):
        raise InvalidRequest("Regular expressions for source topics are not supported yet.")
    for row in message.subtopologies:
        for topic in row.stateChangelogTopics:
            if topic.partitions != 0:
                raise StreamsInvalidTopology(
                    f"Changelog topic {topic.name} must have an undefined partition count, but it"
                    f" is set to {topic.partitions}."
                )
    found = Topology.of(message)
    if found.epoch < 0:
        raise StreamsInvalidTopology("Topology epoch must be non-negative.")
    if len(found.subtopologies) < len(message.subtopologies):
        raise StreamsInvalidTopology("Two subtopologies have the same id.")
    for subtopology in found.subtopologies.values():
        if not subtopology.inputs:
            raise StreamsInvalidTopology(
                f"No source topics found for subtopology {subtopology.subtopology_id}"
            )
        for group in subtopology.copartitions:
            if not (
                _are_indexes(group.sources, len(subtopology.sources))
                and _are_indexes(group.repartition_sources, len(subtopology.repartition_sources))
            ):
                raise StreamsInvalidTopology(
                    f"A copartition group of subtopology {subtopology.subtopology_id} names a topic"
                    " that the subtopology does not read."
                )
    return found


def _are_indexes(found: tuple[int, ...], count: int) -> bool:
    return all(0 <= index < count for index in found)
