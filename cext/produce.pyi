from typing import final

from barnabas.cext.lane import LaneHandle
from barnabas.cext.partitions import PartitionTable
from barnabas.cext.transaction_lane import TransactionLane
from barnabas.cext.verify import VerifyQueue

class MalformedProduce(ValueError): ...

@final
class ProduceLane(LaneHandle):
    verifies: bool
    def __init__(
        self,
        table: PartitionTable,
        verify: VerifyQueue | None = None,
        transactions: TransactionLane | None = None,
    ) -> None: ...
    def handle_frame(self, frame: bytes) -> bytes | ParkedProduce | None: ...
    def repeat(self, frame: bytes, count: int) -> int: ...

@final
class ParkedProduce:
    @property
    def deadline_ns(self) -> int: ...
    def resume(self, wait_ms: int | None = None) -> bytes | ParkedProduce | None: ...
