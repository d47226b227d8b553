"""One transactional id in the state in which the coordinator read it. A plain value.

The id itself is in the native table (cext/coordinator/transactional_ids.pyx), where native handlers
may take its next step at any time. `step` identifies this state, and the table refuses a step that
follows another one.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.coordinator.transactions.transaction import PREPARED, Transaction
from barnabas.errors import ConcurrentTransactions


class TransactionalId(NamedTuple):
    """The state of one id. `now` is durable; `is_pending`: the coordinator is writing the next
    step."""

    name: str
    partition: int  # the partition of __transaction_state
    step: int
    is_pending: bool
    now: Transaction

    def check_settled(self) -> None:
        """Raises ConcurrentTransactions while a step is being written or markers are not durable.
        Both may change epoch and producer id, so callers that compare these call this method
        first."""
        if self.is_pending or self.now.state in PREPARED:
            raise ConcurrentTransactions()
