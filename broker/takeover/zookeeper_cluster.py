"""The metadata of a cluster in ZooKeeper mode, from the tree that its brokers wrote.

barnabas keeps the same nodes, so most of them are taken as they are: settings, users, quotas,
access rules, tokens, producer ids, offsets of old consumers. Left out are the nodes of running
brokers and controllers, notes, requests that Kafka had not finished, and settings of other brokers.
A topic that was being deleted is not imported.
"""

from __future__ import annotations

from barnabas.metadata import tree_copy, znodes
from barnabas.metadata.cluster_state import topic_of
from barnabas.metadata.tree import MetadataTree, Node, name_of
from barnabas.metadata.znode_json import ZnodeDataError
from barnabas.metadata.znodes import FeatureLevels
from barnabas.security import acl_nodes
from barnabas.security.delegation_tokens import TOKENS_PATH
from barnabas.security.scram import HASHES
from barnabas.takeover.found_cluster import Counts, FoundCluster
from barnabas.takeover.metadata_image import FoundPartition, FoundTopic
from barnabas.takeover.refusals import CannotImport

BROKER_SETTINGS = f"{znodes.CONFIG_PATH}/brokers/"
KEPT = (
    znodes.CONFIG_PATH,
    znodes.CONSUMERS_PATH,
    "/delegation_token",
    "/kafka-acl",
    "/kafka-acl-extended",
)
SINGLE = (znodes.PRODUCER_ID_BLOCK_PATH, znodes.FEATURES_PATH)


def cluster_of_tree(tree: MetadataTree, broker_id: int, node_id: int) -> FoundCluster:
    """Returns the cluster in a tree. `broker_id`: the broker whose own settings the node `node_id`
    gets. Raises CannotImport, MetadataError."""
    found = FoundCluster()
    topics: dict[str, list[Node]] = {}
    deleting = set(tree.children(znodes.DELETE_TOPICS_PATH))
    for node in tree_copy.nodes_to_copy(tree):
        if node.path.startswith(znodes.TOPICS_PATH + "/"):
            topics.setdefault(node.path.split("/")[3], []).append(node)
        elif node.path in SINGLE or _is_kept(node.path):
            _add(node, broker_id, node_id, found)
    for name, nodes in topics.items():
        if name in deleting:
            found.notes.append(f"not imported: topic {name}: it was being deleted")
            found.nodes.pop(znodes.config_path("topics", name), None)
            continue
        try:
            found.topics[name] = _topic(nodes)
        except ZnodeDataError as error:
            raise CannotImport([f"{nodes[0].path} in ZooKeeper: {error}."]) from error
    levels = found.nodes.get(znodes.FEATURES_PATH)
    found.nodes[znodes.FEATURES_PATH] = (
        znodes.hold_features(levels)
        if levels
        else znodes.encode_features(FeatureLevels({}, held=True))
    )
    found.counts = _counts(found)
    return found


def _is_kept(path: str) -> bool:
    return any(path == top or path.startswith(top + "/") for top in KEPT)


def _add(node: Node, broker_id: int, node_id: int, found: FoundCluster) -> None:
    path = node.path
    if path.startswith(BROKER_SETTINGS) and name_of(path) != znodes.DEFAULT_ENTITY:
        if name_of(path) != str(broker_id):
            names = ", ".join(sorted(znodes.decode_config(node.data)))
            if names:
                found.notes.append(f"not imported: settings of broker {name_of(path)}: {names}")
            return
        path = f"{BROKER_SETTINGS}{node_id}"
    found.nodes[path] = node.data


def _topic(nodes: list[Node]) -> FoundTopic:
    topic = topic_of(nodes)
    found = FoundTopic(topic.name, topic.topic_id)
    for index, row in topic.partitions.items():
        state = row.state
        if state is None:  # Kafka has not elected a leader yet, so there is no record
            found.partitions[index] = FoundPartition(row.replicas, -1, 0, row.replicas)
        else:
            found.partitions[index] = FoundPartition(
                row.replicas, state.leader, state.leader_epoch, state.isr
            )
    return found


def _counts(found: FoundCluster) -> Counts:
    settings = users = quotas = rules = tokens = 0
    for path, data in found.nodes.items():
        if path.startswith(znodes.CONFIG_PATH + "/") and data:
            names = znodes.decode_config(data).keys()
            kind = path.split("/")[2]
            if kind in ("users", "clients", "ips"):
                users += len(names & HASHES.keys())
                quotas += len(names - HASHES.keys())
            else:
                settings += len(names)
        elif acl_nodes.pattern_of(path) is not None and data:
            rules += len(acl_nodes.decode(data))
        elif path.startswith(TOKENS_PATH + "/"):
            tokens += 1
    return Counts(settings, rules, users, quotas, tokens)
