"""One transactional id of a coordinator: what is durable of it, what is under way, who has it.

Between two steps an id may be lent to the network threads (cext/coordinator/transactions.pyx),
which then begin its transactions, let them grow and end them. Whoever looks at `now` recalls it
first, so that nobody sees, or goes on from, what is not true any more. All of it is under the
coordinator's lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from barnabas.coordinator.transactions.transaction import (
    IDLE,
    PREPARED,
    State,
    TopicPartition,
    Transaction,
)
from barnabas.coordinator.transactions.transaction_records import transaction_key, value_version
from barnabas.errors import ConcurrentTransactions, InvalidProducerIdMapping, ProducerFenced

CONNECTIONS_KEPT = 8  # of one id, that began earlier transactions

Producer = tuple[int, int, int]  # epoch, the epoch before, its transaction.version
# State, partitions (None: nothing has changed), start ms, update ms, connections of both kinds.
Recalled = tuple[int, list[TopicPartition] | None, int, int, Producer, list[int], list[int]]
Finish = Callable[["TransactionalId", Transaction], object]


class Lane(Protocol):
    """What of cext.coordinator.transactions is used here."""

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
        partitions: Sequence[TopicPartition],
        start_ms: int,
        update_ms: int,
        previous_producer_id: int,
        value_version: int,
        connections: Iterable[int],
        begun_by: Iterable[int],
    ) -> bool: ...
    def recall(self, key: bytes) -> Recalled | None: ...


class TransactionalId:
    """`now` is durable; `pending` is on its way into the journal."""

    __slots__ = (
        "_finish",
        "_lent_to",
        "_now",
        "begun_by",
        "connections",
        "key",
        "name",
        "partition",
        "pending",
        "waiting",
    )

    def __init__(self, name: str, partition: int, now: Transaction) -> None:
        self.name = name
        self.key = transaction_key(name)
        self.partition = partition
        self._now = now
        self._lent_to: Lane | None = None
        self._finish: Finish | None = None
        self.pending: Transaction | None = None
        self.waiting: list[Callable[[], object]] = []  # for the step to be over
        # Which took part in the newest transaction, and which in earlier ones.
        self.connections: deque[int] = deque(maxlen=CONNECTIONS_KEPT)
        self.begun_by: deque[int] = deque(maxlen=CONNECTIONS_KEPT)

    @property
    def now(self) -> Transaction:
        self.recall()
        return self._now

    @now.setter
    def now(self, after: Transaction) -> None:
        self._now = after

    # -- lending --------------------------------------------------------------------------------

    def lend(self, lane: Lane, leader_epoch: int, version_level: int, finish: Finish) -> None:
        """To who takes steps that need no thought, from here on. Not while one is under way.
        `finish`: carries out an end that was decided there and could not be."""
        now = self._now
        ongoing = now.state == State.ONGOING
        if not ongoing and now.state not in IDLE:
            return
        is_lent = lane.lend(
            self.key,
            self.partition,
            leader_epoch,
            now.producer_id,
            now.producer_epoch,
            now.last_epoch,
            now.client_version,
            now.timeout_ms,
            int(now.state),
            sorted(now.partitions) if ongoing else (),
            now.start_ms,
            now.update_ms,
            now.previous_producer_id,
            value_version(version_level),
            self.connections,
            self.begun_by,
        )
        if is_lent:
            self._lent_to, self._finish = lane, finish

    def recall(self) -> None:
        """What became of it while it was lent counts here."""
        lane, self._lent_to = self._lent_to, None
        if lane is None:
            return
        recalled = lane.recall(self.key)
        assert recalled is not None, "what was lent comes back"
        state, partitions, start_ms, update_ms, producer, connections, begun_by = recalled
        self.connections = deque(connections, CONNECTIONS_KEPT)
        self.begun_by = deque(begun_by, CONNECTIONS_KEPT)
        if partitions is None:
            return
        epoch, last_epoch, client_version = producer
        self._now = self._now._replace(
            producer_epoch=epoch,
            last_epoch=last_epoch,
            state=State(state),
            partitions=frozenset(partitions),
            start_ms=start_ms,
            update_ms=update_ms,
            client_version=client_version,
        )
        if self._now.state in PREPARED and self._finish is not None:
            self._finish(self, self._now)

    def leave(self) -> None:
        """Another node has the id: what became of it here is in the log."""
        lane, self._lent_to = self._lent_to, None
        if lane is not None:
            lane.recall(self.key)

    # -- connections ----------------------------------------------------------------------------

    def takes_part(self, connection_id: int, *, begins: bool) -> None:
        """Notes which connection a transaction is begun on, or goes on with. One that is noted as
        going on may be that of a request that came late, so it takes no other's place."""
        if begins:
            known = {connection_id, *self.begun_by}
            self.begun_by.extend(one for one in self.connections if one not in known)
            self.connections.clear()
            if connection_id in self.begun_by:
                self.begun_by.remove(connection_id)
        if connection_id and connection_id not in self.connections:
            self.connections.append(connection_id)

    def was_left_on(self, connection_id: int) -> bool:
        """Whether a connection began an earlier transaction, and has no part in the newest."""
        return connection_id in self.begun_by and connection_id not in self.connections

    # -- what is asked first --------------------------------------------------------------------

    def check_settled(self) -> None:
        """Raises ConcurrentTransactions while a step, or the markers, are under way. They may be
        changing epoch and producer id: what knows of that asks this first."""
        if self.pending is not None or self.now.state in PREPARED:
            raise ConcurrentTransactions()

    def check_producer(self, producer_id: int, epoch: int) -> None:
        """Raises what is answered to a producer that does not have the id."""
        if self.now.producer_id != producer_id:
            raise InvalidProducerIdMapping()
        if self.now.producer_epoch != epoch:
            raise ProducerFenced()
