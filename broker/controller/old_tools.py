"""What tools of Kafka before 2.4 ask the controller for by nodes below /admin.

    /admin/preferred_replica_election   preferred leaders of these partitions; the node is deleted
                                        when they are elected
    /admin/reassign_partitions          moves of partitions; the node keeps those in progress, as
                                        kafka-reassign-partitions --verify reads it, and is deleted
                                        after the last one

A partition that cannot be elected or moved is logged and taken out. A node that cannot be read is
deleted. A move that somebody replaces or cancels by a request is taken out too.

Kafka: KafkaController.processZkPartitionReassignment and processReplicaLeaderElection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from barnabas.controller.elections import Elections
from barnabas.controller.reassignments import Reassignments
from barnabas.errors import ElectionNotNeeded
from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import ClusterState, ClusterStateReader
from barnabas.metadata.tree import BadVersion, CheckVersion, MetadataTree, NoNode, WatchEvent
from barnabas.metadata.znode_json import ZnodeDataError

log = logging.getLogger("barnabas.controller")

Place = tuple[str, int]


class OldToolRequests:
    """Carries out the nodes of old tools, on the controller's thread."""

    def __init__(
        self,
        tree: MetadataTree,
        reader: ClusterStateReader,
        elections: Elections,
        reassignments: Reassignments,
        wake: Callable[[], object],
    ) -> None:
        """`wake`: called when a node comes, changes or goes."""
        self._tree = tree
        self._reader = reader
        self._elections = elections
        self._reassignments = reassignments
        self._wake = wake
        self._begun: set[tuple[Place, tuple[int, ...]]] = set()  # moves of the node

    def run(self, check: Sequence[CheckVersion]) -> None:
        """Does what the nodes ask for now. Raises MetadataError."""
        self._elect(check)
        self._reassign(check)

    def _changed(self, _event: WatchEvent) -> None:
        self._wake()

    def _read(self, path: str) -> tuple[bytes, int] | None:
        """Returns data and version of a node, and watches it."""
        if self._tree.exists(path, self._changed) is None:
            return None
        try:
            data, stat = self._tree.get(path)
        except NoNode:
            return None
        return data, stat.version

    def _remove(self, path: str, version: int) -> None:
        try:
            self._tree.delete(path, version)
        except (NoNode, BadVersion):
            pass  # a tool was quicker; the watch brings the next call

    def _elect(self, check: Sequence[CheckVersion]) -> None:
        path = znodes.PREFERRED_ELECTION_PATH
        found = self._read(path)
        if found is None:
            return
        try:
            places = znodes.decode_partitions(found[0])
        except ZnodeDataError as error:
            log.error("ignoring %s: %s", path, error)
            places = ()
        for (name, index), refused in self._elections.prefer(check, places).items():
            if refused is not None and not isinstance(refused, ElectionNotNeeded):
                log.warning("%s: %s-%d: %s", path, name, index, refused.message)
        self._remove(path, found[1])

    def _reassign(self, check: Sequence[CheckVersion]) -> None:
        path = znodes.REASSIGN_PARTITIONS_PATH
        found = self._read(path)
        if found is None:
            self._begun.clear()
            return
        data, version = found
        try:
            wanted = dict(znodes.Reassignment.decode(data).replicas)
        except ZnodeDataError as error:
            log.error("ignoring %s: %s", path, error)
            wanted = {}
        self._begun &= set(wanted.items())
        new = {place: row for place, row in wanted.items() if (place, row) not in self._begun}
        if new:
            for (name, index), refused in self._reassignments.begin(check, new).items():
                if refused is not None:
                    log.warning("%s: %s-%d: %s", path, name, index, refused.message)
            self._begun |= set(new.items())
        state = self._reader.state
        left = {place: row for place, row in wanted.items() if _moves_to(state, place, row)}
        if not left:
            self._remove(path, version)
        elif left != wanted:
            try:
                self._tree.set(path, znodes.Reassignment(left).encode(), version)
            except (NoNode, BadVersion):
                pass


def _moves_to(state: ClusterState, place: Place, target: tuple[int, ...]) -> bool:
    """Whether a partition is being moved to these replicas."""
    name, index = place
    topic = state.topic(name)
    if topic is None or topic.deleting or index not in topic.partitions:
        return False
    adding = topic.assignment.adding_replicas.get(index, ())
    removing = topic.assignment.removing_replicas.get(index, ())
    if not adding and not removing:
        return False
    kept = [row for row in topic.partitions[index].replicas if row not in removing]
    return tuple(kept) == target
