"""The state of transactional ids for DescribeTransactions and ListTransactions."""

from __future__ import annotations

from collections.abc import Callable, Collection

from barnabas.coordinator.transactions.coordinator import TransactionCoordinator
from barnabas.coordinator.transactions.transaction import NO_TIME, State, Transaction
from barnabas.errors import CoordinatorLoadInProgress, TransactionalIdNotFound

TITLES = {state.title: state for state in State}
# A fence in progress is part of a step and never in an answer.
LISTED = [title for title, state in TITLES.items() if state != State.PREPARE_EPOCH_FENCE]


class TransactionAdministration:
    """Looks at the ids of one node."""

    def __init__(
        self, coordinator: TransactionCoordinator, led_partitions: Callable[[], dict[int, bool]]
    ) -> None:
        self._coordinator = coordinator
        self._led_partitions = led_partitions

    def describe(self, name: str) -> Transaction:
        """Raises InvalidRequest, NotCoordinator, CoordinatorLoadInProgress,
        TransactionalIdNotFound."""
        coordinator = self._coordinator
        with coordinator.lock:
            coordinator.check(name)
            found = coordinator.find(name)
            if found is None:
                raise TransactionalIdNotFound()
            return found.now

    def find(
        self,
        states: Collection[State] = (),
        producer_ids: Collection[int] = (),
        longer_than_ms: int = -1,
        matches: Callable[[str], bool] | None = None,
    ) -> list[tuple[str, Transaction]]:
        """The ids that match every given filter. Raises CoordinatorLoadInProgress."""
        if not all(self._led_partitions().values()):
            raise CoordinatorLoadInProgress()
        coordinator = self._coordinator
        now_ms = coordinator.wall_ms()
        rows = [(found.name, found.now) for found in coordinator.find_all()]
        return [
            (name, now)
            for name, now in rows
            if (not states or now.state in states)
            and (not producer_ids or now.producer_id in producer_ids)
            and (longer_than_ms < 0 or _runs_ms(now, now_ms) > longer_than_ms)
            and (matches is None or matches(name))
        ]


def _runs_ms(now: Transaction, now_ms: int) -> int:
    """The age of a transaction in ms; one that has not begun counts from 1970, as in Kafka."""
    return now_ms - (now.start_ms if now.start_ms != NO_TIME else -1)
