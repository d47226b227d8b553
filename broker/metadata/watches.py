"""One-shot watches and the one thread that calls them, and the listeners of the session's state.

No watch or listener is called with a lock held, so a watch may use the tree freely. The registered
watches limit the queue to the thread: each is removed when it is queued. `Calls` is that thread,
for every store; `Watches` is the table of a store that keeps its own watches.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable

from barnabas.cext.memory.threads import NamedThread
from barnabas.metadata.tree import (
    EventType,
    SessionLost,
    SessionState,
    StateListener,
    StoreUnavailable,
    Watch,
    WatchEvent,
)

log = logging.getLogger(__name__)

WATCHES_MAX = 1_000_000


class TooManyWatches(RuntimeError):
    """The limit of registered watches is reached. No watch is dropped silently."""


class Calls:
    """The thread that calls watches and listeners, in the order of `put`."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[tuple[Callable, object] | None] = queue.SimpleQueue()
        self._thread = NamedThread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, function: Callable[..., object], argument: object) -> None:
        """Queues the call `function(argument)`."""
        self._queue.put((function, argument))

    @property
    def is_here(self) -> bool:
        """Returns whether the caller runs on this thread."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """Runs the queued calls, then ends the thread."""
        self._queue.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while (call := self._queue.get()) is not None:
            function, argument = call
            try:
                function(argument)
            except SessionLost:  # the store was closed while a watch was queued
                log.debug("a watch fired after the end of its session")
            except StoreUnavailable as error:  # when it is back, its listeners read the whole state
                log.warning("cannot handle a change of the metadata tree yet: %s", error)
            except Exception:
                log.exception("a watch on the metadata tree failed")


class Watches:
    """The watches of one session. `calls`: the thread that calls them; None: a thread of their
    own."""

    def __init__(self, name: str, calls: Calls | None = None) -> None:
        self._lock = threading.Lock()
        self._data: dict[str, dict[Watch, None]] = {}
        self._children: dict[str, dict[Watch, None]] = {}
        self._count = 0
        self._listeners: list[StateListener] = []
        self._calls = calls or Calls(name)

    def add_data(self, path: str, watch: Watch) -> None:
        """Adds a watch on the data of a node. Raises TooManyWatches."""
        self._add(self._data, path, watch)

    def add_children(self, path: str, watch: Watch) -> None:
        """Adds a watch on the children of a node. Raises TooManyWatches."""
        self._add(self._children, path, watch)

    def _add(self, table: dict[str, dict[Watch, None]], path: str, watch: Watch) -> None:
        with self._lock:
            if self._count >= WATCHES_MAX:
                raise TooManyWatches(f"{WATCHES_MAX} watches are registered")
            watchers = table.setdefault(path, {})
            if watch not in watchers:
                watchers[watch] = None
                self._count += 1

    def fire(self, events: Iterable[WatchEvent]) -> None:
        """Queues the calls for the events of one commit. The caller serializes commits."""
        with self._lock:
            for event in events:
                for watch in self._take(event):
                    self._calls.put(watch, event)

    def _take(self, event: WatchEvent) -> dict[Watch, None]:
        taken: dict[Watch, None] = {}
        if event.type is not EventType.CHILDREN:
            found = self._data.pop(event.path, {})
            self._count -= len(found)
            taken |= found
        if event.type in (EventType.CHILDREN, EventType.DELETED):
            found = self._children.pop(event.path, {})
            self._count -= len(found)
            taken |= found
        return taken

    def add_listener(self, listener: StateListener) -> None:
        with self._lock:
            self._listeners.append(listener)

    def forget(self) -> None:
        """Drops all watches without a call."""
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        self._data.clear()
        self._children.clear()
        self._count = 0

    def tell(self, state: SessionState) -> None:
        """Queues the call of each listener with a new state. LOST drops all watches."""
        with self._lock:
            if state is SessionState.LOST:
                self._forget()
            for listener in self._listeners:
                self._calls.put(listener, state)

    def stop(self) -> None:
        """Runs the queued calls, then ends the thread."""
        self._calls.stop()
