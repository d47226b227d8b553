"""Timers of the coordinators: one thread, one heap, the monotonic clock of the broker.

A callable runs on the timers' thread at or soon after its time and must not wait. After `cancel`
has returned, the callable does not begin. After a test has moved the clock, `look` makes the thread
read it again. Limit: TIMERS_MAX; beyond it `at` raises RuntimeError, since every timer belongs to a
member or a request, which have their own limits.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from barnabas.cext.memory.threads import start_when_allowed
from barnabas.server.clock import Clock

log = logging.getLogger("barnabas.timers")

TIMERS_MAX = 1_000_000
COMPACT_FROM = 1024  # cancelled timers in the heap before it is rebuilt


class Timer:
    """One future call. `Timers.at` creates it."""

    __slots__ = ("_timers", "at_ms", "call", "order")

    def __init__(
        self, timers: Timers | None, at_ms: int, order: int, call: Callable[[], object]
    ) -> None:
        self._timers = timers
        self.at_ms = at_ms
        self.order = order
        self.call: Callable[[], object] | None = call

    def __lt__(self, other: Timer) -> bool:
        return (self.at_ms, self.order) < (other.at_ms, other.order)

    def cancel(self) -> None:
        """Cancels the call; does nothing when it ran or was cancelled before."""
        if self._timers is not None:
            self._timers._cancel(self)


class Timers:
    """The timers of one broker."""

    def __init__(self, clock: Clock) -> None:
        self._monotonic_ns = clock.monotonic_ns
        clock.on_move.append(self.look)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._heap: list[Timer] = []
        self._cancelled = 0
        self._order = 0
        self._thread: threading.Thread | None = None
        self._stopping = False

    def now_ms(self) -> int:
        """Returns the time of the monotonic clock, in ms."""
        return self._monotonic_ns() // 1_000_000

    def after(self, delay_ms: int, call: Callable[[], object]) -> Timer:
        """Runs `call` after `delay_ms`. Raises as `at` does."""
        return self.at(self.now_ms() + max(delay_ms, 0), call)

    def at(self, at_ms: int, call: Callable[[], object]) -> Timer:
        """Runs `call` when `now_ms` has reached `at_ms`. Raises RuntimeError beyond TIMERS_MAX."""
        with self._lock:
            if len(self._heap) >= TIMERS_MAX:
                raise RuntimeError(f"more than {TIMERS_MAX} timers")
            self._order += 1
            timer = Timer(self, at_ms, self._order, call)
            first = not self._heap or timer < self._heap[0]
            heapq.heappush(self._heap, timer)
            if self._thread is None and not self._stopping:
                self._thread = start_when_allowed(self._run, "timers")
            elif first:
                self._changed.notify()
            return timer

    def look(self) -> None:
        """Runs due calls after the clock may have moved."""
        with self._lock:
            self._changed.notify()

    @property
    def count(self) -> int:
        """Returns the number of timers that have neither run nor been cancelled."""
        with self._lock:
            return len(self._heap) - self._cancelled

    def stop(self) -> None:
        """Stops the thread. No call runs after this returns."""
        with self._lock:
            self._stopping = True
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _cancel(self, timer: Timer) -> None:
        with self._lock:
            if timer.call is None:
                return
            timer.call = None
            self._cancelled += 1
            if self._cancelled > COMPACT_FROM and self._cancelled * 2 > len(self._heap):
                self._heap = [row for row in self._heap if row.call is not None]
                heapq.heapify(self._heap)
                self._cancelled = 0

    def _next_due(self) -> Callable[[], object] | None:
        """Waits for the next call that is due and returns it; None after `stop`."""
        with self._lock:
            while not self._stopping:
                while self._heap and self._heap[0].call is None:
                    heapq.heappop(self._heap)
                    self._cancelled -= 1
                if not self._heap:
                    self._changed.wait()
                    continue
                left_ms = self._heap[0].at_ms - self.now_ms()
                if left_ms > 0:
                    self._changed.wait(min(left_ms / 1000, threading.TIMEOUT_MAX))
                    continue
                timer = heapq.heappop(self._heap)
                call, timer.call = timer.call, None
                return call
            return None

    def _run(self) -> None:
        while (call := self._next_due()) is not None:
            try:
                call()
            except Exception:  # an error in one timer must not stop the others
                log.exception("a timer failed")


def cancel(*timers: Any) -> None:
    """Cancels these timers. None stands for no timer."""
    for timer in timers:
        if timer is not None:
            timer.cancel()


class RunsLater(Protocol):
    """Timers of the broker, or timers whose time a test moves."""

    def after(self, delay_ms: int, call: Callable[[], object]) -> Any: ...


def after_locked(
    timers: RunsLater,
    lock: AbstractContextManager[object],
    delay_ms: int,
    call: Callable[[], object],
) -> Any:
    """Runs `call` under `lock` after `delay_ms`; returns the timer."""

    def locked() -> None:
        with lock:
            call()

    return timers.after(delay_ms, locked)
