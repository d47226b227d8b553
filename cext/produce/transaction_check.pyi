from typing import final

from barnabas.cext.memory.job_queue import JobQueue
from barnabas.cext.partition.partitions import PartitionTable

@final
class VerifyQueue(JobQueue):
    def expect(
        self, table: PartitionTable, topic: str, index: int, producer_id: int, epoch: int
    ) -> None: ...
    def next(self, timeout_ms: int = -1) -> VerifyJob | None: ...

@final
class VerifyJob:
    transactional_id: bytes
    partitions: list[tuple[str, int]]
    producer_id: int
    producer_epoch: int
    api_version: int
    def renew(self) -> bool: ...
    def done(self, codes: list[int]) -> None: ...
