from collections.abc import Iterable
from typing import final

from barnabas.cext.coordinator.ended_transactions import EndedTransactions
from barnabas.cext.network.handler import LaneHandle
from barnabas.cext.partition.partitions import PartitionTable
from barnabas.cext.coordinator.transactions import TransactionLane

@final
class OffsetCommitLane(LaneHandle):
    def __init__(
        self,
        table: PartitionTable,
        topic: str,
        ended: EndedTransactions,
        *,
        metadata_bytes_max: int,
        timeout_ms: int,
        transactions: TransactionLane | None = None,
    ) -> None: ...
    def admit(
        self,
        group_id: str,
        partition: int,
        member_id: str,
        instance_id: str | None,
        generation: int,
    ) -> None: ...
    def dismiss(self, group_id: str) -> list[tuple[str, int]]: ...
    def heard_ms(self, group_id: str, member_id: str) -> int: ...
    def hold(self, group_id: str, keys: Iterable[tuple[str, int]]) -> None: ...
    def release(self, group_id: str, keys: Iterable[tuple[str, int]]) -> None: ...
    @property
    def waiting(self) -> int: ...
    @property
    def admitted(self) -> int: ...
    @property
    def served(self) -> int: ...
    def take(self) -> list[tuple[str, str, int, int, int, str, int, int]]: ...
    def has_waiting(self, group_id: str) -> bool: ...
    def forget(self, partition: int) -> None: ...
