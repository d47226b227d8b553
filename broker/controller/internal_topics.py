"""The internal topics of the coordinators: their partitions, replicas and settings.

The only node of an embedded store reduces a replication factor to 1, so that it works without any
setting. In a cluster the settings count, as in Kafka: the topic is made when enough brokers are
alive. Most are compacted: only the newest value of each key counts.
"""

from __future__ import annotations

from barnabas.config import DynamicConfig
from barnabas.controller.topics import NewTopic
from barnabas.wire.internal import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

FACTOR_MAX = 32767


def internal_topic(name: str, config: DynamicConfig, is_cluster: bool) -> NewTopic | None:
    """Returns the internal topic `name` with its partitions and settings; None for another name."""
    replicas_max = FACTOR_MAX if is_cluster else 1
    if name == CONSUMER_OFFSETS:
        return NewTopic(
            name,
            partition_count=config.integer("offsets.topic.num.partitions"),
            replication_factor=min(
                config.integer("offsets.topic.replication.factor"), replicas_max
            ),
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.integer("offsets.topic.segment.bytes")),
            },
        )
    if name == TRANSACTION_STATE:
        replicas = min(config.integer("transaction.state.log.replication.factor"), replicas_max)
        min_isr = min(config.integer("transaction.state.log.min.isr"), replicas)
        return NewTopic(
            name,
            partition_count=config.integer("transaction.state.log.num.partitions"),
            replication_factor=replicas,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(min_isr),
                "segment.bytes": str(config.integer("transaction.state.log.segment.bytes")),
                "unclean.leader.election.enable": "false",
            },
        )
    if name == SHARE_GROUP_STATE:
        replicas = min(
            config.integer("share.coordinator.state.topic.replication.factor"), replicas_max
        )
        min_isr = min(config.integer("share.coordinator.state.topic.min.isr"), replicas)
        return NewTopic(
            name,
            partition_count=config.integer("share.coordinator.state.topic.num.partitions"),
            replication_factor=replicas,
            configs={
                # Its records are changes, so that compaction must not remove any; the coordinator
                # deletes the old ones.
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": str(min_isr),
                "retention.ms": "-1",
                "segment.bytes": str(config.integer("share.coordinator.state.topic.segment.bytes")),
            },
        )
    return None


def dead_letters_topic(name: str) -> NewTopic:
    """Returns a topic for the records that share groups give up (KIP-1191); the broker's defaults
    decide the number of partitions and replicas."""
    return NewTopic(
        name,
        configs={
            "errors.deadletterqueue.group.enable": "true",
            "message.timestamp.type": "CreateTime",
        },
    )
