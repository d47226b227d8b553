"""A store of the embedded tree that keeps nothing on disk: for brokers that end with their test.

It has the interface of `database.Database`. Commits exist as long as the object, so a broker that
stops and starts again in one process finds its topics.
"""

from __future__ import annotations

from pathlib import Path

from barnabas.metadata.node_table import Changes, Entry, NodeTable
from barnabas.metadata.tree import Stat


class MemoryStore:
    """The store. One thread at a time uses it, under the tree's writer lock."""

    path = Path(":memory:")
    connected = True  # memory has no connection to lose

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {"/": Entry(b"", Stat(0, 0, 0, 0, 0, 0), 0)}
        self._zxid = 0
        self._session = 0

    def begin_session(self) -> int:
        """Deletes the ephemeral nodes of all former sessions, and gives this session its number."""
        self._entries = {
            path: entry for path, entry in self._entries.items() if entry.stat.ephemeral_owner == 0
        }
        self._session += 1
        self._zxid += 1
        return self._session

    def load(self) -> tuple[NodeTable, int]:
        table = NodeTable()
        for path, entry in self._entries.items():
            table.put(path, entry)
        return table, self._zxid

    def commit(self, table: NodeTable, changes: Changes) -> None:
        for path, entry in changes.entries.items():
            if entry is None:
                self._entries.pop(path, None)
            else:
                self._entries[path] = entry
        self._zxid = changes.zxid

    def reopen(self) -> None:
        raise AssertionError("a store in memory is never closed by a failure")

    def close(self) -> None:
        """Ends the session; the commits stay for the next session."""
