"""The tree in ZooKeeper, over kazoo: for a node that shares it with old clients or other brokers.

kazoo keeps the connection: its thread reads and writes, and reconnects with the same session while
that exists, and with a new one after it has expired. This module makes the tree's calls from
kazoo's requests:

    a read whose answer was lost is repeated
    after a lost answer to a multi, the tree shows whether it was done (zookeeper_outcome.py); it is
    sent again only when it certainly was not done; otherwise the caller gets OutcomeUnknown
    without a connection a call waits for at most the session timeout; then it raises
    StoreUnavailable

zookeeper.max.in.flight.requests limits the number of requests in flight; a read of a subtree keeps
that many in flight. Paths are those below the chroot, which is created when it is missing. Empty
data is written as no data, as in Kafka.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from ssl import SSLContext
from typing import Any

from kazoo.exceptions import AuthFailedError, KazooException, NodeExistsError, NoNodeError
from kazoo.protocol.serialization import CheckVersion as CheckRequest
from kazoo.protocol.serialization import Create, Delete
from kazoo.protocol.serialization import SetData as SetRequest
from kazoo.protocol.states import EventType as KazooEvent
from kazoo.protocol.states import KazooState, KeeperState, WatchedEvent, ZnodeStat
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from barnabas.cext.memory.threads import NamedThread
from barnabas.config.zookeeper import ZooKeeperLogin, ZooKeeperSettings
from barnabas.metadata.former_session import FormerSession
from barnabas.metadata.tree import (
    DATA_BYTES_MAX,
    PATH_BYTES_MAX,
    CheckVersion,
    CreateNode,
    DeleteNode,
    EventType,
    Limits,
    MetadataTree,
    Node,
    Operation,
    OutcomeUnknown,
    Result,
    SessionLost,
    SessionState,
    SetData,
    Stat,
    StateListener,
    StoreUnavailable,
    StoreUnreachable,
    Watch,
    WatchEvent,
    check_operations,
    check_path,
    join,
    name_of,
    parent_of,
)
from barnabas.metadata.watches import Calls
from barnabas.metadata.znodes import CONFIG_PATH, CONSUMERS_PATH
from barnabas.metadata.zookeeper_errors import LOST, multi_error, tree_error
from barnabas.metadata.zookeeper_outcome import Found, Verdict, verdict
from barnabas.zookeeper_client import zookeeper_client

log = logging.getLogger("barnabas.zookeeper")

Ask = Callable[[], Any]  # sends a request through kazoo; returns its asynchronous result

PACKET_BYTES_MAX = 0xFFFFF - 1024  # jute.maxbuffer, less the header
OPERATIONS_MAX = 5_000
# The size of an operation of a multi besides path and data: its header, lengths, flags and ACL,
# which the server writes with the name of its creator.
OPERATION_BYTES = 160
LOOK_S = 0.25  # period in which a waiting call checks whether the tree is being closed
CLOSE_S = 5.0
GIVE_UP_S = 0.2
LOGIN_REFUSED = (
    "ZooKeeper refused the login of this broker. Correct zookeeper.auth, or the section of the JAAS"
    " file (KAFKA_OPTS)."
)
# Only their creator may read nodes with secrets: the list is Kafka's.
SENSITIVE = (f"{CONFIG_PATH}/users", f"{CONFIG_PATH}/brokers", "/delegation_token")

_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}
_EVENTS = {
    KazooEvent.CREATED: EventType.CREATED,
    KazooEvent.DELETED: EventType.DELETED,
    KazooEvent.CHANGED: EventType.CHANGED,
    KazooEvent.CHILD: EventType.CHILDREN,
}


class _AnswerLost(Exception):
    """The connection or the session was lost, or no answer came in time."""


class ZooKeeperTree(MetadataTree):
    """A connected tree. The constructor raises StoreUnavailable or Forbidden, with a text of one
    line.

    When a session expires, the same object is LOST and then CONNECTED with the next session: a
    listener must create its ephemeral nodes and watches again."""

    is_shared = True

    def __init__(
        self,
        settings: ZooKeeperSettings,
        former: FormerSession | None = None,
        context: SSLContext | None = None,
    ) -> None:
        """`context`: TLS to ZooKeeper; None: a plaintext connection."""
        chroot_bytes = len(settings.chroot.encode())
        self.limits = Limits(
            multi_operations_max=OPERATIONS_MAX,
            multi_bytes_max=PACKET_BYTES_MAX,
            data_bytes_max=DATA_BYTES_MAX,
            path_bytes_max=PATH_BYTES_MAX - chroot_bytes,
            operation_bytes=OPERATION_BYTES + chroot_bytes,
        )
        self._settings = settings
        self._chroot = settings.chroot
        self._patience_s = settings.session_timeout_ms / 1000
        self._former = former
        self._context = context
        known = None if former is None else former.read()
        self.former_sessions: set[int] = set() if known is None else {known}
        self._changed = threading.Condition()  # guards the next four
        self._state = SessionState.SUSPENDED
        self._session_id = 0
        self._closing = False
        self._listeners: list[StateListener] = []
        self._slots = threading.BoundedSemaphore(settings.in_flight_max)
        self._zxid = 0  # the largest zxid of an answer
        self._call_session_id = 0  # session of the call that the thread for watches runs
        self._last_event: tuple[object, set[Watch]] = (None, set())
        self._calls = Calls("metadata-watches")
        self._client = self._new_client()
        self._client.add_listener(self._state_changed)
        self._connect()

    # -- the session ----------------------------------------------------------------------------

    def _new_client(self) -> Any:
        settings = self._settings
        # At DEBUG kazoo writes every request, credentials among them, and at WARNING each attempt.
        quiet = logging.getLogger("barnabas.zookeeper.kazoo")
        quiet.setLevel(logging.ERROR)
        return zookeeper_client(
            settings.hosts,
            settings.session_timeout_ms,
            self._context,
            logger=quiet,
            **_login(settings.login),
        )

    def _connect(self) -> None:
        settings = self._settings
        try:
            self._client.start_async()
            with self._changed:
                self._changed.wait_for(
                    lambda: self._state is SessionState.CONNECTED or self._refused,
                    settings.connection_timeout_ms / 1000,
                )
            if self._refused:
                raise StoreUnavailable(LOGIN_REFUSED)
            if self._state is not SessionState.CONNECTED:
                problem = getattr(self._client.handler, "problem", "")
                raise StoreUnavailable(
                    f"cannot open a TLS connection to ZooKeeper at {settings.hosts}: {problem}."
                    " Correct zookeeper.ssl.* or the server's certificate."
                    if problem
                    else f"ZooKeeper at {settings.hosts} did not answer within"
                    f" {settings.connection_timeout_ms} ms (zookeeper.connection.timeout.ms)."
                    " Start it, or correct zookeeper.connect."
                )
            self._make_chroot()
            self._read(lambda: self._client.exists_async(self._full("/")), "/")
        except BaseException:
            self._close(GIVE_UP_S)  # no server is there to end the session
            raise

    @property
    def _refused(self) -> bool:
        return bool(self._client.client_state == KeeperState.AUTH_FAILED)

    def _make_chroot(self) -> None:
        path = ""
        for name in self._chroot.split("/")[1:]:
            path = f"{path}/{name}"
            whole = path

            def look(whole: str = whole) -> Any:
                return self._client.exists_async(whole)

            def make(whole: str = whole) -> Any:
                return self._client.create_async(whole, None, acl=self._acl("/"))

            try:
                if self._read(look, whole) is None:
                    self._read(make, whole)
            except NodeExistsError:
                pass  # another node was quicker, or our answer was lost

    def _state_changed(self, kazoo_state: str) -> None:
        """Called on kazoo's connection thread; must not wait."""
        state = _STATES[kazoo_state]
        with self._changed:
            if self._closing:
                return
            if state is SessionState.CONNECTED:
                self._began(int(self._client.client_id[0]))
            elif state is not self._state:
                words = {
                    SessionState.SUSPENDED: "the connection to ZooKeeper is lost; reconnecting",
                    SessionState.LOST: "the session in ZooKeeper has expired; beginning a new one",
                }
                log.warning("%s", words[state])
            self._state = state
            self._changed.notify_all()
            self._tell(state)

    def _began(self, session_id: int) -> None:
        """Notes the session of a new connection. The caller holds the lock."""
        if session_id != self._session_id:
            if self._session_id:
                self.former_sessions.add(self._session_id)
            self._session_id = session_id
            if self._former is not None:
                self._former.write(session_id)
        log.info("connected to ZooKeeper, session 0x%x", session_id & (2**64 - 1))

    def _tell(self, state: SessionState) -> None:
        for listener in self._listeners:
            self._calls.put(self._call, (listener, state, self._session_id))

    def _call(self, call: tuple[Callable[..., object], object, int]) -> None:
        """Runs a call on the thread for watches; each call belongs to one session. It drops a watch
        of a former session, and a call reads nothing from a later session: between the two sessions
        this node may not be registered, and the listeners that register it run later."""
        function, argument, session_id = call
        if isinstance(argument, WatchEvent) and session_id != self._session_id:
            return
        self._call_session_id = session_id
        function(argument)

    def _check_session(self) -> None:
        if self._calls.is_here and self._call_session_id != self._session_id:
            raise SessionLost("the session in ZooKeeper ended during this call")

    @property
    def session_id(self) -> int:
        return self._session_id

    def remember_session(self) -> None:
        if self._former is not None:
            self._former.sync()

    @property
    def last_commit(self) -> int:
        return int(max(self._zxid, self._client.last_zxid))

    @property
    def state(self) -> SessionState:
        return self._state

    def add_listener(self, listener: StateListener) -> None:
        with self._changed:
            self._listeners.append(listener)

    def close(self) -> None:
        self._close(CLOSE_S)

    def _close(self, patience_s: float) -> None:
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._state = SessionState.LOST
            self._changed.notify_all()
            self._tell(SessionState.LOST)
        # kazoo waits for its threads, which may wait for a server that does not answer.
        stopping = NamedThread(target=self._stop_client, name="zookeeper-close", daemon=True)
        stopping.start()
        stopping.join(patience_s)
        self._calls.stop()

    def _stop_client(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:
            log.debug("cannot close the connection to ZooKeeper: %s", error)

    # -- reads ----------------------------------------------------------------------------------

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        check_path(path)
        whole = self._full(path)
        try:
            data, stat = self._read(
                lambda: self._client.get_async(whole, self._kazoo_watch(watch)), path
            )
        except NoNodeError as error:
            raise tree_error(error, path) from None
        return data or b"", _stat(stat)

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        check_path(path)
        whole = self._full(path)
        found = self._read(lambda: self._client.exists_async(whole, self._kazoo_watch(watch)), path)
        return None if found is None else _stat(found)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        check_path(path)
        whole = self._full(path)
        try:
            return list(
                self._read(
                    lambda: self._client.get_children_async(whole, self._kazoo_watch(watch)), path
                )
            )
        except NoNodeError as error:
            raise tree_error(error, path) from None

    def subtree(self, path: str) -> list[Node]:
        """Reads level by level; it may see or miss changes that come during the read."""
        check_path(path)
        nodes: list[Node] = []
        level = [path]
        while level:
            parents = []
            for here, found in zip(level, self._read_all(map(self._ask_get, level)), strict=True):
                if found is None:
                    continue  # deleted since its parent was read
                data, stat = found
                nodes.append(Node(here, data or b"", _stat(stat)))
                if stat.numChildren:
                    parents.append(here)
            listed = self._read_all(map(self._ask_children, parents))
            level = [
                join(here, name)
                for here, names in zip(parents, listed, strict=True)
                for name in names or ()
            ]
        return nodes

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """Has as many requests in flight as allowed."""
        for path in paths:
            check_path(path)
        return [
            None if found is None else Node(path, found[0] or b"", _stat(found[1]))
            for path, found in zip(paths, self._read_all(map(self._ask_get, paths)), strict=True)
        ]

    def _ask_get(self, path: str) -> Ask:
        return lambda: self._client.get_async(self._full(path))

    def _ask_children(self, path: str) -> Ask:
        return lambda: self._client.get_children_async(self._full(path))

    def _ask_exists(self, path: str) -> Ask:
        return lambda: self._client.exists_async(self._full(path))

    def _read(self, ask: Ask, path: str) -> Any:
        """Returns the answer; repeats the request when the connection is lost. Raises kazoo's
        NoNodeError and NodeExistsError, and the tree's errors for all others."""
        try:
            return self._answer_of(ask, self._send(ask))
        except (NoNodeError, NodeExistsError):
            raise
        except AuthFailedError as error:
            raise StoreUnavailable(LOGIN_REFUSED) from error
        except KazooException as error:
            raise tree_error(error, path) from error

    def _read_all(self, asks: Iterable[Ask]) -> Iterator[Any]:
        """Yields the answers in order, None for absent nodes. As many requests are in flight as
        allowed."""
        waiting: deque[tuple[Ask, _InFlight]] = deque()
        for ask in asks:
            waiting.append((ask, self._send(ask)))
            if len(waiting) >= self._settings.in_flight_max:
                yield self._answer_or_none(*waiting.popleft())
        while waiting:
            yield self._answer_or_none(*waiting.popleft())

    def _answer_or_none(self, ask: Ask, in_flight: _InFlight) -> Any:
        try:
            return self._answer_of(ask, in_flight)
        except NoNodeError:
            return None
        except KazooException as error:
            raise tree_error(error, "/") from error

    def _answer_of(self, ask: Ask, in_flight: _InFlight) -> Any:
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                answer = self._wait(in_flight, deadline)
                self._check_session()
                return answer
            except _AnswerLost:
                if time.monotonic() >= deadline:
                    raise self._unavailable() from None
            in_flight = self._send(ask)

    # -- one request ----------------------------------------------------------------------------

    def _send(self, ask: Ask) -> _InFlight:
        """Sends a request when there is a connection and the limit of requests in flight allows it.
        Raises StoreUnreachable, SessionLost."""
        deadline = time.monotonic() + self._patience_s
        with self._changed:
            ready = self._changed.wait_for(
                lambda: self._state is SessionState.CONNECTED or self._closing, self._patience_s
            )
            if self._closing:
                raise SessionLost("the session in ZooKeeper is closed")
            if not ready:
                raise self._unavailable()
        self._check_session()
        while not self._slots.acquire(timeout=LOOK_S):
            if self._closing:
                raise SessionLost("the session in ZooKeeper is closed")
            if time.monotonic() >= deadline:
                raise self._unavailable()
        try:
            return _InFlight(ask(), self._slots)
        except BaseException:
            self._slots.release()
            raise

    def _wait(self, in_flight: _InFlight, deadline: float) -> Any:
        """Returns the answer. Raises _AnswerLost, SessionLost when the tree is closed, or kazoo's
        error."""
        while not in_flight.result.wait(LOOK_S):
            if self._closing:
                raise SessionLost("the session in ZooKeeper is closed")
            if time.monotonic() >= deadline:
                # kazoo drops a request that comes while it begins a new session: nothing else ends
                # that request.
                in_flight.release()
                raise _AnswerLost("no response in time")
        self._zxid = max(self._zxid, self._client.last_zxid)
        try:
            return in_flight.result.get()
        except LOST as error:
            if self._closing:
                raise SessionLost("the session in ZooKeeper is closed") from None
            raise _AnswerLost(type(error).__name__) from error

    def _unavailable(self) -> StoreUnreachable:
        return StoreUnreachable(
            f"ZooKeeper at {self._settings.hosts} has not answered for {self._patience_s:g} s"
            " (zookeeper.session.timeout.ms)"
        )

    # -- watches --------------------------------------------------------------------------------

    def _kazoo_watch(self, watch: Watch | None) -> Callable[[WatchedEvent], None] | None:
        return None if watch is None else _KazooWatch(self, watch)

    def fire(self, watch: Watch, event: WatchedEvent, session_id: int) -> None:
        """Called on kazoo's thread for watches, in the order of the changes. One event fires the
        same watch once, also if it watches the node's data and its children."""
        kind = _EVENTS.get(event.type)
        if kind is None or self._closing:
            return  # the connection is lost: that calls the listeners of the state
        last, fired = self._last_event
        if last is not event:
            fired = set()
            self._last_event = event, fired
        if watch not in fired:
            fired.add(watch)
            seen = WatchEvent(kind, self._short(event.path))
            self._calls.put(self._call, (watch, seen, session_id))

    # -- writes ---------------------------------------------------------------------------------

    def multi(self, operations: Sequence[Operation]) -> list[Result]:
        operations = list(operations)
        check_operations(operations, self.limits)
        if not operations:
            if self._closing:
                raise SessionLost("the session in ZooKeeper is closed")
            return []
        while True:
            session_id, before = self._session_id, self._zxid
            in_flight = self._send(lambda: self._transaction(operations).commit_async())
            try:
                found = self._wait(in_flight, time.monotonic() + self._patience_s)
            except _AnswerLost as lost:
                done = self._look_for(operations, before, session_id, str(lost))
                if done is not None:
                    return done
                if session_id != self._session_id and any(map(_is_ephemeral, operations)):
                    raise SessionLost(
                        "the session in ZooKeeper expired during this change"
                    ) from None
                continue
            except KazooException as error:
                raise tree_error(error, operations[0].path) from error
            refused = multi_error(found, operations)
            if refused is not None:
                raise refused
            return [self._result(op, each) for op, each in zip(operations, found, strict=True)]

    def _transaction(self, operations: Iterable[Operation]) -> Any:
        transaction = self._client.transaction()
        transaction.operations = [self._request(operation) for operation in operations]
        return transaction

    def _request(self, operation: Operation) -> Any:
        path = self._full(operation.path)
        if isinstance(operation, CreateNode):
            flags = operation.ephemeral * 1 + operation.sequence * 2
            return Create(path, operation.data or None, self._acl(operation.path), flags)
        if isinstance(operation, SetData):
            return SetRequest(path, operation.data, operation.version)
        if isinstance(operation, DeleteNode):
            return Delete(path, operation.version)
        return CheckRequest(path, operation.version)

    def _result(self, operation: Operation, found: Any) -> Result:
        if isinstance(operation, CreateNode):
            return self._short(found)
        return _stat(found) if isinstance(operation, SetData) else None

    def _acl(self, path: str) -> Any:
        """Returns Kafka's ACLs. The consumers' nodes stay open, because old consumers write
        there."""
        if not self._settings.set_acl or path == CONSUMERS_PATH:
            return OPEN_ACL_UNSAFE
        if path.startswith(SENSITIVE):
            return CREATOR_ALL_ACL
        return CREATOR_ALL_ACL + READ_ACL_UNSAFE

    def _look_for(
        self, operations: list[Operation], before: int, session_id: int, why: str
    ) -> list[Result] | None:
        """Returns the results of a multi whose answer was lost; None: it was not done. Raises
        OutcomeUnknown."""
        log.warning(
            "the response to a change of %s was lost (%s); reading whether it was made",
            operations[0].path,
            why,
        )
        if all(isinstance(operation, CheckVersion) for operation in operations):
            return None
        try:
            found = self._found(operations)
            said, zxid = verdict(operations, found, before, session_id)
            if said is Verdict.NOT_DONE:
                return None
            if said is Verdict.DONE:
                return [self._found_result(operation, found, zxid) for operation in operations]
        except StoreUnavailable as error:
            raise OutcomeUnknown(f"{operations[0].path}: {error}") from error
        raise OutcomeUnknown(
            f"{operations[0].path}: the response of ZooKeeper was lost, and another"
            " client has changed the node since, so that it is unknown whether the change was made"
        )

    def _found(self, operations: list[Operation]) -> dict[str, Found]:
        times = Counter(op.path for op in operations if not isinstance(op, CheckVersion))
        paths = [path for path, count in times.items() if count == 1]
        above = sorted({parent_of(path) for path in paths})
        # Nodes are read before their parents: if the parent is unchanged then, it had no such
        # child.
        nodes = list(self._read_all(map(self._ask_get, paths)))
        stats = list(self._read_all(map(self._ask_exists, above)))
        parents = dict(zip(above, stats, strict=True))
        found = {}
        for path, node in zip(paths, nodes, strict=True):
            parent = parents[parent_of(path)]
            data, stat = (b"", None) if node is None else node
            # Without a parent, nothing shows when its children changed.
            changed = 2**63 if parent is None else parent.pzxid
            found[path] = Found(stat, data or b"", changed)
        return found

    def _found_result(self, operation: Operation, found: dict[str, Found], zxid: int) -> Result:
        if isinstance(operation, SetData):
            return _stat(found[operation.path].stat)
        if not isinstance(operation, CreateNode):
            return None
        return self._sequential(operation, zxid) if operation.sequence else operation.path

    def _sequential(self, operation: CreateNode, zxid: int) -> str:
        above, prefix = parent_of(operation.path), name_of(operation.path)
        names = sorted(name for name in self.children(above) if name.startswith(prefix))
        paths = [join(above, name) for name in names]
        for path, stat in zip(paths, self._read_all(map(self._ask_exists, paths)), strict=True):
            if stat is not None and stat.czxid == zxid:
                return path
        raise OutcomeUnknown(
            f"{operation.path}: the node was created, and another client has deleted it"
        )

    # -- the chroot -----------------------------------------------------------------------------

    def _full(self, path: str) -> str:
        if not self._chroot:
            return path
        return self._chroot if path == "/" else self._chroot + path

    def _short(self, path: str) -> str:
        return path[len(self._chroot) :] or "/"


class _InFlight:
    """A request in flight and its slot in the limit, which it releases once."""

    __slots__ = ("_lock", "_slots", "result")

    def __init__(self, result: Any, slots: threading.BoundedSemaphore) -> None:
        self.result = result
        self._slots: threading.BoundedSemaphore | None = slots
        self._lock = threading.Lock()
        result.rawlink(self.release)

    def release(self, _result: Any = None) -> None:
        with self._lock:
            slots, self._slots = self._slots, None
        if slots is not None:
            slots.release()


class _KazooWatch:
    """A watch as kazoo keeps it, in a set for each node: equal if the tree's watch is equal. It
    belongs to the session in which its request is sent."""

    __slots__ = ("_session_id", "_tree", "_watch")

    def __init__(self, tree: ZooKeeperTree, watch: Watch) -> None:
        self._tree = tree
        self._watch = watch
        self._session_id = tree.session_id

    def __call__(self, event: WatchedEvent) -> None:
        self._tree.fire(self._watch, event, self._session_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _KazooWatch) and other._watch == self._watch

    def __hash__(self) -> int:
        return hash(self._watch)


def _login(login: ZooKeeperLogin | None) -> dict[str, Any]:
    """Returns kazoo's arguments for the identity of this node."""
    if login is None:
        return {}
    if login.scheme == "digest":
        return {"auth_data": [("digest", f"{login.user}:{login.password}")]}
    options = {"mechanism": "DIGEST-MD5", "username": login.user, "password": login.password}
    return {"sasl_options": options}


def _stat(found: ZnodeStat) -> Stat:
    return Stat(
        found.version, found.ctime, found.mtime, found.ephemeralOwner, found.czxid, found.mzxid
    )


def _is_ephemeral(operation: Operation) -> bool:
    return isinstance(operation, CreateNode) and operation.ephemeral
