"""Elections of the only node of an embedded store, at its start."""

from __future__ import annotations

from barnabas.metadata.cluster_state import ClusterState, ClusterStateReader, Partition
from barnabas.metadata.state_changes import shares_with_notes
from barnabas.metadata.tree import MetadataTree, Operation, SetData
from barnabas.metadata.znodes import PartitionState, partition_state_path


def lead_all(
    tree: MetadataTree, reader: ClusterStateReader, node_id: int, is_unclean: bool
) -> None:
    """Makes the node leader of its partitions that have no live leader. After an unclean stop
    (`is_unclean`) it also raises the leader epoch of each partition that the node led: the epoch
    separates new records from records that were lost with the page cache. Raises MetadataError."""
    state = reader.state
    changed: list[Operation] = []
    topics = set()
    for topic in state.topics.values():
        for index, partition in topic.partitions.items():
            after = _elected(partition, state, node_id, is_unclean)
            if after is not None:
                path = partition_state_path(topic.name, index)
                changed.append(SetData(path, after.encode(), partition.state_version))
                topics.add(topic.name)
    for part in shares_with_notes(changed, tree):
        tree.multi(part)
    if topics:
        reader.refresh_topics(topics)


def _elected(
    partition: Partition, state: ClusterState, node_id: int, is_unclean: bool
) -> PartitionState | None:
    before = partition.state
    if node_id not in partition.replicas or before is None:
        return None
    is_led_here = before.leader == node_id
    if before.leader in state.brokers and not (is_led_here and is_unclean):
        return None
    if node_id not in before.isr:
        return None  # it may lack acknowledged records: the partition waits for its leader
    return PartitionState(
        leader=node_id,
        leader_epoch=before.leader_epoch + 1,
        isr=(node_id,),
        controller_epoch=state.controller_epoch,
    )
