from typing import final

from barnabas.cext.memory.job_queue import JobQueue

class RangeQueue(JobQueue): ...

@final
class RewriteQueue(RangeQueue):
    def next(self) -> RewriteJob | None: ...

@final
class RewriteJob:
    topic: str
    partition: int
    size_bytes: int
    def read(self) -> bytes: ...
    def done(self, records: bytes) -> None: ...
    def failed(self, code: int) -> None: ...
