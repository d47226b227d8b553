"""The nodes of barnabas' tree that Apache Kafka 3.9 in ZooKeeper mode uses.

Left out: `/barnabas`, which is ours, and `/feature`, because Kafka in ZooKeeper mode ends when it
finds levels of features that it does not have; its controller makes the node again. Groups of
KIP-848, share groups and streams groups have records that such a Kafka cannot read:
older_records.py leaves them out, and they are named.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from barnabas.cext.codec.wire import MalformedMessage
from barnabas.cext.record.records import CorruptRecords
from barnabas.metadata import tree_copy, znodes
from barnabas.metadata.tree import MetadataTree, Node
from barnabas.storage.checkpoints import TopicPartition
from barnabas.takeover.stored_batches import DamagedSegment, batches_of, segments
from barnabas.wire.internal import CONSUMER_OFFSETS, UnknownRecord, read_key

OURS = "/barnabas"
NEW_GROUPS = ("ConsumerGroupMetadata", "ShareGroupMetadata", "StreamsGroupMetadata")


def kafkas_nodes(tree: MetadataTree) -> list[Node]:
    """Returns the nodes to copy, parents before children. Raises MetadataError."""
    return [
        node
        for node in tree_copy.nodes_to_copy(tree)
        if node.path != znodes.FEATURES_PATH
        and node.path != OURS
        and not node.path.startswith(OURS + "/")
    ]


def unreadable_groups(partitions: Mapping[TopicPartition, Path]) -> list[str]:
    """Returns a line for each group that Kafka in ZooKeeper mode will not know. Raises
    FailedDirectory."""
    groups: dict[str, bool] = {}
    for (topic, _), path in partitions.items():
        if topic != CONSUMER_OFFSETS:
            continue
        for segment in segments(path):
            try:
                for batch in batches_of(segment):
                    for record in () if batch.control else batch.records:
                        try:
                            kind, key = read_key(topic, record.key or b"")
                        except (UnknownRecord, MalformedMessage):
                            continue
                        if kind.name in NEW_GROUPS:
                            groups[key.groupId] = record.value is not None
            except (DamagedSegment, CorruptRecords):
                continue
    return [
        f"left out: group {name!r}: Kafka in ZooKeeper mode does not have its protocol"
        for name, is_there in sorted(groups.items())
        if is_there
    ]
