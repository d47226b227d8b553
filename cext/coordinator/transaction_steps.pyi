from collections.abc import Iterable
from typing import final

from barnabas.cext.coordinator.ended_transactions import EndedTransactions
from barnabas.cext.coordinator.remote_verification import RemoteVerifications
from barnabas.cext.coordinator.transactional_ids import TransactionalIds

@final
class TransactionSteps:
    ids: TransactionalIds
    retry_max_ms: int
    reserved_producer_id: int
    def __init__(
        self,
        ids: TransactionalIds,
        offsets_topic: str,
        ended: EndedTransactions | None,
        *,
        retry_max_ms: int = 100,
    ) -> None: ...
    def ask_others(self, remote: RemoteVerifications) -> None: ...
    def add(
        self,
        name: str,
        producer_id: int,
        epoch: int,
        partitions: Iterable[tuple[str, int]],
        client_version: int,
        connection_id: int = 0,
    ) -> int | None: ...
    def has(
        self, name: str, producer_id: int, epoch: int, partitions: Iterable[tuple[str, int]]
    ) -> list[int]: ...
