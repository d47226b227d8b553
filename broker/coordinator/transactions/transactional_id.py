"""One transactional id as it was when the coordinator looked at it. A plain value.

The id itself is in the native table (cext/coordinator/transactional_ids.pyx), where native handlers
may take its next step at any time: `step` says which state this is, and the table refuses a step
that follows another one.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.coordinator.transactions.transaction import PREPARED, Transaction
from barnabas.errors import ConcurrentTransactions


class TransactionalId(NamedTuple):
    """`now` is durable; `is_pending`: the coordinator writes the step that follows."""

    name: str
    partition: int  # of __transaction_state
    step: int
    is_pending: bool
    now: Transaction

    def check_settled(self) -> None:
        """Raises ConcurrentTransactions while a step, or the markers, are under way. They may be
        changing epoch and producer id: callers that compare these call this method first."""
        if self.is_pending or self.now.state in PREPARED:
            raise ConcurrentTransactions()
