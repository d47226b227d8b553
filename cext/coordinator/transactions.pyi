from collections.abc import Iterable, Sequence
from typing import final

from barnabas.cext.coordinator.ended_transactions import EndedTransactions
from barnabas.cext.network.handler import LaneHandle
from barnabas.cext.partition.partitions import PartitionTable

@final
class TransactionLane(LaneHandle):
    offsets_partitions: int
    def __init__(
        self,
        table: PartitionTable,
        topic: str,
        offsets_topic: str,
        ended: EndedTransactions | None,
    ) -> None: ...
    def lend(
        self,
        key: bytes,
        partition: int,
        leader_epoch: int,
        producer_id: int,
        producer_epoch: int,
        last_epoch: int,
        client_version: int,
        timeout_ms: int,
        state: int,
        partitions: Sequence[tuple[str, int]],
        start_ms: int,
        update_ms: int,
        previous_producer_id: int,
        value_version: int,
        connections: Iterable[int],
        begun_by: Iterable[int],
    ) -> bool: ...
    def recall(
        self, key: bytes
    ) -> (
        tuple[
            int,
            list[tuple[str, int]] | None,
            int,
            int,
            tuple[int, int, int],
            list[int],
            list[int],
        ]
        | None
    ): ...
    @property
    def lent(self) -> int: ...
    @property
    def served(self) -> int: ...
