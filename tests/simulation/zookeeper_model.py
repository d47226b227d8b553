"""A model of ZooKeeper in memory: one tree, several sessions, one-shot watches, without threads.

The driver of a simulation decides when a watch is called (`Session.deliver`), when a connection
breaks and when a session expires. The rules of the tree are those of the embedded store
(metadata/node_table.py); tests/simulation/test_zookeeper_model.py compares the model with the real
server, by the conformance suite of stores and by random operations of several sessions.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from barnabas.metadata.node_table import Changes, Entry, NodeTable
from barnabas.metadata.tree import (
    DeleteNode,
    Limits,
    MetadataTree,
    Node,
    Operation,
    OutcomeUnknown,
    Result,
    SessionLost,
    SessionState,
    Stat,
    StateListener,
    StoreUnreachable,
    Watch,
    WatchEvent,
    check_operations,
    check_path,
)
from barnabas.metadata.watches import Watches

# As metadata/zookeeper.py, with an empty chroot.
LIMITS = Limits(multi_operations_max=5_000, multi_bytes_max=0xFFFFF - 1024, operation_bytes=160)


class Fault(enum.Enum):
    """The outcome of one operation of a session."""

    NONE = "none"
    UNREACHABLE = "unreachable"  # it is not carried out
    LOST_REQUEST = "lost request"  # it is not carried out, and the client does not know that
    LOST_ANSWER = "lost answer"  # it is carried out, and the client does not know this


@dataclass
class Server:
    """The tree, and the sessions that the server knows. `on_commit` is called with the events of
    each commit, before any watch."""

    wall_ms: Callable[[], int]
    on_commit: list[Callable[[list[WatchEvent]], object]] = field(default_factory=list)
    zxid: int = 0
    expired: int = 0

    def __post_init__(self) -> None:
        self.table = NodeTable()
        self.table.put("/", Entry(b"", Stat(0, 0, 0, 0, 0, 0), 0))
        self._sessions: dict[int, Session] = {}
        self._next_id = 1

    def begin(self, session: Session) -> int:
        """Begins a session; returns its id."""
        session_id, self._next_id = self._next_id, self._next_id + 1
        self._sessions[session_id] = session
        self.zxid += 1  # ZooKeeper commits the creation of a session
        return session_id

    def knows(self, session_id: int) -> bool:
        return session_id in self._sessions

    def expire(self, session_id: int) -> None:
        """Ends a session on the server, and removes its ephemerals in one commit. Its client learns
        of this with its next operation, or when its connection breaks."""
        if self._sessions.pop(session_id, None) is None:
            return
        self.expired += 1
        owned = sorted(self.table.owned_by(session_id))
        self._apply([DeleteNode(path) for path in owned], 0)

    def commit(self, session_id: int, operations: Sequence[Operation]) -> list[Result]:
        """Carries out all operations or none. Raises MultiFailed."""
        return self._apply(operations, session_id)

    def _apply(self, operations: Sequence[Operation], session_id: int) -> list[Result]:
        changes = Changes(self.table, self.zxid + 1, session_id, self.wall_ms())
        results = changes.run(list(operations))
        self.zxid += 1
        self.table.apply(changes)
        for listener in self.on_commit:
            listener(changes.events)
        for session in list(self._sessions.values()):
            session.see(changes.events)
        return results


class _Queue:
    """The calls of watches and listeners that the driver still has to make."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Callable, object]] = deque()

    def put(self, function: Callable[..., object], argument: object) -> None:
        self.waiting.append((function, argument))

    def stop(self) -> None:
        """Does nothing, because there is no thread."""


class Session(MetadataTree):
    """One client of the server. After an expiry it continues with a new session, like
    ZooKeeperTree.

    `before` is called before each operation and returns its fault. In this call the driver lets
    other brokers run.
    """

    is_shared = True
    limits = LIMITS

    def __init__(
        self,
        server: Server,
        former: Sequence[int] = (),
        before: Callable[[], Fault] = lambda: Fault.NONE,
    ) -> None:
        self._server = server
        self._before = before
        self.former_sessions: set[int] = set(former)
        self._queue = _Queue()
        self._watches = Watches("model", self._queue)  # type: ignore[arg-type]
        self._session_id = server.begin(self)
        self._state = SessionState.CONNECTED
        self._is_closed = False

    # -- for the driver

    @property
    def waits(self) -> bool:
        """Returns whether a watch or a listener has to be called."""
        return bool(self._queue.waiting)

    def deliver(self) -> None:
        """Calls the next watch or listener, as metadata/watches.py does on its thread."""
        function, argument = self._queue.waiting.popleft()
        function(argument)

    def see(self, events: Sequence[WatchEvent]) -> None:
        """Tells a connected client of a commit."""
        if self._state is SessionState.CONNECTED:
            self._watches.fire(events)

    def disconnect(self) -> None:
        """Breaks the connection; the session continues on the server."""
        if self._state is SessionState.CONNECTED:
            self._enter(SessionState.SUSPENDED)

    def reconnect(self) -> None:
        """Connects again: to the same session, or to a new one when the server has ended it."""
        if self._state is SessionState.CONNECTED or self._is_closed:
            return
        if not self._server.knows(self._session_id):
            self._enter(SessionState.LOST)
            self.former_sessions.add(self._session_id)
            self._session_id = self._server.begin(self)
        self._enter(SessionState.CONNECTED)

    def _enter(self, state: SessionState) -> None:
        self._state = state
        self._watches.forget()
        self._watches.tell(state)

    # -- the tree

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def last_commit(self) -> int:
        return self._server.zxid

    @property
    def state(self) -> SessionState:
        return self._state

    def add_listener(self, listener: StateListener) -> None:
        self._watches.add_listener(listener)

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        self._read(path)
        entry = self._server.table.entry(path)
        if watch is not None:
            self._watches.add_data(path, watch)
        return entry.data, entry.stat

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        self._read(path)
        entry = self._server.table.find(path)
        if watch is not None:
            self._watches.add_data(path, watch)
        return None if entry is None else entry.stat

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        self._read(path)
        self._server.table.entry(path)
        if watch is not None:
            self._watches.add_children(path, watch)
        return sorted(self._server.table.children(path))

    def subtree(self, path: str) -> list[Node]:
        self._read(path)
        return sorted(self._server.table.subtree(path))

    def multi(self, operations: Sequence[Operation]) -> list[Result]:
        operations = list(operations)
        check_operations(operations, self.limits)
        fault = self._ask()
        if fault is Fault.LOST_REQUEST:
            self.disconnect()
            raise OutcomeUnknown("the connection broke before the answer")
        if not operations:
            return []
        results = self._server.commit(self._session_id, operations)
        if fault is Fault.LOST_ANSWER:
            self.disconnect()
            raise OutcomeUnknown("the connection broke before the answer")
        return results

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._state is SessionState.CONNECTED:
            self._server.expire(self._session_id)
        self._enter(SessionState.LOST)

    def _read(self, path: str) -> None:
        check_path(path)
        if self._ask() is not Fault.NONE:  # it does not matter whether a read was carried out
            self.disconnect()
            raise StoreUnreachable("the connection to ZooKeeper broke")

    def _ask(self) -> Fault:
        fault = self._before()
        if self._is_closed:
            raise SessionLost("the session is closed")
        if self._state is SessionState.CONNECTED and not self._server.knows(self._session_id):
            self.disconnect()
        if self._state is not SessionState.CONNECTED:
            raise StoreUnreachable("there is no connection to ZooKeeper")
        if fault is Fault.UNREACHABLE:
            self.disconnect()
            raise StoreUnreachable("the connection to ZooKeeper broke")
        return fault
