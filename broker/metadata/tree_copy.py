"""Writes a whole tree into an empty shared tree, or removes one, for commands on stopped brokers.

    begin(tree, ...)     /cluster/id with the mark `unfinished`: no broker starts on the tree
    fill(tree, nodes)    the nodes; each multi checks that /cluster/id is there
    finish(tree)         removes the mark

After a crash the next run of the same command finds its mark: `begin` then removes what the former
run has written, so that the tree gets the nodes that are right now. `erase` removes the whole tree,
/cluster/id last.

Ephemeral nodes and notes of changes are not copied: they belong to sessions and running brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from barnabas.metadata import znodes
from barnabas.metadata.tree import (
    CheckVersion,
    CreateNode,
    DeleteNode,
    MetadataError,
    MetadataTree,
    MultiFailed,
    Node,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    parent_of,
    shares,
)
from barnabas.metadata.znodes import CLUSTER_ID_PATH, Unfinished

SEQUENCE_MAX = 10_000  # larger broker ids were set, not generated (/brokers/seqid)
_FIRST = (parent_of(CLUSTER_ID_PATH), CLUSTER_ID_PATH)  # what `begin` writes, and `erase` last
_CHECK = (CheckVersion(CLUSTER_ID_PATH),)
_OF_ZOOKEEPER = "zookeeper"  # ZooKeeper's own node at the top of a tree without a chroot


class TreeInUse(MetadataError):
    """The tree is not empty, or another program writes into it."""


class Owner(NamedTuple):
    """Whose tree it is. None: the tree has no cluster id; no command is unfinished."""

    cluster_id: str | None
    unfinished: Unfinished | None


def owner_of(tree: MetadataTree) -> Owner:
    """Returns whose tree it is. Raises MetadataError."""
    try:
        data = tree.get(CLUSTER_ID_PATH)[0]
    except NoNode:
        return Owner(None, None)
    return Owner(znodes.decode_cluster_id(data), znodes.decode_unfinished(data))


def nodes_to_copy(tree: MetadataTree) -> list[Node]:
    """Returns the persistent nodes of a tree without notes, parents before children."""
    return [
        node
        for node in _nodes(tree)
        if not node.stat.ephemeral_owner and parent_of(node.path) not in znodes.NOTES_PATHS
    ]


def _nodes(tree: MetadataTree) -> list[Node]:
    return [node for name in znodes.TOP_NAMES for node in tree.subtree(f"/{name}")]


def check_empty(tree: MetadataTree, cluster_id: str, command: Unfinished) -> bool:
    """Returns True for an empty tree, False for one with the mark of a former run of `command`.
    Raises TreeInUse for any other tree."""
    theirs, unfinished = owner_of(tree)
    if theirs not in (None, cluster_id):
        raise TreeInUse(
            f"the tree in ZooKeeper belongs to cluster {theirs}, and the log directories to cluster"
            f" {cluster_id}. Use another chroot in zookeeper.connect."
        )
    if unfinished == command:
        return False
    if unfinished is not None:
        raise TreeInUse(f"{unfinished} has not finished its work on this tree. Run it again first.")
    names = sorted(set(tree.children("/")) - {_OF_ZOOKEEPER})
    if names:
        raise TreeInUse(
            f"the tree in ZooKeeper is not empty: it has /{', /'.join(names[:5])}"
            f"{' and others' if len(names) > 5 else ''}. Use another chroot in zookeeper.connect,"
            " or remove the tree first."
        )
    return True


def begin(tree: MetadataTree, cluster_id: str, command: Unfinished) -> None:
    """Gives an empty tree the cluster id and the mark of the command, or removes what a former run
    of it has written. Raises TreeInUse, MetadataError."""
    if not check_empty(tree, cluster_id, command):
        _remove(tree)
        return
    data = znodes.encode_cluster_id(cluster_id, command)
    _write(tree, [CreateNode(_FIRST[0]), CreateNode(CLUSTER_ID_PATH, data)])


def fill(tree: MetadataTree, nodes: Iterable[Node | CreateNode]) -> None:
    """Creates nodes, parents before children, after `begin`. Raises TreeInUse, MetadataError."""
    wanted = [CreateNode(row.path, row.data) for row in nodes if row.path not in _FIRST]
    for part in shares(wanted, tree.limits, _CHECK):
        _write(tree, part)


def raise_sequence(tree: MetadataTree, version: int) -> None:
    """Makes the next generated broker id larger than reserved.broker.max.id + `version`, in a new
    tree."""
    count = version if version <= SEQUENCE_MAX else 0
    steps = [SetData(znodes.BROKER_SEQUENCE_PATH, b"") for _ in range(count)]
    for part in shares(steps, tree.limits, _CHECK):
        _write(tree, part)


def mark(tree: MetadataTree, cluster_id: str, command: Unfinished) -> None:
    """Marks the tree of a cluster: no broker starts on it until `finish`."""
    tree.set(CLUSTER_ID_PATH, znodes.encode_cluster_id(cluster_id, command))


def finish(tree: MetadataTree, cluster_id: str) -> None:
    """Removes the mark: brokers can start on the tree from now on. Raises MetadataError."""
    tree.set(CLUSTER_ID_PATH, znodes.encode_cluster_id(cluster_id))


def erase(tree: MetadataTree) -> None:
    """Removes the whole tree, the marked cluster id last. Raises TreeInUse, MetadataError."""
    _remove(tree)
    _write(tree, [DeleteNode(path) for path in reversed(_FIRST)])


def _remove(tree: MetadataTree) -> None:
    paths = [node.path for node in _nodes(tree) if node.path not in _FIRST]
    for part in shares([DeleteNode(path) for path in reversed(paths)], tree.limits, _CHECK):
        _write(tree, part)


def _write(tree: MetadataTree, operations: Sequence[Operation]) -> None:
    try:
        tree.multi(operations)
    except MultiFailed as failed:
        if isinstance(failed.error, NodeExists | NoNode):
            raise TreeInUse(
                f"another program writes into the tree: {failed.error}. Stop the brokers that use"
                " it, and run the command again."
            ) from failed
        raise failed.error from failed
