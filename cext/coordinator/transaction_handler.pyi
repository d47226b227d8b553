from typing import final

from barnabas.cext.coordinator.partition_states import PartitionStates
from barnabas.cext.coordinator.transaction_steps import TransactionSteps
from barnabas.cext.network.handler import NativeHandler

@final
class TransactionHandler(NativeHandler):
    def __init__(
        self,
        steps: TransactionSteps,
        offsets_states: PartitionStates,
        *,
        timeout_ms: int = 5000,
    ) -> None: ...
    @property
    def served(self) -> int: ...
