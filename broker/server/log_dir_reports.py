"""Reports to the controller that logs of this broker have failed, or can be used again (KIP-112).

A report is a sequential node in /log_dir_event_notification with the id of this broker only. The
controller, also Kafka's, then sends LeaderAndIsr for all replicas of this broker. The answer has
KAFKA_STORAGE_ERROR for those whose log cannot be used, and their partitions get other leaders.

Kafka: ReplicaManager.handleLogDirFailure, KafkaZkClient.propagateLogDirEvent.
"""

from __future__ import annotations

import logging

from barnabas.metadata import znodes
from barnabas.metadata.tree import MetadataError, MetadataTree
from barnabas.server.replica_manager import ReplicaManager

log = logging.getLogger("barnabas.replicas")

PERIOD_MS = 500


class LogDirReports:
    """The reports of one broker of a cluster."""

    def __init__(self, tree: MetadataTree, node_id: int, replicas: ReplicaManager) -> None:
        self._tree = tree
        self._node_id = node_id
        self._replicas = replicas
        self._seen: object = None
        self._reported: frozenset[tuple[str, int]] = frozenset()
        self._said = ""

    def run(self) -> None:
        """Writes a report when other replicas are offline than at the last one. When it cannot be
        written, the next call tries again."""
        seen = self._replicas.offline_changes()
        if seen == self._seen:
            return
        now = self._replicas.offline_replicas()
        if now != self._reported:
            event = znodes.LogDirEvent(self._node_id)
            try:
                self._tree.create(znodes.LOG_DIR_EVENT_PREFIX, event.encode(), sequence=True)
            except MetadataError as error:
                if str(error) != self._said:
                    log.warning("cannot report failed logs to the controller yet: %s", error)
                self._said = str(error)
                return
        self._seen, self._reported, self._said = seen, now, ""
