"""Periodic tasks: each runs on its own thread, with its own period, until the stop.

An exception of a task is logged, and the task runs again after its period. `add` returns a function
that runs the task at once. A thread reads the period before each wait, so that a changed setting
counts from the next run on. The broker's clock decides: when a test moves it, the tasks that became
due run at once.
"""

import logging
import threading
from collections.abc import Callable

from barnabas.cext.memory.threads import NamedThread
from barnabas.server.clock import Clock

log = logging.getLogger("barnabas.background")


class _Task:
    def __init__(self, thread: threading.Thread, due_ns: float) -> None:
        self.thread = thread
        self.due_ns = due_ns  # while the task runs, when it was due


class Background:
    """The periodic tasks of one broker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stopping = False
        self._ran = threading.Condition()
        self._tasks: list[_Task] = []
        self._rings: list[Callable[[], None]] = []

    def add(
        self,
        name: str,
        task: Callable[[], object],
        period_ms: Callable[[], float],
        first_ms: float | None = None,
    ) -> Callable[[], None]:
        """Starts a thread `name` that runs `task` every `period_ms()` milliseconds, for the first
        time after `first_ms` (default: one period). Returns a function that makes the thread run
        the task at once."""
        alarm = self._clock.alarm()

        def due_in(wait_ms: float) -> float:
            return self._clock.monotonic_ns() + wait_ms * 1e6

        def run() -> None:
            while True:
                alarm.wait_until(row.due_ns)
                if self._stopping:
                    return
                try:
                    task()
                except Exception:
                    log.exception("%s failed; it runs again after its period", name)
                with self._ran:
                    row.due_ns = due_in(period_ms())
                    self._ran.notify_all()

        thread = NamedThread(target=run, name=name, daemon=True)
        row = _Task(thread, due_in(period_ms() if first_ms is None else first_ms))
        self._tasks.append(row)
        self._rings.append(alarm.ring)
        thread.start()
        return alarm.ring

    def settle(self, timeout_s: float) -> bool:
        """Waits until every task that is due by the broker's clock has run. Returns False when this
        takes longer than `timeout_s` seconds."""

        def nothing_due() -> bool:
            now_ns = self._clock.monotonic_ns()
            return self._stopping or all(row.due_ns > now_ns for row in self._tasks)

        with self._ran:
            return self._ran.wait_for(nothing_due, timeout_s)

    def stop(self) -> None:
        """Ends the threads; returns when no task runs any more."""
        self._stopping = True
        for ring in self._rings:
            ring()
        with self._ran:
            self._ran.notify_all()
        for row in self._tasks:
            row.thread.join()
