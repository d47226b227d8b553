"""Threads that run the jobs which network threads put into a queue (cext/memory/job_queue.pyx).

Each thread runs one job after the other until the queue is closed.
"""

import logging
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from barnabas.cext.memory.threads import NamedThread

log = logging.getLogger("barnabas.jobs")

Job = TypeVar("Job")
Taken = TypeVar("Taken", covariant=True)


class Queue(Protocol[Taken]):
    def next(self) -> Taken | None:
        """Waits for a job; None when the queue is closed."""

    def close(self) -> None: ...


class JobThreads(Generic[Job]):
    """`count` threads on one queue. `carry_out` answers a job in every case. An exception of
    `carry_out` or of the queue is logged; the thread goes on."""

    def __init__(
        self, name: str, queue: Queue[Job], carry_out: Callable[[Job], object], count: int = 1
    ) -> None:
        assert count > 0
        self._name, self._queue, self._carry_out = name, queue, carry_out
        names = [name] if count == 1 else [f"{name}-{at}" for at in range(count)]
        self._threads = [NamedThread(target=self._run, name=each, daemon=True) for each in names]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends the threads; the jobs that are still in the queue do not run."""
        self._queue.close()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _run(self) -> None:
        while self._carried_out():
            pass

    def _carried_out(self) -> bool:
        """Runs the next job; returns False when the queue is closed. The reference to the job ends
        with this call, before the thread waits for the next one."""
        try:
            job = self._queue.next()
            if job is None:
                return False
            self._carry_out(job)
        except Exception:
            log.exception("a job of %s failed", self._name)
        return True
