"""Work in rounds: each round takes all work since the last round, on one thread at a time.

Code that has queued work calls `ask`, which never waits and may be called under locks. A round that
may wait (for a flush) runs on its own thread. A round that does not wait, and that a request
handler asked for inside `rounds_on_exit`, runs on the handler's thread at the end of the request,
when the handler holds no lock. This saves two changes of thread, a fifth of the time of a
read-process-write transaction. Rounds that other threads ask for run on the rounds' own thread.

Limit: a request handler runs HERE_MAX rounds in a row; the rounds' own thread runs the rest, so
that no request waits without limit for the work of others.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from barnabas.cext.memory.threads import start_when_allowed

log = logging.getLogger("barnabas.rounds")

HERE_MAX = 16


class _Deferred(threading.local):
    """The rounds that this thread runs at the end of `rounds_on_exit`."""

    asked: deque[Rounds] | None = None  # set while the thread is inside `rounds_on_exit`


_deferred = _Deferred()


class rounds_on_exit:
    """Runs the rounds that are asked for inside it at its end, on this thread, without a lock."""

    def __enter__(self) -> None:
        _deferred.asked = deque()

    def __exit__(self, *failure: object) -> None:
        asked = _deferred.asked
        assert asked is not None
        count = 0
        try:
            while asked:  # a round may request others
                rounds = asked.popleft()
                count += 1
                rounds.run_here() if count <= HERE_MAX else rounds.wake()
        finally:
            _deferred.asked = None


class Rounds:
    """One kind of work of one broker. Call `stop` once."""

    def __init__(
        self,
        name: str,
        work: Callable[[], float | None],
        *,
        may_wait: Callable[[], bool],
    ) -> None:
        """`work` runs one round and returns the seconds until the next round without a call of
        `ask`, or None. `may_wait`: whether a round may wait."""
        self._name = name
        self._work = work
        self._may_wait = may_wait
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._asked = False
        self._running = False
        self._next_s: float | None = None
        self._stopping = False

    def ask(self) -> None:
        """Requests a round, which begins after this call unless `stop` is called first."""
        asked = _deferred.asked
        if asked is None or self._may_wait():
            self.wake()
        elif self not in asked:
            asked.append(self)

    def wake(self) -> None:
        """Starts a round on the rounds' own thread."""
        with self._lock:
            self._asked = True
            self._call_own()

    def run_here(self) -> None:
        """Runs a round on this thread; if one is running, its thread runs another round."""
        with self._lock:
            self._asked = True
            if self._running or self._stopping:
                return
            self._begin()
        for count in range(HERE_MAX):
            self._round()
            with self._lock:
                if not self._asked or self._stopping or count == HERE_MAX - 1:
                    self._end()
                    return
                self._begin()

    def stop(self) -> None:
        """Waits for a running round; no round begins after that."""
        with self._lock:
            self._stopping = True
            self._changed.notify_all()
            while self._running:
                self._changed.wait()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _call_own(self) -> None:
        """Makes the rounds' own thread run a round. The caller holds the lock."""
        if self._stopping or self._running:
            return
        if self._thread is None:
            self._thread = start_when_allowed(self._run, self._name)
        else:
            self._changed.notify()

    def _begin(self) -> None:
        """Marks a round as running. The caller holds the lock."""
        self._asked, self._running = False, True

    def _end(self) -> None:
        """Marks a round as ended. The caller holds the lock. The rounds' own thread does the work
        that was requested during the round."""
        self._running = False
        if self._stopping:
            self._changed.notify_all()
        elif self._asked or self._next_s is not None:
            self._call_own()

    def _round(self) -> None:
        try:
            self._next_s = self._work()
        except Exception:  # later rounds must still run
            log.exception("a round of %s failed", self._name)
            self._next_s = None

    def _run(self) -> None:
        while True:
            with self._lock:
                while (self._running or not self._asked) and not self._stopping:
                    due = self._changed.wait(None if self._running else self._next_s)
                    if not due and not self._running:
                        break
                if self._stopping:
                    return
                self._begin()
            self._round()
            with self._lock:
                self._end()
