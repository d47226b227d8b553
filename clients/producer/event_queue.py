"""The bounded queue between those who call `send` and the background thread.

What stands in it are KeyedMessages or, where nobody looks at them on their way, tuples of the same
fields: making one takes a third of the time, and the collector of garbage leaves them alone.

Putting takes no lock while there is room: a deque is safe to append to. Each thread that puts may
be one call of `send` beyond the limit at the most.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from barnabas.hooks.views import KeyedMessage

FOREVER = -1


class EventQueue:
    """`wake` is called when `wake_at` events are there and `asleep` was set."""

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
        """How many found room in time; all of them unless it stays full. -1: no limit of time."""
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
        """The oldest; at most as many as there are. For the one thread that takes."""
        pop = self.events.popleft
        found = [pop() for _ in range(min(count, len(self.events)))]
        # Not at every event: each waking costs both sides a change of threads.
        if self._waiting and len(self.events) <= self.events_max // 2:
            with self._room:
                self._room.notify_all()
        return found

    def let_in(self) -> None:
        """Those that wait for room have it, if there is any: nothing is taken for a while."""
        if self._waiting and len(self.events) < self.events_max:
            with self._room:
                self._room.notify_all()

    def close(self) -> None:
        """Those that wait for room find none."""
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
