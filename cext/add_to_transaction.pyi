from collections.abc import Sequence
from typing import final

from barnabas.cext.lane import LaneHandle
from barnabas.cext.partitions import PartitionTable

@final
class AddToTransactionLane(LaneHandle):
    offsets_partitions: int
    def __init__(self, table: PartitionTable, topic: str, offsets_topic: str) -> None: ...
    def lend(
        self,
        key: bytes,
        partition: int,
        leader_epoch: int,
        producer_id: int,
        producer_epoch: int,
        timeout_ms: int,
        ongoing: bool,
        partitions: Sequence[tuple[str, int]],
        start_ms: int,
        update_ms: int,
        previous_producer_id: int,
        value_version: int,
    ) -> bool: ...
    def recall(
        self, key: bytes
    ) -> tuple[bool, list[int], list[tuple[str, int]] | None, int, int] | None: ...
    @property
    def lent(self) -> int: ...
    @property
    def served(self) -> int: ...
