from typing import final

from barnabas.cext.memory.job_queue import JobQueue

@final
class TransactionalIdQueue(JobQueue):
    def next(self, timeout_ms: int = -1) -> str | None: ...
