"""The Python lane's threads: take a request from the reactor, dispatch it, send the answer.

`num.io.threads` of them; a handler may wait (for a commit, for a log to open) without holding up
the network threads, which never run Python.
"""

import logging
import threading
from collections.abc import Callable

from barnabas.cext.pylane import PendingRequest
from barnabas.cext.reactor import Reactor

log = logging.getLogger("barnabas.requests")

# Gives the framed answer, None when the connection is to be closed without one.
Answer = Callable[[PendingRequest], bytes | None]


class RequestHandlers:
    """The threads of one broker."""

    def __init__(self, reactor: Reactor, answer: Answer, thread_count: int) -> None:
        self._reactor = reactor
        self._answer = answer
        self._threads = [
            threading.Thread(target=self._run, name=f"request-handler-{number}", daemon=True)
            for number in range(thread_count)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self, timeout_s: float) -> None:
        """After the reactor was stopped: next_request gives None then."""
        for thread in self._threads:
            thread.join(timeout_s)

    def _run(self) -> None:
        while (pending := self._reactor.next_request()) is not None:
            try:
                frame = self._answer(pending)
                if frame is None:
                    pending.close()
                else:
                    pending.reply(frame)
            except Exception:  # one request's trouble must not end the thread
                log.exception("request of key %d from %s", pending.api_key, pending.peer)
                pending.close()
            del pending  # or its connection would wait for the next request
