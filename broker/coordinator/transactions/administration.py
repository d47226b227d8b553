"""The state of transactional ids for DescribeTransactions and ListTransactions."""

from __future__ import annotations

from collections.abc import Callable, Collection

from barnabas.coordinator.transactions.coordinator import TransactionCoordinator
from barnabas.coordinator.transactions.transaction import NO_TIME, State, Transaction
from barnabas.errors import CoordinatorLoadInProgress, TransactionalIdNotFound

TITLES = {state.title: state for state in State}
# A step in progress may fence the id; that state is never in a response.
LISTED = [title for title, state in TITLES.items() if state != State.PREPARE_EPOCH_FENCE]


class TransactionAdministration:
    """Reads the transactional ids that one node coordinates."""

    def __init__(
        self, coordinator: TransactionCoordinator, led_partitions: Callable[[], dict[int, bool]]
    ) -> None:
        self._coordinator = coordinator
        self._led_partitions = led_partitions

    def describe(self, name: str) -> Transaction:
        """Returns the transaction of an id. Raises InvalidRequest, NotCoordinator,
        CoordinatorLoadInProgress, TransactionalIdNotFound."""
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
        """Returns the ids that match every given filter. Raises CoordinatorLoadInProgress.

        `longer_than_ms`: the least age of the transaction in ms; -1 matches all. `matches`: selects
        by the transactional id."""
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
    """Returns the age of a transaction in ms. One that has not begun counts from 1970, as in
    Kafka."""
    return now_ms - (now.start_ms if now.start_ms != NO_TIME else -1)
