"""The request handler threads: they take a request from the reactor, dispatch it, send the answer.

Their number is `num.io.threads`, which may change while they run. A handler may wait (for a commit,
for a log to open) without blocking the network threads, which never run Python.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from barnabas.cext.memory.threads import start_thread
from barnabas.cext.network.reactor import Reactor
from barnabas.cext.network.request_queue import PendingRequest

log = logging.getLogger("barnabas.requests")

# Returns the framed answer, None to close the connection without an answer, or ANSWERED_LATER when
# other code keeps the request and answers it.
Answer = Callable[[PendingRequest], bytes | None]
# Sees every request first; returns True when it keeps the request and will answer it.
Gate = Callable[[PendingRequest], bool]
Meter = Callable[[PendingRequest], object]

ANSWERED_LATER = b""


class RequestHandlers:
    """The threads of one broker."""

    def __init__(
        self,
        reactor: Reactor,
        answer: Answer,
        thread_count: int,
        gate: Gate | None = None,
        meter: Meter | None = None,
        around: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """`answer` handles one request, and `gate` sees it before. `meter` finds the quotas of its
        client where they are not known. `around` makes a context in which each request runs."""
        self._reactor = reactor
        self.carry_out = answer  # the framed answer of one request
        self._gate = gate
        self._meter = meter
        self._around = around
        self._wanted_count = thread_count
        self._lock = threading.Lock()  # of the list below
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self.resize(self._wanted_count)

    def resize(self, thread_count: int) -> None:
        """Sets the number of threads. New threads start at once; a surplus thread ends at once, or
        after its request."""
        with self._lock:
            self._wanted_count = thread_count
            while len(self._threads) < thread_count:
                name = f"request-handler-{len(self._threads)}"
                self._threads.append(start_thread(self._run, name))
            surplus = len(self._threads) - thread_count
        if surplus > 0:
            self._reactor.let_go(surplus)  # most threads wait for a request: this wakes them

    @property
    def thread_count(self) -> int:
        with self._lock:
            return len(self._threads)

    def join(self, timeout_s: float) -> None:
        """Waits at most `timeout_s` seconds for each thread to end. Call this after the reactor was
        stopped: its next_request returns None then."""
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(timeout_s)

    def _is_one_too_many(self) -> bool:
        with self._lock:
            if len(self._threads) <= self._wanted_count:
                return False
            self._threads.remove(threading.current_thread())
            return True

    def answer(self, pending: PendingRequest) -> None:
        """Handles a request on the caller's thread, and sends its answer."""
        frame = self.carry_out(pending)
        if frame is None:
            pending.close()
        elif frame == ANSWERED_LATER:
            pending.waits()
        else:
            pending.reply(frame)

    def _goes_back(self, pending: PendingRequest) -> bool:
        """Whether a request came only because the quotas of its client were not known: a native
        handler answers it."""
        if not pending.unmetered or self._meter is None:
            return False
        self._meter(pending)
        if pending.native:
            pending.proceed(again=True)
        return pending.native

    def _next(self) -> PendingRequest | None:
        """Returns the next request; None when this thread must end."""
        while not self._is_one_too_many():
            pending = self._reactor.next_request()
            if pending is not None or self._reactor.stopped:
                return pending
        return None

    def _run(self) -> None:
        while (pending := self._next()) is not None:
            try:
                with self._around():
                    if not self._goes_back(pending) and not (self._gate and self._gate(pending)):
                        self.answer(pending)
            except Exception:  # the failure of one request must not end the thread
                log.exception(
                    "a request with API key %d from %s failed", pending.api_key, pending.peer
                )
                pending.close()
            pending.leave()
            del pending  # the connection must not stay referenced until the next request
