"""Who wants to hear when a connection closes, and the thread that tells them.

Most connections are nobody's business when they go: network threads keep a notice only of those
that were marked (cext/network/closings.pxd). The thread begins with the first mark and ends with
the reactor. Limit: one row a connection and listener, gone when it was told.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger("barnabas.network")

Told = Callable[[int], object]  # with the connection's id


class Connection(Protocol):
    """What of a PendingRequest is used here."""

    connection_id: int

    def tell_closing(self) -> None: ...


class Closings:
    """Those of one broker."""

    def __init__(self, next_closed: Callable[[], int | None]) -> None:
        """`next_closed` waits for the id of a marked connection that has closed; None: no more."""
        self._next_closed = next_closed
        self._lock = threading.Lock()
        self._told: dict[int, list[Told]] = {}
        self._thread: threading.Thread | None = None

    def watch(self, connection: Connection, told: Told) -> None:
        """`told` is called once, on a thread of its own, after the connection has closed; it may
        have closed already. Asking again for the same changes nothing."""
        with self._lock:
            known = self._told.setdefault(connection.connection_id, [])
            if told in known:
                return
            known.append(told)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="closings", daemon=True)
                self._thread.start()
        connection.tell_closing()

    def _run(self) -> None:
        while (connection_id := self._next_closed()) is not None:
            with self._lock:
                listeners = self._told.pop(connection_id, [])
            for told in listeners:
                try:
                    told(connection_id)
                except Exception:
                    log.exception("after the end of connection %d", connection_id)
