"""Moves the metadata of a stopped broker from its embedded store into ZooKeeper, and back.

`join` copies the store into an empty tree; the broker is then the first of a cluster. `leave`
copies the tree of a cluster into an embedded store, if this broker has all data of the cluster.
Both have the same order, so that a crash never leaves two stores that a broker could start on:

    step         join                                    leave
    1 mark       the tree, in /cluster/id                the same: no broker starts on it any more
    2 copy       into the tree                           into metadata.leaving
    3 close      metadata becomes metadata.joined        (the mark has done that)
    4 switch     the mark is removed                     metadata.leaving becomes metadata
    5 clean      nothing                                 the tree and metadata.joined are removed

After a crash the same command continues. Until step 3 of `join` the broker also still starts on the
embedded store. If `leave` fails before step 4, it removes the mark. The directories are in the
first directory of log.dirs.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from barnabas.config import BrokerConfig
from barnabas.metadata import tree_copy, znodes
from barnabas.metadata.cluster_state import Topic, topic_of
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.former_session import FormerSession
from barnabas.metadata.tree import CreateNode, MetadataError, MetadataTree, Node, shares
from barnabas.metadata.tree_copy import owner_of
from barnabas.metadata.znodes import PartitionState, Unfinished
from barnabas.server.registration import choose_node_id
from barnabas.stages.opened import (
    JOINED_DIRECTORY,
    METADATA_DIRECTORY,
    has_joined,
    open_zookeeper,
)
from barnabas.storage.log_dirs import META, LogDir, UnusableDirectory
from barnabas.storage.log_manager import topic_id_on_disk
from barnabas.storage.replace_file import sync_directory

LEAVING_DIRECTORY = "metadata.leaving"
NAMED_MAX = 10  # partitions in one error message


class Moved(NamedTuple):
    """What was copied, or would be. `nodes` is empty: the move was complete before."""

    cluster_id: str
    node_id: int
    nodes: Sequence[Node | CreateNode]


class IncompleteReplicas(UnusableDirectory):
    """This broker lacks data of the cluster; the text names the partitions."""


def join(config: BrokerConfig, is_dry_run: bool) -> Moved:
    """Moves the metadata of a stopped broker into ZooKeeper. `config`: with the connection to
    ZooKeeper; the rest as the broker has it. `is_dry_run`: only reads and checks. Raises
    UnusableDirectory, ConfigError, MetadataError."""
    with locked_directories(config) as directories, closing(open_zookeeper(config, None)) as tree:
        first = directories[0]
        if has_joined(first.path):
            return _finish_join(first, tree, is_dry_run)
        if not (first.path / METADATA_DIRECTORY).is_dir():
            raise _no_store(first.path)
        with closing(_embedded(first.path / METADATA_DIRECTORY)) as store:
            cluster_id, nodes = owner_of(store).cluster_id, tree_copy.nodes_to_copy(store)
            if cluster_id is None:
                raise _no_store(first.path)
            node_id = choose_node_id(store, config, [row.identity() for row in directories])
            sequence = store.exists(znodes.BROKER_SEQUENCE_PATH)
        command, moved = Unfinished("join", node_id), Moved(cluster_id, node_id, nodes)
        if is_dry_run:
            tree_copy.check_empty(tree, cluster_id, command)
            return moved
        tree_copy.begin(tree, cluster_id, command)
        tree_copy.fill(tree, nodes)
        tree_copy.raise_sequence(tree, 0 if sequence is None else sequence.version)
        shutil.rmtree(first.path / JOINED_DIRECTORY, ignore_errors=True)  # of an earlier join
        (first.path / METADATA_DIRECTORY).rename(first.path / JOINED_DIRECTORY)
        sync_directory(first.path)
        tree_copy.finish(tree, cluster_id)
        return moved


def _finish_join(first: LogDir, tree: MetadataTree, is_dry_run: bool) -> Moved:
    """Finishes a join whose store is closed, which is after the copy."""
    cluster_id, node_id = _identity(first)
    theirs, unfinished = owner_of(tree)
    if theirs != cluster_id or unfinished not in (None, Unfinished("join", node_id)):
        raise UnusableDirectory(
            f"{first.path / JOINED_DIRECTORY} says that broker {node_id} has joined a cluster, and"
            f" {_state(theirs, unfinished)}. Correct zookeeper.connect; or use `barnabas cluster"
            " recover` if ZooKeeper's data is lost."
        )
    if unfinished is not None and not is_dry_run:
        tree_copy.finish(tree, cluster_id)
    return Moved(cluster_id, node_id, ())


def _state(cluster_id: str | None, unfinished: Unfinished | None) -> str:
    """Returns why a tree cannot be used, for an error message."""
    if unfinished is not None:
        return f"{unfinished} has not finished its work on the tree"
    return f"this tree in ZooKeeper has {f'cluster {cluster_id}' if cluster_id else 'no cluster'}"


def leave(config: BrokerConfig, is_dry_run: bool) -> Moved:
    """Moves the metadata of a cluster, all of whose brokers are stopped, into the embedded store of
    this broker. `config`, `is_dry_run`: as for `join`. Raises IncompleteReplicas when this broker
    lacks a partition, UnusableDirectory, ConfigError, MetadataError."""
    with locked_directories(config) as directories, closing(open_zookeeper(config, None)) as tree:
        first = directories[0].path
        cluster_id, node_id = _identity(directories[0])
        command = Unfinished("leave", node_id)
        theirs, unfinished = owner_of(tree)
        if _has_store(first / METADATA_DIRECTORY):
            if unfinished != command and theirs == cluster_id:
                raise UnusableDirectory(
                    f"{first / METADATA_DIRECTORY} has an embedded store of broker {node_id}, and"
                    f" the tree of its cluster {cluster_id} is in ZooKeeper. Move that directory"
                    " away if the broker belongs to the cluster."
                )
            if not is_dry_run:
                _clean(first, tree if unfinished == command else None)
            return Moved(cluster_id, node_id, ())
        if theirs != cluster_id or unfinished not in (None, command):
            raise UnusableDirectory(
                f"the log directories belong to cluster {cluster_id}, and"
                f" {_state(theirs, unfinished)}. Correct zookeeper.connect."
            )
        nodes = _checked(tree, directories, node_id)
        if is_dry_run:
            return Moved(cluster_id, node_id, nodes)
        tree_copy.mark(tree, cluster_id, command)
        try:
            # A broker may have started and changed the tree before the mark.
            nodes = _checked(tree, directories, node_id)
            _write_store(first, cluster_id, nodes)
        except BaseException:
            with suppress(MetadataError):
                tree_copy.finish(tree, cluster_id)
            raise
        (first / LEAVING_DIRECTORY).rename(first / METADATA_DIRECTORY)
        sync_directory(first)
        _clean(first, tree)
        return Moved(cluster_id, node_id, nodes)


def _clean(first: Path, tree: MetadataTree | None) -> None:
    """Removes what the embedded store replaces: the store before the join, and the cluster's tree
    (None: it was removed before)."""
    shutil.rmtree(first / JOINED_DIRECTORY, ignore_errors=True)
    if tree is not None:
        tree_copy.erase(tree)


def _write_store(first: Path, cluster_id: str, nodes: Sequence[CreateNode]) -> None:
    """Writes the new store beside the place of the store; replaces the one of a former run."""
    leaving = first / LEAVING_DIRECTORY
    shutil.rmtree(leaving, ignore_errors=True)
    shutil.rmtree(first / METADATA_DIRECTORY, ignore_errors=True)  # without a cluster id
    with closing(_embedded(leaving)) as store:
        for part in shares(nodes, store.limits):
            store.multi(part)
        tree_copy.finish(store, cluster_id)
        store.ensure_paths(znodes.PERSISTENT_PATHS)


def _checked(tree: MetadataTree, directories: Sequence[LogDir], node_id: int) -> list[CreateNode]:
    """Returns the nodes of the embedded store: those of the cluster, with this broker as the only
    replica. Raises UnusableDirectory when a broker runs, and IncompleteReplicas."""
    former = FormerSession(directories[0].path).read()
    for name in tree.children(znodes.BROKER_IDS_PATH):
        stat = tree.exists(f"{znodes.BROKER_IDS_PATH}/{name}")
        if stat is not None and stat.ephemeral_owner != former:
            raise UnusableDirectory(
                f"broker {name} is registered in the cluster: it runs, or its session has not ended"
                " yet. Stop it, or wait for zookeeper.session.timeout.ms."
            )
    found: list[CreateNode] = []
    topics: dict[str, list[Node]] = {}
    for node in tree_copy.nodes_to_copy(tree):
        if node.path.startswith(znodes.TOPICS_PATH + "/"):
            topics.setdefault(node.path.split("/")[3], []).append(node)
        elif node.path not in _NOT_KEPT:
            found.append(CreateNode(node.path, node.data))
    deleting = set(tree.children(znodes.DELETE_TOPICS_PATH))
    missing: list[str] = []
    for name, nodes in sorted(topics.items()):
        topic = topic_of(nodes)
        if name not in deleting:
            missing += _missing(topic, directories, node_id)
        found += _alone(topic, node_id)
    if missing:
        more = f" and {len(missing) - NAMED_MAX} more" if len(missing) > NAMED_MAX else ""
        raise IncompleteReplicas(
            f"broker {node_id} has no complete replica of {', '.join(missing[:NAMED_MAX])}{more}."
            f" Start the cluster, move the partitions to broker {node_id} (barnabas cluster"
            " reassign), and stop this broker last."
        )
    return found


# Of the tree of a cluster: what a single node makes anew or does not use.
_NOT_KEPT = (
    znodes.REASSIGN_PARTITIONS_PATH,
    znodes.PREFERRED_ELECTION_PATH,
)


def _missing(topic: Topic, directories: Sequence[LogDir], node_id: int) -> Iterator[str]:
    """Yields the partitions of a topic without a complete replica here, with the reason."""
    paths = [row.path for row in directories]
    for index, partition in topic.partitions.items():
        state = partition.state
        if node_id not in partition.replicas:
            yield f"{topic.name}-{index} (replicas: {_ids(partition.replicas)})"
        elif state is None:
            yield f"{topic.name}-{index} (no leader was ever elected)"
        elif node_id not in state.isr:
            yield f"{topic.name}-{index} (in sync: {_ids(state.isr)})"
        elif topic_id_on_disk(paths, topic.name, [index]) != _id_of(topic):
            yield f"{topic.name}-{index} (its directory is missing)"


def _id_of(topic: Topic) -> bytes | None:
    return None if topic.topic_id is None else znodes.uuid_bytes(topic.topic_id)


def _ids(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))


def _alone(topic: Topic, node_id: int) -> Iterator[CreateNode]:
    """Yields the nodes of a topic whose only replica is on this broker. The leader epoch is a new
    one, because another broker may have led the partition in the one before."""
    replicas = (node_id,)
    assignment = replace(
        topic.assignment,
        partitions=dict.fromkeys(topic.partitions, replicas),
        adding_replicas={},
        removing_replicas={},
    )
    yield CreateNode(znodes.topic_path(topic.name), assignment.encode())
    yield CreateNode(znodes.partitions_path(topic.name))
    for index, partition in topic.partitions.items():
        yield CreateNode(znodes.partition_path(topic.name, index))
        if (before := partition.state) is not None:
            now = PartitionState(
                leader=node_id,
                leader_epoch=before.leader_epoch + 1,
                isr=replicas,
                controller_epoch=before.controller_epoch,
            )
            yield CreateNode(znodes.partition_state_path(topic.name, index), now.encode())


def recover(
    config: BrokerConfig,
    cluster_id: str,
    nodes: Sequence[CreateNode],
    highest_broker_id: int,
    is_dry_run: bool,
) -> None:
    """Writes a rebuilt tree (controller/rebuilt_tree.py) into an empty ZooKeeper. After a crash the
    same command writes all of it again. Raises ConfigError, MetadataError."""
    reserved_max = config.integer("reserved.broker.max.id")
    command = Unfinished("recover")
    with closing(open_zookeeper(config, None)) as tree:
        if is_dry_run:
            tree_copy.check_empty(tree, cluster_id, command)
            return
        tree_copy.begin(tree, cluster_id, command)
        tree_copy.fill(tree, nodes)
        tree_copy.raise_sequence(tree, highest_broker_id - reserved_max)
        tree_copy.finish(tree, cluster_id)


# -- the directories


@contextmanager
def locked_directories(config: BrokerConfig) -> Iterator[list[LogDir]]:
    """Locks the log directories of a broker that does not run. Raises UnusableDirectory."""
    directories = [LogDir(Path(text)) for text in config.log_dirs]
    try:
        for row in directories:
            if not (row.path / META).exists():
                raise UnusableDirectory(
                    f"{row.path} is not the log directory of a broker: it has no {META}. Give the"
                    " settings of the broker with --config or --set log.dirs=DIR."
                )
            row.open()
        yield directories
    finally:
        for row in directories:
            row.close(clean=False)


def _identity(directory: LogDir) -> tuple[str, int]:
    """Returns the cluster id and the node id of meta.properties."""
    found = directory.identity()
    return found.get("cluster.id", ""), int(found.get("node.id", found.get("broker.id", "-1")))


def _embedded(directory: Path) -> EmbeddedTree:
    return EmbeddedTree(directory, clock_ms=lambda: int(time.time() * 1000))


def _has_store(directory: Path) -> bool:
    """Returns whether a directory has an embedded store with a cluster. A start with the wrong
    settings leaves an empty store behind. Raises MetadataError."""
    if not directory.exists():
        return False
    with closing(_embedded(directory)) as store:
        return owner_of(store).cluster_id is not None


def _no_store(path: Path) -> UnusableDirectory:
    return UnusableDirectory(
        f"{path / METADATA_DIRECTORY} has no metadata: this broker has not run on an embedded"
        " store. A new broker joins a cluster when it starts with metadata.store=zookeeper."
    )
