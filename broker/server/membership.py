"""This node's registration in the metadata tree, made again in each session.

An expired session removes the ephemeral nodes of the registration and of the controller. Membership
creates both again in the next session, before any other code reads the tree, so that this node
never sees a state without itself. When that fails, `ensure`, which the controller's thread calls,
tries again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from barnabas.config import BrokerConfig
from barnabas.config.listeners import Listener
from barnabas.metadata.tree import MetadataError, MetadataTree, SessionState
from barnabas.server.registration import Features, register, register_again, take_control
from barnabas.storage.log_dirs import UnusableDirectory

log = logging.getLogger("barnabas.node")


class Membership:
    """The membership of one node. `features`: the levels of features that it supports;
    `listeners`: the advertised listeners."""

    def __init__(
        self,
        tree: MetadataTree,
        node_id: int,
        config: BrokerConfig,
        features: Features,
        listeners: Callable[[], Sequence[Listener]],
        wall_ms: Callable[[], int],
    ) -> None:
        self._tree = tree
        self._node_id = node_id
        self._config = config
        self._features = features
        self._listeners = listeners
        self._wall_ms = wall_ms
        self._lock = threading.Lock()
        self._session_id = 0  # the session in which this node is registered; 0 before `begin`
        self._said = ""
        self.epoch: int | None = None  # controller epoch, if this node won the last election
        tree.add_listener(self._session_changed)

    def begin(self) -> None:
        """Registers this node for the first time and takes part in the election of the controller.
        Raises UnusableDirectory when another live node has this id, and MetadataError."""
        with self._lock:
            self._announce()

    def ensure(self) -> bool:
        """Registers this node again if the session is a new one, with one attempt; logs an error
        when this fails. Returns whether it is registered in the present session; False also before
        `begin`."""
        with self._lock:
            if not self._session_id or self._session_id == self._tree.session_id:
                return bool(self._session_id)
            try:
                self._announce()
            except (UnusableDirectory, MetadataError) as error:
                if str(error) != self._said:
                    log.error("cannot register this broker in the new session yet: %s", error)
                self._said = str(error)
                return False
            log.info("registered this broker again, in a new session")
            self._said = ""
            return True

    def announce_again(self) -> None:
        """Writes the registration again, with listeners that have changed while the node runs."""
        listeners, features = self._listeners(), self._features
        register_again(
            self._tree, self._node_id, listeners, self._config, features, self._wall_ms()
        )

    def elect(self) -> int | None:
        """Becomes controller if there is none. Returns the controller epoch of this node; None when
        another node is controller."""
        with self._lock:
            self.epoch = take_control(self._tree, self._node_id, self._wall_ms())
            return self.epoch

    def _announce(self) -> None:
        session_id = self._tree.session_id
        self._tree.remember_session()
        listeners, features = self._listeners(), self._features
        register(self._tree, self._node_id, listeners, self._config, features, self._wall_ms())
        self.epoch = take_control(self._tree, self._node_id, self._wall_ms())
        self._session_id = session_id

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self.ensure()
