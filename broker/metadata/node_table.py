"""The tree in memory, and the changes of one multi that are not committed yet.

Readers see `NodeTable`. `Changes` overlays it while a multi is checked: later operations of the
multi see the earlier ones; readers see none of them until the store has committed the multi and
calls `NodeTable.apply`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.metadata.tree import (
    ANY_VERSION,
    BadVersion,
    CreateNode,
    DeleteNode,
    EventType,
    MetadataError,
    MultiFailed,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    SetData,
    Stat,
    WatchEvent,
    join,
    name_of,
    parent_of,
)

SEQUENCE_MAX = 2**31 - 1  # the largest value of ZooKeeper's counter; later names would not sort


class Entry(NamedTuple):
    """One node, without its path."""

    data: bytes
    stat: Stat
    sequence_next: int  # number for the next sequential child


class NodeTable:
    """All nodes by path. The caller serializes changes."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._children: dict[str, set[str]] = {}  # only nodes with children

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, path: str, entry: Entry) -> None:
        """Adds or replaces the node at a path; the parent must exist."""
        if path not in self._entries and path != "/":
            self._children.setdefault(parent_of(path), set()).add(name_of(path))
        self._entries[path] = entry

    def remove(self, path: str) -> None:
        """Removes a node, which must exist and have no children."""
        del self._entries[path]
        siblings = self._children[parent_of(path)]
        siblings.discard(name_of(path))
        if not siblings:
            del self._children[parent_of(path)]

    def apply(self, changes: Changes) -> None:
        """Applies the changes of a multi that the store has committed."""
        for path, entry in changes.entries.items():
            if entry is not None:
                self.put(path, entry)
            elif path in self._entries:
                self.remove(path)

    def find(self, path: str) -> Entry | None:
        """Returns the node at a path; None when there is none."""
        return self._entries.get(path)

    def entry(self, path: str) -> Entry:
        """Returns the node at a path. Raises NoNode."""
        found = self._entries.get(path)
        if found is None:
            raise NoNode(f"node {path} does not exist")
        return found

    def children(self, path: str) -> set[str]:
        """Returns the names of the children of a node; an empty set for an absent one. Callers must
        not change it."""
        return self._children.get(path, set())

    def orphan(self) -> str | None:
        """Returns a node whose parent is missing, or None; only damage can make one."""
        entries = self._entries
        return next((p for p in entries if p != "/" and parent_of(p) not in entries), None)

    def subtree(self, path: str) -> Iterator[Node]:
        """Yields the node and all nodes below it, parents before children; nothing for an absent
        node."""
        waiting = [path] if path in self._entries else []
        while waiting:
            here = waiting.pop()
            entry = self._entries[here]
            yield Node(here, entry.data, entry.stat)
            waiting.extend(join(here, name) for name in self._children.get(here, ()))

    def owned_by(self, session_id: int) -> list[str]:
        """Returns the paths of the ephemeral nodes of a session."""
        entries = self._entries.items()
        return [path for path, entry in entries if entry.stat.ephemeral_owner == session_id]

    def events_since(self, before: NodeTable) -> list[WatchEvent]:
        """Returns the events for the watches on `before` when this table replaces it."""
        events = []
        for path in before._entries.keys() - self._entries.keys():
            events += deletion_events(path)
        for path in sorted(self._entries):
            old = before._entries.get(path)
            if old is None:
                events += creation_events(path)
            elif old.stat.czxid != self._entries[path].stat.czxid:
                events += deletion_events(path) + creation_events(path)
            elif old.stat.mzxid != self._entries[path].stat.mzxid:
                events.append(WatchEvent(EventType.CHANGED, path))
        return events


def creation_events(path: str) -> list[WatchEvent]:
    """Returns the events of a created node: one for the node and one for its parent."""
    return [
        WatchEvent(EventType.CREATED, path),
        WatchEvent(EventType.CHILDREN, parent_of(path)),
    ]


def deletion_events(path: str) -> list[WatchEvent]:
    """Returns the events of a deleted node: one for the node and one for its parent."""
    return [
        WatchEvent(EventType.DELETED, path),
        WatchEvent(EventType.CHILDREN, parent_of(path)),
    ]


class Changes:
    """The changes of one multi. `entries` maps each changed path to its new entry; None:
    deleted."""

    def __init__(self, table: NodeTable, zxid: int, session_id: int, now_ms: int) -> None:
        self.entries: dict[str, Entry | None] = {}
        self.events: list[WatchEvent] = []
        self.zxid = zxid
        self._table = table
        self._session_id = session_id
        self._now_ms = now_ms
        self._child_count_change: dict[str, int] = {}

    def run(self, operations: list[Operation]) -> list[Result]:
        """Checks the operations of a multi, and adds their changes. Raises MultiFailed."""
        results: list[Result] = []
        for index, operation in enumerate(operations):
            try:
                results.append(self._do(operation))
            except MetadataError as error:
                raise MultiFailed(index, len(operations), error) from error
        return results

    def _do(self, operation: Operation) -> Result:
        if isinstance(operation, CreateNode):
            return self._create(operation)
        if isinstance(operation, SetData):
            return self._set(operation)
        entry = self._expect(operation.path, operation.version)
        if isinstance(operation, DeleteNode):
            self._delete(operation.path, entry)
        return None

    def _find(self, path: str) -> Entry | None:
        if path in self.entries:
            return self.entries[path]
        return self._table.find(path)

    def _expect(self, path: str, version: int) -> Entry:
        entry = self._find(path)
        if entry is None:
            raise NoNode(f"node {path} does not exist")
        if version not in (ANY_VERSION, entry.stat.version):
            raise BadVersion(f"node {path} has version {entry.stat.version}, not {version}")
        return entry

    def _create(self, operation: CreateNode) -> str:
        path = operation.path
        above = parent_of(path)
        parent = self._find(above)
        if parent is None:
            raise NoNode(f"node {above}, the parent of {path}, does not exist")
        if parent.stat.ephemeral_owner:
            raise NoChildrenForEphemerals(
                f"node {above} is ephemeral, so {path} cannot be created in it"
            )
        if operation.sequence:
            if parent.sequence_next > SEQUENCE_MAX:
                raise NodeExists(f"node {above} has no number left for a sequential node")
            path = f"{path}{parent.sequence_next:010d}"
        if self._find(path) is not None:
            raise NodeExists(f"node {path} already exists")
        if operation.sequence:
            self.entries[above] = parent._replace(sequence_next=parent.sequence_next + 1)
        owner = self._session_id if operation.ephemeral else 0
        stat = Stat(0, self._now_ms, self._now_ms, owner, self.zxid, self.zxid)
        self.entries[path] = Entry(operation.data, stat, 0)
        counts = self._child_count_change
        counts[above] = counts.get(above, 0) + 1
        self.events += creation_events(path)
        return path

    def _set(self, operation: SetData) -> Stat:
        entry = self._expect(operation.path, operation.version)
        stat = entry.stat._replace(
            version=entry.stat.version + 1, mtime_ms=self._now_ms, mzxid=self.zxid
        )
        self.entries[operation.path] = entry._replace(data=operation.data, stat=stat)
        self.events.append(WatchEvent(EventType.CHANGED, operation.path))
        return stat

    def _delete(self, path: str, entry: Entry) -> None:
        if path == "/":
            raise NotEmpty("the root node / cannot be deleted")
        before = len(self._table.children(path)) if self._table.find(path) is not None else 0
        if before + self._child_count_change.get(path, 0) > 0:
            raise NotEmpty(f"node {path} has children, so it cannot be deleted")
        self.entries[path] = None
        counts = self._child_count_change
        counts[parent_of(path)] = counts.get(parent_of(path), 0) - 1
        self.events += deletion_events(path)
