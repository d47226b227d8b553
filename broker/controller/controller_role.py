"""Whether this node is the controller, and the fence that keeps a former controller from writing.

In a cluster, the controller is the node that created /controller. Each of its writes checks the
version of /controller_epoch in the same multi. A single node is always the controller and needs no
check.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from barnabas.errors import NotController
from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import ClusterStateReader
from barnabas.metadata.tree import CheckVersion, MetadataTree
from barnabas.server.membership import Membership


class ControllerRole(ABC):
    """Whether this node is the active controller, and the fence of its writes."""

    @abstractmethod
    def fence(self) -> tuple[CheckVersion, ...] | None:
        """Returns the operations with which each multi of the controller must begin; None when this
        node is not the controller. Raises MetadataError."""

    def required(self) -> tuple[CheckVersion, ...]:
        """Returns the result of `fence`. Raises NotController when this node is not the
        controller."""
        found = self.fence()
        if found is None:
            raise NotController()
        return found


class SingleNodeRole(ControllerRole):
    """The role of a single node: it is always the controller."""

    def fence(self) -> tuple[CheckVersion, ...]:
        return ()


class ClusterRole(ControllerRole):
    """The role in a cluster, where the nodes elect one controller."""

    def __init__(
        self, tree: MetadataTree, reader: ClusterStateReader, membership: Membership, node_id: int
    ) -> None:
        self._tree = tree
        self._reader = reader
        self._membership = membership
        self._node_id = node_id

    def fence(self) -> tuple[CheckVersion, ...] | None:
        """As in the base class; also None while the known state is older than the election of this
        node. A controller that is elected again, in a new session, would otherwise decide by the
        brokers of the former one, which may have restarted since."""
        state = self._reader.state
        if (state.controller_id, state.controller_epoch) != (
            self._node_id,
            self._membership.epoch,
        ):
            return None
        data, stat = self._tree.get(znodes.CONTROLLER_EPOCH_PATH)
        if znodes.decode_controller_epoch(data) != self._membership.epoch:
            return None
        return (CheckVersion(znodes.CONTROLLER_EPOCH_PATH, stat.version),)
