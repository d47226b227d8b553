"""Delayed share fetches, which found no records and wait here, without a thread each.

One thread tries those whose partition has new records (cext/partition/purgatory.pyx) or released
ones (`look`); the broker's timers end those whose wait is over. One thread at a time tries a fetch,
and it is answered once. Limit: a connection has one request at a time, so there are at most as many
delayed fetches as connections.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from barnabas.cext.memory.threads import start_when_allowed
from barnabas.cext.partition.purgatory import Watches
from barnabas.coordinator.share.sessions import Place

log = logging.getLogger("barnabas.share")


class Timer(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """The part of coordinator.timers that this module and share_partitions.py use."""

    def now_ms(self) -> int: ...
    def after(self, delay_ms: int, call: Callable[[], object]) -> Timer: ...


class WaitingFetch:
    """One delayed fetch. `look` answers it if records are available; `end` answers it without
    records."""

    __slots__ = ("_end", "_lock", "_look", "is_over", "places", "timer")

    def __init__(
        self, places: Sequence[Place], look: Callable[[], bool], end: Callable[[], object]
    ) -> None:
        self.places = places
        self.is_over = False
        self.timer: Timer | None = None
        self._look = look
        self._end = end
        self._lock = threading.Lock()

    def look(self) -> bool:
        """Tries to answer the fetch. Returns whether it is answered."""
        with self._lock:
            if not self.is_over:
                self.is_over = self._look()
            return self.is_over

    def end(self) -> None:
        """Answers the fetch without records, unless it was answered."""
        with self._lock:
            if not self.is_over:
                self.is_over = True
                self._end()


class WaitingFetches:
    """The delayed share fetches of one broker."""

    def __init__(self, watches: Watches, timers: Timers) -> None:
        self._watches = watches
        self._timers = timers
        self._lock = threading.Lock()
        self._rows: dict[Place, set[WaitingFetch]] = {}
        self._moved: set[Place] = set()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def __len__(self) -> int:
        with self._lock:
            return len({row for rows in self._rows.values() for row in rows})

    def add(self, row: WaitingFetch, wait_ms: int) -> None:
        """Adds a fetch, and tries it once more after it is in the lists, so that it misses no
        record."""
        with self._lock:
            if self._stopping:
                return
            for place in row.places:
                self._rows.setdefault(place, set()).add(row)
            if self._thread is None:
                self._thread = start_when_allowed(self._run, "share-fetches")
        for topic_id, index in row.places:
            self._watches.add(topic_id, index)
        row.timer = self._timers.after(wait_ms, lambda: self._expire(row))
        if row.look():
            self._remove(row)

    def look(self, places: Iterable[Place]) -> None:
        """Tries the fetches of these partitions, which may have records now. Returns at once."""
        with self._lock:
            moved = [place for place in places if place in self._rows]
            self._moved.update(moved)
        if moved:
            self._watches.nudge()

    def stop(self) -> None:
        """Stops: no fetch is tried again, and the waiting ones are not answered here."""
        with self._lock:
            self._stopping = True
            thread = self._thread
        self._watches.nudge()
        if thread is not None:
            thread.join()
        self._watches.close()

    def _expire(self, row: WaitingFetch) -> None:
        row.end()
        self._remove(row)

    def _remove(self, row: WaitingFetch) -> None:
        if row.timer is not None:
            row.timer.cancel()
        with self._lock:
            for place in row.places:
                rows = self._rows.get(place)
                if rows is not None:
                    rows.discard(row)
                    if not rows:
                        del self._rows[place]

    def _run(self) -> None:
        while True:
            moved = self._watches.wait()
            with self._lock:
                if self._stopping:
                    return
                again = [place for place in moved if place in self._rows]
                places = self._moved.union(again)
                self._moved.clear()
                # The oldest first would be fair; sets have no order, but over time no fetch is
                # always last.
                rows = {row for place in places for row in self._rows.get(place, ())}
            for topic_id, index in again:
                self._watches.add(topic_id, index)
            for row in rows:
                try:
                    if row.look():
                        self._remove(row)
                except Exception:
                    log.exception("a waiting share fetch failed")
                    self._expire(row)
