"""How the controller learns which replicas are offline, because their log has failed (KIP-112).

A broker whose logs have failed, or can be used again, adds a node to /log_dir_event_notification
(server/log_dir_reports.py; Kafka's brokers do the same). The controller then sends LeaderAndIsr for
all replicas of that broker again, and the answer names those that are offline. The controller looks
at its own replicas without a request. After the start of a broker, and after the election of a
controller, no node is needed: the answer to the first LeaderAndIsr names the offline replicas.

Kafka: KafkaController.processLogDirEventNotification, ControllerContext.replicasOnOfflineDirs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from barnabas.controller.channel_manager import ControllerChannelManager
from barnabas.metadata import znodes
from barnabas.metadata.tree import MetadataTree, NoNode, WatchEvent
from barnabas.metadata.znode_json import ZnodeDataError

log = logging.getLogger("barnabas.controller")

Place = tuple[str, int]


class LogDirEvents:
    """Reads the nodes, on the controller's thread."""

    def __init__(
        self,
        tree: MetadataTree,
        node_id: int,
        channels: ControllerChannelManager,
        own: Callable[[], frozenset[Place]],
        wake: Callable[[], object],
    ) -> None:
        """`own`: returns the replicas of this broker whose log cannot be used; `wake`: called when
        a node was added, or a broker has answered with other replicas than before."""
        self._tree = tree
        self._node_id = node_id
        self._channels = channels
        self._read_own = own
        self._own: frozenset[Place] | None = None  # None: not read since this node is controller
        self._wake = wake
        channels.on_offline = wake

    def forget(self) -> None:
        """Forgets the replicas of this broker, because it is not the controller any more."""
        self._own = None

    def read(self) -> dict[Place, frozenset[int]]:
        """Asks the brokers that have added nodes for their offline replicas, and removes the nodes.
        Returns by partition the brokers whose replica is known to be offline. Raises
        MetadataError."""
        for name in sorted(self._tree.children(znodes.LOG_DIR_EVENTS_PATH, self._changed)):
            path = f"{znodes.LOG_DIR_EVENTS_PATH}/{name}"
            try:
                broker_id = znodes.LogDirEvent.decode(self._tree.get(path)[0]).broker_id
            except NoNode:
                continue
            except ZnodeDataError as error:
                log.error("ignoring %s: %s", path, error)
            else:
                log.info("broker %d reports that logs have failed or returned", broker_id)
                if broker_id == self._node_id:
                    self._own = None
                else:
                    self._channels.ask_again(broker_id)
            self._remove(path)
        if self._own != frozenset():  # a topic with one may be deleted: no node says so
            self._own = self._read_own()
        return _by_place({**self._channels.offline_replicas(), self._node_id: self._own})

    def _changed(self, _event: WatchEvent) -> None:
        self._wake()

    def _remove(self, path: str) -> None:
        try:
            self._tree.delete(path)
        except NoNode:
            pass


def _by_place(offline: Mapping[int, frozenset[Place]]) -> dict[Place, frozenset[int]]:
    found: dict[Place, set[int]] = {}
    for broker_id, places in offline.items():
        for place in places:
            found.setdefault(place, set()).add(broker_id)
    return {place: frozenset(brokers) for place, brokers in found.items()}
