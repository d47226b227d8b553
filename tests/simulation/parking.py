"""Threads of the shipped code that wait in the middle of their work, as greenlets.

A round of a coordinator waits until its records are committed, and a request to another broker
until that broker has done the same. In the simulation such a thread parks: its step ends there, and
the world goes on; it runs it again when the condition holds, or its time is over.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from greenlet import getcurrent, greenlet

from barnabas.api.later import Later
from barnabas.errors import KafkaError
from barnabas.wire import Struct


class Killed(BaseException):
    """Raised where a broker is killed in the middle of a step."""


class Worker(greenlet):
    """A thread that may park. `until_ns` is the monotonic time at which it goes on in any case."""

    is_ready: Callable[[], bool]
    until_ns: int

    def go_on(self) -> Any:
        """Runs it until it parks or ends; returns the result of its function, or None."""
        self.parent = getcurrent()
        return self.switch()

    def kill(self) -> None:
        self.parent = getcurrent()
        with suppress(Killed):
            self.throw(Killed)


def park(is_ready: Callable[[], bool], until_ns: int) -> None:
    """Ends the step of the worker that calls this. Does nothing where no worker runs."""
    worker = getcurrent()
    if isinstance(worker, Worker):
        worker.is_ready, worker.until_ns = is_ready, until_ns
        worker.parent.switch()


class Awaited:
    """The answer to a request whose handler has returned a Later. `answer`: its frame without the
    size, None while there is none."""

    def __init__(self, later: Later, encode: Callable[[Struct | KafkaError], bytes]) -> None:
        self.answer: bytes | None = None
        self._encode = encode
        later.when_settled(self._take)

    def _take(self, outcome: Struct | KafkaError) -> None:
        self.answer = self._encode(outcome)
