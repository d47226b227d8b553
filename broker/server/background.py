"""Work that comes again: each task on its own thread, with its own period, until the stop.

A task that raises is logged and comes again. `run_now` makes a task come at once. The periods are
asked before each wait, so that a changed setting counts from the next round on.
"""

import logging
import threading
from collections.abc import Callable

log = logging.getLogger("barnabas.background")


class Background:
    """The repeating tasks of one broker."""

    def __init__(self) -> None:
        self._stopping = False
        self._tasks: list[tuple[threading.Thread, threading.Event]] = []

    def add(
        self,
        name: str,
        task: Callable[[], object],
        period_ms: Callable[[], float],
        first_ms: float | None = None,
    ) -> Callable[[], None]:
        """Starts a task; returns what makes it come at once. `first_ms` before the first run."""
        due = threading.Event()

        def run() -> None:
            wait_ms = period_ms() if first_ms is None else first_ms
            while True:
                due.wait(min(wait_ms / 1000, threading.TIMEOUT_MAX))
                due.clear()
                if self._stopping:
                    return
                try:
                    task()
                except Exception:
                    log.exception("%s failed; it comes again", name)
                wait_ms = period_ms()

        thread = threading.Thread(target=run, name=name, daemon=True)
        self._tasks.append((thread, due))
        thread.start()
        return due.set

    def stop(self) -> None:
        """Returns when no task runs any more."""
        self._stopping = True
        for _, due in self._tasks:
            due.set()
        for thread, _ in self._tasks:
            thread.join()
