"""The bounded queue between the callers of `send` and the background thread.

It holds KeyedMessages or, when no handler reads them, tuples of the same fields: creating a tuple
takes a third of the time, and the garbage collector does not track it.

`put` takes no lock while the queue is not full, because appending to a deque is thread-safe. Each
thread may exceed the limit by the events of one call of `send`.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from barnabas.hooks.views import KeyedMessage

FOREVER = -1


class EventQueue:
    """The queue. It calls `wake` when it holds `wake_at` events and `asleep` is set."""

    def __init__(self, events_max: int, wake_at: int, wake: Callable[[], None]) -> None:
        self.events: deque[KeyedMessage] = deque()
        self.events_max = events_max
        self.wake_at = min(wake_at, events_max)
        self.asleep = False
        self.closed = False
        self._wake = wake
        self._room = threading.Condition()
        self._waiting = 0

    def put(self, events: Sequence[KeyedMessage], timeout_ms: int) -> int:
        """Puts events into the queue. Returns the number that it could put within `timeout_ms` (-1:
        no limit)."""
        found = self.events
        for at, event in enumerate(events):
            if len(found) >= self.events_max and not self._wait_for_room(timeout_ms):
                return at
            found.append(event)
            if self.asleep and len(found) >= self.wake_at:
                self.ring()
        return len(events)

    def ring(self) -> None:
        """Ends the background thread's sleep."""
        self.asleep = False
        self._wake()

    def take(self, count: int) -> list[KeyedMessage]:
        """Takes the oldest events, at most `count`. Only one thread may take."""
        pop = self.events.popleft
        found = [pop() for _ in range(min(count, len(self.events)))]
        # Does not wake for every event: each wake-up costs both threads a context switch.
        if self._waiting and len(self.events) <= self.events_max // 2:
            with self._room:
                self._room.notify_all()
        return found

    def let_in(self) -> None:
        """Wakes the callers that wait, when the queue is no longer full."""
        if self._waiting and len(self.events) < self.events_max:
            with self._room:
                self._room.notify_all()

    def close(self) -> None:
        """Wakes the callers that wait; their events are not queued."""
        self.closed = True
        with self._room:
            self._room.notify_all()
        self.ring()

    def _wait_for_room(self, timeout_ms: int) -> bool:
        if timeout_ms == 0:
            return False
        deadline = None if timeout_ms == FOREVER else time.monotonic() + timeout_ms / 1000
        with self._room:
            self._waiting += 1
            try:
                while len(self.events) >= self.events_max and not self.closed:
                    if self.asleep:
                        self.ring()
                    left_s = None if deadline is None else deadline - time.monotonic()
                    if left_s is not None and left_s <= 0:
                        return False
                    self._room.wait(left_s)
            finally:
                self._waiting -= 1
        return not self.closed
