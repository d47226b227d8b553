"""The metadata of a cluster in ZooKeeper mode, as far as its log directories alone say it.

Topics have the partitions and the ids of their directories. Of a partition the replicas that end
last count as in sync (controller/rebuilt_tree.py says why). Settings are in ZooKeeper alone: so
that nothing is deleted by a default, topics get KEPT_FOREVER, and internal topics the settings of
new ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from barnabas.controller.rebuilt_tree import (
    EPOCH_MARGIN,
    KEPT_FOREVER,
    PRODUCER_ID_MARGIN,
    FoundReplica,
    Inventory,
)
from barnabas.metadata import znodes
from barnabas.metadata.producer_ids import BLOCK_SIZE
from barnabas.metadata.znodes import FeatureLevels, ProducerIdBlock
from barnabas.takeover.found_cluster import Counts, FoundCluster
from barnabas.takeover.metadata_image import FoundPartition, FoundTopic

NOT_READ = (
    "not imported: settings, access rules, SCRAM users, quotas and delegation tokens: they are in"
    " ZooKeeper. --zookeeper reads them there. Without it the replicas that end last count as in"
    " sync, so give the directories of all brokers"
)

Configs = Callable[[str], Mapping[str, str] | None]  # of an internal topic; None: it is not one


def cluster_of_directories(
    inventories: Sequence[Inventory], internal: Configs, node_id: int
) -> FoundCluster:
    """Returns what the inventories of all given brokers say together."""
    rows: dict[str, dict[int, dict[int, FoundReplica]]] = defaultdict(lambda: defaultdict(dict))
    for inventory in inventories:
        for row in inventory.replicas:
            rows[row.topic][row.partition][inventory.broker_id] = row
    found = FoundCluster(notes=[NOT_READ])
    settings_count = 0
    for name, partitions in rows.items():
        ids = {row.topic_id for parts in partitions.values() for row in parts.values()} - {None}
        if len(ids) > 1:
            found.losses.append(f"topic {name} has directories of {len(ids)} topic ids")
        topic = FoundTopic(name, min((id_ for id_ in ids if id_ is not None), default=None))
        for index in range(max(partitions) + 1):
            topic.partitions[index] = _partition(partitions.get(index, {}))
        found.topics[name] = topic
        configs = internal(name)
        texts = KEPT_FOREVER if configs is None else configs
        settings_count += len(texts)
        found.nodes[znodes.config_path("topics", name)] = znodes.encode_config(texts)
    own = [name for name in rows if internal(name) is None]
    if own:
        forever = " and ".join(f"{name}={value}" for name, value in KEPT_FOREVER.items())
        found.notes.append(f"{len(own)} topics get {forever}, so that nothing is deleted")
    above = max(row.latest_producer_id for row in inventories) + 1 + PRODUCER_ID_MARGIN
    start = -(-above // BLOCK_SIZE) * BLOCK_SIZE
    block = ProducerIdBlock(node_id, start, start + BLOCK_SIZE - 1)
    found.nodes[znodes.PRODUCER_ID_BLOCK_PATH] = block.encode()
    found.nodes[znodes.FEATURES_PATH] = znodes.encode_features(FeatureLevels({}, held=True))
    found.counts = Counts(settings_count, 0, 0, 0, 0)
    return found


def _partition(replicas: Mapping[int, FoundReplica]) -> FoundPartition:
    def end(broker: int) -> tuple[int, int]:
        return replicas[broker].last_epoch, replicas[broker].end_offset

    if not replicas:
        return FoundPartition((), -1, 0, ())
    last = max(map(end, replicas))
    in_sync = tuple(broker for broker in sorted(replicas) if end(broker) == last)
    epoch = max(row.leader_epoch for row in replicas.values()) + EPOCH_MARGIN
    return FoundPartition(tuple(sorted(replicas)), -1, epoch, in_sync)
