"""The controller's own thread: it reacts when other nodes or tools write to a shared tree.

    a session begins          this node registers again (server/membership.py) and takes part in
                              the election of the controller
    there is no controller    this node becomes controller, with the next controller epoch
    a broker ends, restarts   its partitions get other leaders (elections.py)
    a log of a broker fails   its partition gets another leader (log_dir_events.py)
    a target is in the ISR    the reassignment ends (reassignments.py)
    the state changes         the other brokers get it (channel_manager.py)
    a topic has no id         it gets one (kafka-topics of 2.7 and older gives none)
    a partition has no state  it gets a leader and its first state
    a node of an old tool     elections and reassignments (old_tools.py)
    /admin/delete_topics/T    the topic is deleted; with delete.topic.enable=false the mark is
                              removed
    old notifications         (/config/changes, /isr_change_notification) are removed fifteen
                              minutes after this thread has first seen them: every broker has read
                              them by then. The clocks of other machines do not count

Each change checks the version of /controller_epoch, so that a former controller changes nothing. A
single node is the only writer of its tree and has no such thread.

The thread tries again every second what it cannot do now (no connection, another writer).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from barnabas.cext.memory.threads import NamedThread
from barnabas.controller.channel_manager import ControllerChannelManager
from barnabas.controller.controller_role import ControllerRole
from barnabas.controller.elections import Elections
from barnabas.controller.log_dir_events import LogDirEvents
from barnabas.controller.new_partitions import KnownId, begin_partitions, give_ids, stateless
from barnabas.controller.old_tools import OldToolRequests
from barnabas.controller.reassignments import Reassignments
from barnabas.controller.topic_deletion import TopicDeletion
from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import ClusterState, ClusterStateReader
from barnabas.metadata.tree import (
    CreateNode,
    MetadataError,
    MetadataTree,
    NoNode,
    SessionState,
)
from barnabas.server.membership import Membership

log = logging.getLogger("barnabas.controller")

AGAIN_S = 1.0
STOP_S = 1.0
NOTES_KEPT_S = 15 * 60
NOTES_LOOKED_AT_S = 60
NOTES = (znodes.CONFIG_CHANGES_PATH, znodes.ISR_CHANGES_PATH, *znodes.ACL_CHANGES_PATHS)


class Controller:
    """The controller thread of one node on a shared tree; call `start` when the node is
    registered."""

    def __init__(
        self,
        tree: MetadataTree,
        reader: ClusterStateReader,
        membership: Membership,
        controller_role: ControllerRole,
        deletion: TopicDeletion,
        elections: Elections,
        reassignments: Reassignments,
        channels: ControllerChannelManager,
        node_id: int,
        offline_replicas: Callable[[], frozenset[tuple[str, int]]],
        may_delete: Callable[[], bool],
        known_id: KnownId,
        random_bytes: Callable[[int], bytes],
        monotonic_ns: Callable[[], int],
    ) -> None:
        self._tree = tree
        self._reader = reader
        self._membership = membership
        self._controller_role = controller_role
        self._deletion = deletion
        self._elections = elections
        self._reassignments = reassignments
        self._channels = channels
        self._node_id = node_id
        self._may_delete = may_delete
        self._known_id = known_id
        self._random_bytes = random_bytes
        self._monotonic_ns = monotonic_ns
        self._notes_next_s = 0.0
        self._notes: dict[str, float] = {}  # when each was first seen, in seconds, by path
        self._said = ""
        self._without_id: frozenset[str] = frozenset()  # topics that were logged
        self._stopping = False
        self._wake = threading.Event()
        self._log_dir_events = LogDirEvents(
            tree, node_id, channels, offline_replicas, self._wake.set
        )
        self._old_tools = OldToolRequests(tree, reader, elections, reassignments, self._wake.set)
        self._thread = NamedThread(target=self._run, name="controller", daemon=True)

    def start(self) -> None:
        self._wake.set()
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; waits at most STOP_S seconds. A pending operation of the tree ends when
        the tree is closed."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)
        self._channels.stop()

    def apply(self, _state: ClusterState) -> None:
        """Wakes the thread for a new state; returns at once. A state that the thread has made
        itself does not wake it: watches report the changes of other writers."""
        if threading.current_thread() is not self._thread:
            self._wake.set()

    def has_told(self) -> bool:
        """Returns whether all other brokers have acknowledged the present state of all partitions.
        It may ask for that soon after a change: the thread sends the change when it runs."""
        return self._channels.is_acknowledged(self._reader.state)

    @property
    def is_awake(self) -> bool:
        """Whether there is something to look at: the thread waits while there is not."""
        return self._wake.is_set()

    def _run(self) -> None:
        again = False
        while True:
            self._wake.wait(AGAIN_S if again else None)
            if self._stopping:
                return
            again = not self.step()

    def step(self) -> bool:
        """Does the pending work; returns False when it must be tried again after AGAIN_S. Only one
        thread may call it."""
        self._wake.clear()
        try:
            if not self._membership.ensure():
                return False
            self._work()
        except MetadataError as error:
            if not self._stopping and str(error) != self._said:
                log.warning("the controller failed and tries again: %s", error)
            self._said = str(error)
            return False
        except Exception:
            log.exception("the controller failed")
            return False
        self._said = ""
        return True

    def _work(self) -> None:
        if self._tree.state is not SessionState.CONNECTED:
            return  # the next session brings a new state, and with it another call
        if self._has_no_controller(self._reader.state):
            if self._membership.elect() is not None:
                self._reader.load()  # it has the partition states only from requests
            self._reader.refresh_controller()
        check = self._controller_role.fence()
        if check is None:
            self._channels.stop()
            self._log_dir_events.forget()
            self._log_without_id()
            return
        if self._tree.exists(znodes.FEATURES_PATH) is None:
            self._tree.multi([*check, CreateNode(znodes.FEATURES_PATH, znodes.NO_FEATURES)])
        give_ids(self._tree, self._reader, self._known_id, self._random_bytes)
        begin_partitions(self._tree, self._reader, stateless(self._reader.state), check)
        self._elections.set_offline(self._log_dir_events.read())
        self._elections.run(check)
        self._reassignments.advance(check)
        self._old_tools.run(check)
        self._channels.update(self._reader.state)
        self._delete_notes()
        self._delete_marked()

    def _has_no_controller(self, state: ClusterState) -> bool:
        """Returns whether this node may become controller: there is none, or this node has been
        elected and has not learned of it, because the answer was lost."""
        if state.controller_id != self._node_id:
            return state.controller_id is None
        return state.controller_epoch != self._membership.epoch

    def _log_without_id(self) -> None:
        """Logs the topics to which another broker, the controller, gives no id. Its registration
        does not show this: Kafka writes the same with inter.broker.protocol.version 2.7 and 2.8."""
        state = self._reader.state
        before, self._without_id = self._without_id, frozenset(state.without_id)
        if new := self._without_id - before:
            log.warning(
                "topics without an id are not served here: %s. The controller, broker %s, gives ids"
                " with an inter.broker.protocol.version of 2.8 or later: set it on the brokers of"
                " Apache Kafka and restart them.",
                ", ".join(sorted(new)),
                state.controller_id,
            )

    def _delete_marked(self) -> None:
        marked = self._tree.children(znodes.DELETE_TOPICS_PATH)
        if not marked:
            return
        known = self._reader.state.topics
        there = [name for name in marked if name in known]
        done = [name for name in marked if self._tree.exists(znodes.topic_path(name)) is None]
        if self._may_delete():
            self._deletion.delete(there)
        else:
            log.info("delete.topic.enable is false; not deleting %s", ", ".join(sorted(marked)))
            done = marked
        for name in done:
            self._remove(znodes.delete_topic_path(name))

    def _delete_notes(self) -> None:
        now_s = self._monotonic_ns() / 1e9
        if now_s < self._notes_next_s:
            return
        self._notes_next_s = now_s + NOTES_LOOKED_AT_S
        known, self._notes = self._notes, {}
        for parent in NOTES:
            if self._tree.exists(parent) is None:
                continue
            for name in self._tree.children(parent):
                path = f"{parent}/{name}"
                seen_s = known.get(path, now_s)
                if seen_s + NOTES_KEPT_S < now_s:
                    self._remove(path)
                else:
                    self._notes[path] = seen_s

    def _remove(self, path: str) -> None:
        try:
            self._tree.delete(path)
        except NoNode:
            pass
