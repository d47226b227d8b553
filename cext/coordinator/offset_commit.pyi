from typing import final

from barnabas.cext.coordinator.ended_transactions import EndedTransactions
from barnabas.cext.coordinator.group_table import GroupTable
from barnabas.cext.coordinator.partition_states import PartitionStates
from barnabas.cext.network.handler import NativeHandler
from barnabas.cext.partition.partitions import PartitionTable
from barnabas.cext.coordinator.transaction_steps import TransactionSteps

@final
class OffsetCommitHandler(NativeHandler):
    def __init__(
        self,
        table: PartitionTable,
        topic: str,
        states: PartitionStates,
        ended: EndedTransactions,
        groups: GroupTable,
        *,
        metadata_bytes_max: int,
        timeout_ms: int,
        transactions: TransactionSteps | None = None,
    ) -> None: ...
    @property
    def waiting(self) -> int: ...
    @property
    def served(self) -> int: ...
    def take(self) -> list[tuple[str, str, int, int, int, str, int, int, int]]: ...
    def has_waiting(self, group_id: str) -> bool: ...
    def forget(self, partition: int) -> None: ...
