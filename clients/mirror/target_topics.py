"""Creates topics of the target with the partitions of the source, and adds partitions later."""

from __future__ import annotations

import contextlib
import logging

from barnabas.client.admin import NewTopic, create_partitions, create_topics
from barnabas.client.cluster import Cluster
from barnabas.errors import (
    InvalidPartitions,
    LeaderNotAvailable,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)

log = logging.getLogger("barnabas.mirror")


class TargetTopics:
    """The topics of the target. Methods raise KafkaError and ClientError."""

    def __init__(self, target: Cluster, source: Cluster, replication_factor: int) -> None:
        self._target, self._source = target, source
        self._replication_factor = replication_factor
        self._counts: dict[str, int] = {}

    def ensure(self, target_topic: str, source_topic: str, partition: int | None) -> None:
        """Creates the topic, or adds partitions, until it has the partition (None: any). Raises
        KafkaError and ClientError."""
        wanted = 0 if partition is None else partition
        if wanted < self._counts.get(target_topic, 0):
            return
        try:
            count = len(self._target.topic(target_topic).partitions)
        except (UnknownTopicOrPartition, LeaderNotAvailable):
            count = 0
        if wanted >= count:
            self._source.forget(source_topic)
            asked = max(len(self._source.topic(source_topic).partitions), wanted + 1)
            self._make(target_topic, asked, count)
            self._target.forget(target_topic)
            count = len(self._target.topic(target_topic).partitions)
        self._counts[target_topic] = count

    def source_is_target(self) -> bool:
        """Returns whether the source is the target, by their cluster ids, or by the addresses of
        brokers when a broker is too old to have a cluster id. Raises KafkaError, ClientError."""
        for cluster in (self._source, self._target):
            cluster.refresh([])
        if self._source.cluster_id and self._target.cluster_id:
            return self._source.cluster_id == self._target.cluster_id
        source, target = (
            {(broker.host, broker.port) for broker in cluster.brokers.values()}
            for cluster in (self._source, self._target)
        )
        return bool(source & target)

    def _make(self, topic: str, asked: int, there: int) -> None:
        log.info("topic %s: increasing the number of partitions to %d", topic, asked)
        if there:
            with contextlib.suppress(InvalidPartitions):  # another source created it first
                create_partitions(self._target, {topic: asked})
            return
        new = NewTopic(topic, asked, self._replication_factor)
        with contextlib.suppress(TopicAlreadyExists):
            create_topics(self._target, [new])

    def close(self) -> None:
        self._target.close()
        self._source.close()
