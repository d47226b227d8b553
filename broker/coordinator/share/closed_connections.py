"""The callbacks that run when a connection closes, and the thread that calls them.

Network threads report the end of a connection only when that connection was marked
(cext/network/closed_connections.pxd). The thread starts with the first mark and ends with the
reactor. Limit: one row for each connection and callback; the row is removed when the callback runs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from barnabas.cext.memory.threads import start_when_allowed

log = logging.getLogger("barnabas.network")

OnClose = Callable[[int], object]  # called with the connection's id


class Connection(Protocol):
    """The part of a PendingRequest that this module uses."""

    connection_id: int

    def report_close(self) -> None: ...


class ClosedConnections:
    """The callbacks of one broker for closed connections."""

    def __init__(self, next_closed: Callable[[], int | None]) -> None:
        """`next_closed` waits for a marked connection that has closed and returns its id; None ends
        the thread."""
        self._next_closed = next_closed
        self._lock = threading.Lock()
        self._callbacks: dict[int, list[OnClose]] = {}
        self._thread: threading.Thread | None = None

    def watch(self, connection: Connection, on_close: OnClose) -> None:
        """Calls `on_close` once, on this object's thread, after the connection has closed. The
        connection may have closed already. A second call with the same arguments has no effect."""
        with self._lock:
            known = self._callbacks.setdefault(connection.connection_id, [])
            if on_close in known:
                return
            known.append(on_close)
            if self._thread is None:
                self._thread = start_when_allowed(self._run, "closed-conns")
        connection.report_close()

    def _run(self) -> None:
        while (connection_id := self._next_closed()) is not None:
            with self._lock:
                listeners = self._callbacks.pop(connection_id, [])
            for on_close in listeners:
                try:
                    on_close(connection_id)
                except Exception:
                    log.exception("a callback for the close of connection %d failed", connection_id)
