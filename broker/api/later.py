"""An answer that comes later: a handler returns it instead of blocking its thread.

The code with the answer calls `settle` or `fail`, once, from any thread, also before the handler
has returned. Until then the broker does not read from the connection, because one of its requests
has no answer. If a Later is garbage-collected before `settle`, the connection is closed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from barnabas.errors import KafkaError
from barnabas.wire import Struct


class Later:
    """One answer that comes later."""

    __slots__ = ("_lock", "_outcome", "_send")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outcome: Struct | KafkaError | None = None
        self._send: Callable[[Struct | KafkaError], object] | None = None

    def settle(self, answer: Struct) -> None:
        """Sends the response. Raises RuntimeError the second time."""
        self._finish(answer)

    def fail(self, error: KafkaError) -> None:
        """Answers the whole request with the error's code. Raises RuntimeError the second time."""
        self._finish(error)

    def _finish(self, outcome: Struct | KafkaError) -> None:
        with self._lock:
            if self._outcome is not None:
                raise RuntimeError("this request was answered before")
            self._outcome = outcome
            send = self._send
        if send is not None:
            send(outcome)

    def when_settled(self, send: Callable[[Struct | KafkaError], object]) -> None:
        """Sets the callback that sends the answer; calls it at once if the answer exists
        already."""
        with self._lock:
            assert self._send is None, "an answer has one way to go"
            self._send = send
            outcome = self._outcome
        if outcome is not None:
            send(outcome)
