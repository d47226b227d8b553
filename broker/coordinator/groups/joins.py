"""JoinGroup requests as they come from network threads: one thread takes them to the coordinator.

Members of a group join at once, and each waits for all the others. What comes together is carried
out together: the rounds that joins ask for run once for all that were there.
Next: cext/coordinator/join_group.pyx, where requests wait; coordinator.py.
"""

from __future__ import annotations

import contextlib
import logging

from barnabas.cext.coordinator.join_group import JoinJob, JoinQueue
from barnabas.coordinator.groups.classic_group import JoinResult
from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.coordinator.rounds import lending
from barnabas.errors import UnknownServerError
from barnabas.server.job_threads import JobThreads

log = logging.getLogger("barnabas.groups")

TOGETHER_MAX = 64  # joins in one round


class Joins:
    """Carries out the joins of one broker; none of them waits here."""

    def __init__(self, queue: JoinQueue, coordinator: GroupCoordinator) -> None:
        self._queue = queue
        self._coordinator = coordinator
        self.threads = JobThreads("joins", queue, self._carry_out)

    def _carry_out(self, first: JoinJob) -> None:
        with lending():
            self._join_together(first)

    def _join_together(self, first: JoinJob) -> None:
        """With what has come meanwhile."""
        self._join(first)
        for _ in range(TOGETHER_MAX - 1):
            job = self._queue.next(0)
            if job is None:
                break
            self._join(job)

    def _join(self, job: JoinJob) -> None:
        try:
            self._coordinator.join(job.group_id, job, job)
        except Exception:  # one request's trouble must not end the thread
            log.exception(
                "%s of %s could not join %s", job.client_id, job.client_host, job.group_id
            )
            with contextlib.suppress(RuntimeError):  # it was answered before
                job(JoinResult(UnknownServerError(), job.member_id))
