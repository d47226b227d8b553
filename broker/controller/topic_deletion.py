"""Deletes topics, and finishes a deletion after a crash.

    1  a marker below /admin/delete_topics marks the topic for deletion
    2  the brokers close its logs and rename their directories to `-delete`
    3  the checkpoints are written without it: a later topic of the same name starts at offset 0
    4  one multi deletes its nodes, its configuration and the marker

Before the marker is on disk the topic exists; from then on it is deleted, also after a crash: at
the next start `finish` does the remaining steps. If a topic has more nodes than fit in one multi,
several multis delete its partitions, and the last one deletes its own node and the marker. So a
topic without a marker is not to be deleted: when another controller has finished the deletion, a
client may have created the topic again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence

from barnabas.controller.controller_role import ControllerRole
from barnabas.errors import UnknownTopicOrPartition
from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import ClusterStateReader
from barnabas.metadata.tree import (
    CheckVersion,
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

# The errors of a multi when another node carries out the same deletion.
OTHERS_DELETE = (NoNode, NodeExists, NotEmpty)
ATTEMPTS_MAX = 5

log = logging.getLogger("barnabas.controller")


class TopicDeletion:
    """Deletes topics, on one thread at a time. It calls `logs_dropped` after the logs of topics
    were closed, before it deletes their nodes."""

    def __init__(
        self,
        tree: MetadataTree,
        reader: ClusterStateReader,
        controller_role: ControllerRole,
        logs_dropped: Callable[[], object],
    ) -> None:
        self._tree = tree
        self._reader = reader
        self._controller_role = controller_role
        self._logs_dropped = logs_dropped
        self._lock = threading.Lock()

    def delete(self, names: Collection[str]) -> dict[str, UnknownTopicOrPartition]:
        """Deletes topics. Returns an error for each topic that does not exist; the others are
        deleted on this node, in memory and on disk. On a node that is not the controller they are
        only marked, and the controller deletes them."""
        with self._lock:
            missing = {}
            marked = []
            for name in names:
                if self._mark(name):
                    marked.append(name)
                else:
                    missing[name] = UnknownTopicOrPartition(f"there is no topic {name}")
            check = self._controller_role.fence()
            if check is None:
                return missing  # the controller sees the marks
            if marked:
                self._carry_out(marked, check)
            for name in marked:
                log.log(
                    logging.WARNING if name in INTERNAL_TOPICS else logging.INFO,
                    "Topic %s deleted, its records and settings with it",
                    name,
                )
            return missing

    def finish(self) -> list[str]:
        """Deletes the remaining nodes of topics that are marked for deletion, if this node is the
        controller; returns their names. Call this at the start, after their log directories were
        renamed to `-delete`."""
        with self._lock:
            check = self._controller_role.fence()
            if check is None:
                return []  # the controller sees the marks
            state = self._reader.state
            pending = [
                name
                for name in sorted(self._tree.children(znodes.DELETE_TOPICS_PATH))
                if (topic := state.topic(name)) is None or topic.deleting
            ]
            if pending:
                self._logs_dropped()
                self._remove(pending, check)
                log.info("deletion of %s finished", ", ".join(pending))
            return pending

    def _mark(self, name: str) -> bool:
        """Marks a topic for deletion; returns False when there is no such topic."""
        if self._reader.state.topic(name) is None:
            return False
        try:
            self._tree.create(znodes.delete_topic_path(name))
        except NodeExists:
            pass  # another node has marked it, or an earlier attempt that failed later
        return True

    def _carry_out(self, names: Sequence[str], check: Sequence[CheckVersion]) -> None:
        self._reader.refresh_topics(names)  # the node that hosts a marked topic drops its logs
        self._logs_dropped()
        self._remove(names, check)

    def _remove(self, names: Sequence[str], check: Sequence[CheckVersion]) -> None:
        for name in names:
            self._remove_nodes(name, check)
        self._reader.refresh_topics(names)
        self._reader.refresh_config([f"topics/{name}" for name in names])

    def _remove_nodes(self, name: str, check: Sequence[CheckVersion]) -> None:
        """Deletes a topic's nodes, its configuration and its marker; tries again when another node
        carries out the same deletion. Raises BadVersion when `check` fails, and MetadataError."""
        for attempt in range(ATTEMPTS_MAX):
            try:
                for part in shares(self._operations(name), self._tree.limits, check):
                    self._tree.multi(part)
                return
            except MultiFailed as failed:
                is_theirs = failed.index >= len(check) and isinstance(failed.error, OTHERS_DELETE)
                if not is_theirs or attempt + 1 == ATTEMPTS_MAX:
                    raise failed.error from failed

    def _operations(self, name: str) -> list[Operation]:
        """Returns the operations that delete a topic: children before parents, the marker last;
        none when it is not marked any more."""
        operations: list[Operation] = []
        config = znodes.config_path("topics", name)
        if self._tree.exists(config) is not None:
            operations.append(DeleteNode(config))
        nodes = self._tree.subtree(znodes.topic_path(name))
        operations += [DeleteNode(node.path) for node in reversed(nodes)]
        marker = znodes.delete_topic_path(name)
        if self._tree.exists(marker) is None:
            return []  # another node has removed all of it
        operations.append(DeleteNode(marker))
        return operations
