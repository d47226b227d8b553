from typing import final

from barnabas.cext.network.handler import NativeHandler
from barnabas.cext.partition.partitions import PartitionTable
from barnabas.cext.coordinator.transaction_steps import TransactionSteps
from barnabas.cext.produce.decode import DecodeQueue

class MalformedProduce(ValueError): ...

@final
class ProduceHandler(NativeHandler):
    verifies: bool
    @property
    def decodes(self) -> DecodeQueue: ...
    def __init__(
        self,
        table: PartitionTable,
        transactions: TransactionSteps | None = None,
    ) -> None: ...
    def handle_frame(self, frame: bytes) -> bytes | ParkedProduce | None: ...
    def repeat(self, frame: bytes, count: int) -> int: ...

@final
class ParkedProduce:
    @property
    def deadline_ns(self) -> int: ...
    def resume(self, wait_ms: int | None = None) -> bytes | ParkedProduce | None: ...
