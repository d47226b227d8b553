"""The tree of cluster state: the contract of every store.

Nodes have paths as in ZooKeeper, contain bytes and a version, and may have children. An ephemeral
node belongs to the session that created it, is deleted when that session ends, and has no children.
A sequential node gets ten digits after its name, larger than those of every earlier sequential
sibling.

A watch is a callable given to `get`, `exists` or `children`. The store's one thread for watches
calls it once, after the commit of the first change that concerns it; watches are called in the
order of commits. A watch on data (`get`, `exists`) fires for creation, change and deletion of its
node; a watch on children for new and deleted children and for the deletion of the node itself. The
same callable given twice for one node is called once. When the session is lost, or only the
connection to the store, watches are dropped without a call: a listener of the state sees CONNECTED,
and must read and watch again.

`multi` does all of its operations or none. `OutcomeUnknown` means that an operation may have been
carried out or not; every other error means that nothing was changed.

The stores are `embedded` and ZooKeeper; tests/metadata/conformance.py runs against both.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

ANY_VERSION = -1
PATH_BYTES_MAX = 4096
# ZooKeeper refuses packets larger than jute.maxbuffer (1 MiB - 1): data, path and header together.
DATA_BYTES_MAX = 0xFFFFF - PATH_BYTES_MAX - 1024


class MetadataError(Exception):
    """Base class of all errors of this package."""


class InvalidPath(MetadataError):
    """A path that no node can have."""


class TooLarge(MetadataError):
    """Data, a path or a multi exceeds the limits of the store."""


class NoNode(MetadataError):
    """The node, or the parent of the node to be created, does not exist."""


class NodeExists(MetadataError):
    """A node with this path already exists."""


class BadVersion(MetadataError):
    """The node has another version than the caller expected."""


class NotEmpty(MetadataError):
    """A node with children cannot be deleted."""


class NoChildrenForEphemerals(MetadataError):
    """The parent is ephemeral."""


class Forbidden(MetadataError):
    """The store denies this session the operation."""


class StoreUnavailable(MetadataError):
    """The store cannot serve now (disk, connection); nothing was changed."""


class StoreUnreachable(StoreUnavailable):
    """There is no connection to the store; it may come back."""


class SessionLost(StoreUnavailable):
    """The session was closed or has expired. It has no ephemeral nodes and no watches any more."""


class OutcomeUnknown(MetadataError):
    """The operation may have been carried out or not; read again to find out."""


class MultiFailed(MetadataError):
    """The store refused a multi as a whole. `results` has one entry for each operation: the error
    at `index`, and None for the others, which were not carried out."""

    def __init__(self, index: int, count: int, error: MetadataError) -> None:
        super().__init__(f"operation {index} of {count}: {type(error).__name__}: {error}")
        self.index = index
        self.error = error
        self.results: list[MetadataError | None] = [None] * count
        self.results[index] = error


class SessionState(enum.Enum):
    """The state of a session, as its listeners see it."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"  # the session may still exist; reads and writes fail now
    LOST = "lost"


class EventType(enum.Enum):
    """What happened to a node; CHILDREN: a child was created or deleted."""

    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    CHILDREN = "children"


class WatchEvent(NamedTuple):
    """What a watch receives: the change and the path of the watched node."""

    type: EventType
    path: str


class Stat(NamedTuple):
    """The version, times and owner of a node, as in ZooKeeper. Times are in ms since 1970."""

    version: int
    ctime_ms: int
    mtime_ms: int
    ephemeral_owner: int  # session id, 0 for a persistent node
    czxid: int  # number of the commit that created the node; a store uses it once
    mzxid: int  # number of the commit that last changed its data


class Node(NamedTuple):
    """A node with its path, as `subtree` returns it."""

    path: str
    data: bytes
    stat: Stat


Watch = Callable[[WatchEvent], object]
StateListener = Callable[[SessionState], object]


@dataclass(frozen=True, slots=True)
class CreateNode:
    """Creates a node whose parent exists."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Replaces the data of a node that has this version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class DeleteNode:
    """Deletes a node that has this version and no children."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class CheckVersion:
    """Requires that a node has this version, and changes nothing."""

    path: str
    version: int = ANY_VERSION


Operation = CreateNode | SetData | DeleteNode | CheckVersion
Result = str | Stat | None  # path of a create, Stat of a set, None of a delete or check


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a store; writers of large multis divide them with `shares`."""

    multi_operations_max: int
    multi_bytes_max: int
    data_bytes_max: int = DATA_BYTES_MAX
    path_bytes_max: int = PATH_BYTES_MAX
    operation_bytes: int = 0  # size of each operation of a multi besides its path and data


def _forbidden(code: int) -> bool:
    return (
        code < 0x20 or 0x7F <= code <= 0x9F or 0xD800 <= code <= 0xF8FF or 0xFFF0 <= code <= 0xFFFF
    )


def check_path(path: str) -> None:
    """Raises InvalidPath for a path that ZooKeeper refuses: it must be absolute, without an empty,
    `.` or `..` part, and without control or private characters."""
    if not path.startswith("/"):
        raise InvalidPath(f"{path!r} does not begin with /")
    if path == "/":
        return
    if not (path.isascii() and path.isprintable()):
        wrong = next((letter for letter in path if _forbidden(ord(letter))), None)
        if wrong is not None:
            raise InvalidPath(f"{path!r} contains {wrong!r}")
    for part in path[1:].split("/"):
        if part in ("", ".", ".."):
            raise InvalidPath(f"{path!r} has a part {part!r}")
    if len(path) * 4 > PATH_BYTES_MAX and len(path.encode()) > PATH_BYTES_MAX:
        raise TooLarge(f"the path has {len(path.encode())} bytes; the limit is {PATH_BYTES_MAX}")


def check_data(path: str, data: bytes) -> None:
    """Raises TooLarge when the data of a node exceeds DATA_BYTES_MAX, TypeError when it is not
    bytes."""
    if not isinstance(data, bytes):
        raise TypeError(f"{path}: data must be bytes, not {type(data).__name__}")
    if len(data) > DATA_BYTES_MAX:
        raise TooLarge(f"{path}: the data has {len(data)} bytes; the limit is {DATA_BYTES_MAX}")


def check_operations(operations: Sequence[Operation], limits: Limits) -> None:
    """Raises an error, before anything is changed, when a path, a value or the whole multi exceeds
    the limits (InvalidPath, TooLarge)."""
    if len(operations) > limits.multi_operations_max:
        raise TooLarge(
            f"the multi has {len(operations)} operations; the limit is"
            f" {limits.multi_operations_max}"
        )
    size_bytes = 0
    for operation in operations:
        sequence = isinstance(operation, CreateNode) and operation.sequence
        path = operation.path + "0000000000" if sequence else operation.path
        check_path(path)
        if len(path) * 4 > limits.path_bytes_max and len(path.encode()) > limits.path_bytes_max:
            raise TooLarge(
                f"the path has {len(path.encode())} bytes; the limit is {limits.path_bytes_max}"
            )
        if isinstance(operation, CreateNode | SetData):
            check_data(operation.path, operation.data)
        size_bytes += _size_bytes(operation, limits)
    if size_bytes > limits.multi_bytes_max:
        raise TooLarge(f"the multi has {size_bytes} bytes; the limit is {limits.multi_bytes_max}")


def _size_bytes(operation: Operation, limits: Limits) -> int:
    data = operation.data if isinstance(operation, CreateNode | SetData) else b""
    return len(operation.path) + len(data) + limits.operation_bytes


def shares(
    operations: Iterable[Operation], limits: Limits, each: Sequence[Operation] = ()
) -> Iterator[list[Operation]]:
    """Divides operations, in their order, into parts that each fit one multi. Every part begins
    with `each`."""
    least_bytes = sum(_size_bytes(operation, limits) for operation in each)
    part: list[Operation] = [*each]
    size_bytes = least_bytes
    for operation in operations:
        more_bytes = _size_bytes(operation, limits)
        is_full = len(part) == limits.multi_operations_max
        if len(part) > len(each) and (is_full or size_bytes + more_bytes > limits.multi_bytes_max):
            yield part
            part, size_bytes = [*each], least_bytes
        part.append(operation)
        size_bytes += more_bytes
    if len(part) > len(each):
        yield part


def parent_of(path: str) -> str:
    """Returns the path of the parent; the root is its own parent."""
    return path.rpartition("/")[0] or "/"


def name_of(path: str) -> str:
    """Returns the last part of a path; "" for the root."""
    return path.rpartition("/")[2]


def join(parent: str, name: str) -> str:
    """Returns the path of the child `name` of `parent`."""
    return f"/{name}" if parent == "/" else f"{parent}/{name}"


class MetadataTree(ABC):
    """One session on a store at a time. Paths, data, versions and errors are those of ZooKeeper. A
    method of a session that was closed raises SessionLost; every method raises StoreUnavailable
    when the store cannot serve, and a write OutcomeUnknown when its result was lost."""

    limits: Limits
    is_shared: bool = False  # other nodes may write to the store too
    # Former sessions of this node, whose ephemeral nodes may still exist.
    former_sessions: Collection[int] = ()

    @property
    @abstractmethod
    def session_id(self) -> int:
        """Returns the owner of the ephemeral nodes that this object creates; never 0."""

    @property
    @abstractmethod
    def last_commit(self) -> int:
        """Returns the number (zxid) of the last commit that this session has seen."""

    @property
    @abstractmethod
    def state(self) -> SessionState: ...

    @abstractmethod
    def add_listener(self, listener: StateListener) -> None:
        """Adds a listener, which the thread for watches calls with each new state (SessionState) of
        the session, in order."""

    def remember_session(self) -> None:  # noqa: B027  (only a session that outlives the node)
        """Brings the number of this session to disk, so that the next start of this node knows it
        as a former one, also after a power failure. Call it before the node registers."""

    @abstractmethod
    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Returns the data and the Stat of a node. Raises NoNode for an absent node, and leaves no
        watch."""

    @abstractmethod
    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Returns the node's Stat, or None. The watch also stays for an absent node: its creation
        fires the watch."""

    @abstractmethod
    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Returns the names of the children, in no particular order. Raises NoNode, and leaves no
        watch."""

    @abstractmethod
    def subtree(self, path: str) -> list[Node]:
        """Returns the node and all nodes below it, parents before children; empty for an absent
        node."""

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """Returns nodes in the order of their paths; None for an absent one."""
        found: list[Node | None] = []
        for path in paths:
            try:
                found.append(Node(path, *self.get(path)))
            except NoNode:
                found.append(None)
        return found

    @abstractmethod
    def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Carries out all operations or none, and returns one result for each. Raises MultiFailed,
        which has the refused operation and the reason."""

    @abstractmethod
    def close(self) -> None:
        """Ends the session, which deletes its ephemerals. A second call does nothing."""

    def create(
        self, path: str, data: bytes = b"", ephemeral: bool = False, sequence: bool = False
    ) -> str:
        """Creates a node and returns its path, which has a number of ten digits at its end for a
        sequential node. An ephemeral node ends with the session. Raises NodeExists, NoNode for a
        missing parent, NoChildrenForEphemerals, TooLarge."""
        created = self._one(CreateNode(path, data, ephemeral, sequence))
        assert isinstance(created, str)
        return created

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Replaces the data of a node and returns its new Stat. `version`: the expected version,
        ANY_VERSION: any. Raises NoNode, BadVersion, TooLarge."""
        stat = self._one(SetData(path, data, version))
        assert isinstance(stat, Stat)
        return stat

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Deletes a node without children. `version`: the expected version, ANY_VERSION: any.
        Raises NoNode, BadVersion, NotEmpty."""
        self._one(DeleteNode(path, version))

    def _one(self, operation: Operation) -> Result:
        try:
            return self.multi([operation])[0]
        except MultiFailed as failed:
            raise failed.error from None

    def ensure_paths(self, paths: Sequence[str]) -> None:
        """Creates the missing nodes of several paths and their parents, without data: in one
        commit, or one by one when another session creates some at the same time. Raises
        InvalidPath."""
        missing: dict[str, None] = {}
        for path in paths:
            check_path(path)
            above = []
            while path != "/" and path not in missing and self.exists(path) is None:
                above.append(path)
                path = parent_of(path)
            missing |= dict.fromkeys(reversed(above))
        if not missing:
            return
        try:
            self.multi([CreateNode(path) for path in missing])
        except MultiFailed:  # another session has created some of them
            for path in missing:
                self.ensure_path(path)

    def ensure_path(self, path: str) -> None:
        """Creates the node and its parents, without data, where they are missing. Raises
        InvalidPath."""
        check_path(path)
        missing = []
        while path != "/" and self.exists(path) is None:
            missing.append(path)
            path = parent_of(path)
        for each in reversed(missing):
            try:
                self.create(each)
            except NodeExists:
                pass  # another session was quicker
