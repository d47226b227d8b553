from typing import final

from barnabas.cext.memory.job_queue import JobQueue

@final
class RewriteQueue(JobQueue):
    def next(self) -> RewriteJob | None: ...

@final
class RewriteJob:
    topic: str
    partition: int
    size_bytes: int
    def read(self) -> bytes: ...
    def done(self, records: bytes) -> None: ...
    def failed(self, code: int) -> None: ...
