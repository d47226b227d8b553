"""Deletes topics, and finishes a deletion after a crash.

    1  a marker below /admin/delete_topics marks the topic for deletion
    2  its logs leave service and their directories are renamed to `-delete`
    3  the checkpoints are written without it: a later topic of the same name starts afresh
    4  its nodes, its configuration and the marker go in one multi

Before the marker is on disk the topic is there; from then on it is deleted, whatever happens: at
the next start `finish` does what is left. A topic with more nodes than one multi takes loses its
partitions in several, and its own node with the marker in the last.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence

from barnabas.errors import UnknownTopicOrPartition
from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import ClusterStateReader
from barnabas.metadata.tree import (
    CreateNode,
    DeleteNode,
    MetadataTree,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    shares,
)
from barnabas.wire.internal import TOPICS as INTERNAL_TOPICS

# What a multi fails with when another node carries out the same deletion.
OTHERS_DELETE = (NoNode, NodeExists, NotEmpty)
ATTEMPTS_MAX = 5

log = logging.getLogger("barnabas.controller")


class TopicDeletion:
    """`logs_dropped` is called when the logs of topics left service, before their nodes go."""

    def __init__(
        self, tree: MetadataTree, reader: ClusterStateReader, logs_dropped: Callable[[], object]
    ) -> None:
        self._tree = tree
        self._reader = reader
        self._logs_dropped = logs_dropped
        self._lock = threading.Lock()

    def delete(self, names: Collection[str]) -> dict[str, UnknownTopicOrPartition]:
        """Deletes topics; those that are not there come back with their error. When it returns,
        the others are gone, here and on disk."""
        with self._lock:
            missing = {}
            marked = []
            for name in names:
                if self._mark(name):
                    marked.append(name)
                else:
                    missing[name] = UnknownTopicOrPartition(f"there is no topic {name}")
            if marked:
                self._carry_out(marked)
            for name in marked:
                log.log(
                    logging.WARNING if name in INTERNAL_TOPICS else logging.INFO,
                    "Topic %s deleted, its records and settings with it",
                    name,
                )
            return missing

    def finish(self) -> list[str]:
        """At start, after the directories of marked topics were put on their way out: removes
        what is left of them in the tree."""
        with self._lock:
            state = self._reader.state
            pending = [
                name
                for name in sorted(self._tree.children(znodes.DELETE_TOPICS_PATH))
                if (topic := state.topic(name)) is None or topic.deleting
            ]
            if pending:
                self._logs_dropped()
                self._remove(pending)
                log.info("deletion of %s finished", ", ".join(pending))
            return pending

    def _mark(self, name: str) -> bool:
        """Whether the topic is there and marked now."""
        if self._reader.state.topic(name) is None:
            return False
        try:
            self._tree.create(znodes.delete_topic_path(name))
        except NodeExists:
            pass  # by another node, or by an attempt that failed in between
        return True

    def _carry_out(self, names: Sequence[str]) -> None:
        self._reader.refresh_topics(names)  # the node that hosts a marked topic drops its logs
        self._logs_dropped()
        self._remove(names)

    def _remove(self, names: Sequence[str]) -> None:
        for name in names:
            self._remove_nodes(name)
        self._reader.refresh_topics(names)
        self._reader.refresh_config([f"topics/{name}" for name in names])

    def _remove_nodes(self, name: str) -> None:
        """What another node, which carries out the same deletion, removed meanwhile is looked at
        again."""
        for attempt in range(ATTEMPTS_MAX):
            try:
                for part in shares(self._operations(name), self._tree.limits):
                    self._tree.multi(part)
                return
            except MultiFailed as failed:
                if not isinstance(failed.error, OTHERS_DELETE) or attempt + 1 == ATTEMPTS_MAX:
                    raise failed.error from failed

    def _operations(self, name: str) -> list[Operation]:
        """Children before parents, the marker last."""
        operations: list[Operation] = []
        config = znodes.config_path("topics", name)
        if self._tree.exists(config) is not None:
            operations.append(DeleteNode(config))
        nodes = self._tree.subtree(znodes.topic_path(name))
        operations += [DeleteNode(node.path) for node in reversed(nodes)]
        marker = znodes.delete_topic_path(name)
        is_marked = self._tree.exists(marker) is not None
        if not operations and not is_marked:
            return []  # another node has removed all of it
        if not is_marked:  # a start may find a topic without one
            operations.append(CreateNode(marker))
        operations.append(DeleteNode(marker))
        return operations
