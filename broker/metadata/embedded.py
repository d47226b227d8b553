"""The tree of a single node, in memory. It commits to one SQLite file (see `database`), or only to
memory (see `memory`).

Reads do not use the disk. For a write, the tree checks it against its memory, commits it, applies
it and queues the calls of its watches, in this order and under the writer's lock. So watches are
called in the order of commits, and readers never see a change that a crash could undo.

When a commit fails and its outcome is unknown, the session is SUSPENDED: every call first tries to
open the file again, and raises StoreUnavailable until that succeeds. Then the content of the file
is the state, the watches of changed nodes fire, and the session continues.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.metadata.node_table import Changes
from barnabas.metadata.tree import (
    DeleteNode,
    Limits,
    MetadataError,
    MetadataTree,
    Node,
    Operation,
    OutcomeUnknown,
    Result,
    SessionLost,
    SessionState,
    Stat,
    StateListener,
    StoreUnavailable,
    Watch,
    check_operations,
    check_path,
)
from barnabas.metadata.watches import Watches

if TYPE_CHECKING:
    from barnabas.metadata.database import Database
    from barnabas.metadata.memory import MemoryStore

WAL_PAGES_MAX = 1000  # SQLite's default: a checkpoint every 4 MB of log


class EmbeddedTree(MetadataTree):
    """An open store with its session. It creates a missing `directory`. `store` replaces the SQLite
    file there."""

    limits = Limits(multi_operations_max=200_000, multi_bytes_max=64 * 1024 * 1024)

    def __init__(
        self,
        directory: Path,
        *,
        clock_ms: Callable[[], int],
        wal_pages_max: int = WAL_PAGES_MAX,
        store: Database | MemoryStore | None = None,
    ) -> None:
        self._clock_ms = clock_ms
        self._write_lock = threading.Lock()
        self._table_lock = threading.Lock()  # guards _table; held briefly, and taken second
        self._database = store or _database(directory, wal_pages_max)
        try:
            self._session_id = self._database.begin_session()
            self._table, self._zxid = self._database.load()
        except BaseException:
            self._database.close()
            raise
        self._state = SessionState.CONNECTED
        self._watches = Watches(name="metadata-watches")

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def last_commit(self) -> int:
        return self._zxid

    @property
    def state(self) -> SessionState:
        return self._state

    @property
    def path(self) -> Path:
        return self._database.path

    def add_listener(self, listener: StateListener) -> None:
        self._watches.add_listener(listener)

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        self._ready_to_read(path)
        with self._table_lock:
            entry = self._table.entry(path)
            if watch is not None:
                self._add_watch(self._watches.add_data, path, watch)
        return entry.data, entry.stat

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        self._ready_to_read(path)
        with self._table_lock:
            entry = self._table.find(path)
            if watch is not None:
                self._add_watch(self._watches.add_data, path, watch)
        return None if entry is None else entry.stat

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        self._ready_to_read(path)
        with self._table_lock:
            self._table.entry(path)
            if watch is not None:
                self._add_watch(self._watches.add_children, path, watch)
            return list(self._table.children(path))

    def subtree(self, path: str) -> list[Node]:
        self._ready_to_read(path)
        with self._table_lock:
            return list(self._table.subtree(path))

    def multi(self, operations: Sequence[Operation]) -> list[Result]:
        operations = list(operations)
        check_operations(operations, self.limits)
        with self._write_lock:
            self._ready()
            return self._commit(operations)

    def _commit(self, operations: list[Operation]) -> list[Result]:
        changes = Changes(self._table, self._zxid + 1, self._session_id, self._clock_ms())
        results = changes.run(operations)
        if not changes.entries:
            return results
        try:
            self._database.commit(self._table, changes)
        except OutcomeUnknown:
            self._enter(SessionState.SUSPENDED)
            raise
        self._zxid = changes.zxid
        with self._table_lock:
            self._table.apply(changes)
            self._watches.fire(changes.events)
        return results

    @contextmanager
    def frozen(self) -> Iterator[Callable[[Path], None]]:
        """Lets no change begin until the `with` block ends. Yields a function that copies the store
        to a new file. Raises StoreUnavailable, also when the store is in memory."""
        with self._write_lock:
            self._ready()
            copy_to = getattr(self._database, "copy_to", None)
            if copy_to is None:
                raise StoreUnavailable(
                    "the metadata store is in memory. Set metadata.store=embedded."
                )
            yield copy_to

    def close(self) -> None:
        with self._write_lock:
            if self._state is SessionState.LOST:
                return
            try:
                self._ready()
                owned = self._table.owned_by(self._session_id)
                self._commit([DeleteNode(path) for path in owned])
            except MetadataError:
                pass  # the next session deletes its ephemeral nodes
            self._enter(SessionState.LOST)
            self._database.close()
        self._watches.stop()

    def _enter(self, state: SessionState) -> None:
        with self._table_lock:
            self._state = state
            self._watches.tell(state)

    def _add_watch(self, add: Callable[[str, Watch], None], path: str, watch: Watch) -> None:
        if self._state is SessionState.LOST:
            raise SessionLost("the session on the metadata store is closed")
        add(path, watch)

    def _ready_to_read(self, path: str) -> None:
        check_path(path)
        if self._state is not SessionState.CONNECTED:
            with self._write_lock:
                self._ready()

    def _ready(self) -> None:
        """Opens the file again after a failed commit; the caller holds the writer's lock."""
        if self._state is SessionState.LOST:
            raise SessionLost("the session on the metadata store is closed")
        if self._state is SessionState.CONNECTED and self._database.connected:
            return
        if not self._database.connected:
            self._database.reopen()
        table, zxid = self._database.load()
        with self._table_lock:
            events = table.events_since(self._table)
            self._table = table
            # If the file lacks the failed commit, its number is not used again: a reader could have
            # seen it.
            self._zxid = max(zxid, self._zxid + 1)
            self._watches.fire(events)
        if self._state is SessionState.SUSPENDED:
            self._enter(SessionState.CONNECTED)


def _database(directory: Path, wal_pages_max: int) -> Database:
    from barnabas.metadata.database import Database  # a store in memory needs no SQLite

    return Database(directory, wal_pages_max=wal_pages_max)
