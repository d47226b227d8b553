"""A transactional id that one producer holds, and the end of transactions of other producers.

    held = TransactionalId(cluster, "loads-1", timeout_ms=60_000)
    held.claim()                                      # fences the id's former producer
    with Producer(cluster, "news", transaction=held) as producer:
        producer.send(b"hello")
    held.end(commit=True)                             # or give held.prepared to another process

`claim` takes the id's next epoch; later transactions continue from it, so a second claim fences the
first claimer for good. Any process that has (name, producer id, epoch) may end the transaction with
`end_transaction`.

If the cluster's feature `transaction.version` is 2 (KIP-890), Produce adds partitions by itself and
each end bumps the epoch; otherwise partitions are added first, and the epoch stays.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.connection import Connection
from barnabas.client.failures import ProtocolViolation, raise_for
from barnabas.client.groups import TRANSACTION, with_coordinator
from barnabas.errors import InvalidProducerEpoch, InvalidTxnState, ProducerFenced
from barnabas.wire import Struct, request

INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN = 22, 24, 26
INIT_HIGH, ADD_HIGH = 5, 3  # the newest versions of one transaction with no two-phase commit
IMPLICIT_FROM = 12  # of Produce: it adds partitions by itself
BUMPS_FROM = 5  # of EndTxn: it bumps the epoch
TIMEOUT_MS = 60_000


class Prepared(NamedTuple):
    """Everything that is needed to end a transaction whose records are all acknowledged."""

    name: str
    producer_id: int
    producer_epoch: int


def bumps_epochs(connection: Connection) -> bool:
    """Returns whether the cluster uses transactions of version 2 (KIP-890): EndTxn then bumps the
    epoch, and Produce adds partitions itself."""
    return connection.features.get("transaction.version", 0) >= 2


class TransactionalId:
    """A transactional id of one producer. Methods raise the errors of the broker's answers:
    InvalidTransactionTimeout, ProducerFenced, ..."""

    def __init__(self, cluster: Cluster, name: str, *, timeout_ms: int = TIMEOUT_MS) -> None:
        self.cluster, self.name, self.timeout_ms = cluster, name, timeout_ms
        self.producer_id, self.producer_epoch = -1, -1
        self._included: set[tuple[str, int]] = set()
        self._sequences: dict[str, dict[int, int]] = {}

    @property
    def prepared(self) -> Prepared:
        """Returns what `end_transaction` needs to end the current transaction, also in another
        process."""
        return Prepared(self.name, self.producer_id, self.producer_epoch)

    def sequences_of(self, topic: str) -> dict[int, int]:
        """Returns the next sequence number of each partition of a topic, a dict that the caller
        updates; a new epoch clears it."""
        return self._sequences.setdefault(topic, {})

    def claim(self) -> None:
        """Takes the id's next epoch (InitProducerId); the broker first aborts an open transaction.
        Raises KafkaError, ClientError."""
        body = request(INIT_PRODUCER_ID).cls(
            transactionalId=self.name, transactionTimeoutMs=self.timeout_ms
        )

        def ask(connection: Connection) -> Struct:
            answer = connection.call(INIT_PRODUCER_ID, body, high=INIT_HIGH)
            raise_for(answer.errorCode, f"transactional id {self.name}")
            return answer

        answer = with_coordinator(self.cluster, self.name, ask, kind=TRANSACTION)
        self._goes_on_with(int(answer.producerId), int(answer.producerEpoch))

    def include(self, connection: Connection, topic: str, partition: int) -> bool:
        """Adds a partition to the transaction before a batch is sent on this connection. Returns
        True when Produce adds it itself, False when AddPartitionsToTxn has added it."""
        if bumps_epochs(connection) and connection.versions[0][1] >= IMPLICIT_FROM:
            return True
        if (topic, partition) not in self._included:
            self._add(topic, partition)
            self._included.add((topic, partition))
        return False

    def _add(self, topic: str, partition: int) -> None:
        message = request(ADD_PARTITIONS)
        row = message.struct("v3AndBelowTopics")(name=topic, partitions=[partition])
        body = message.cls(
            v3AndBelowTransactionalId=self.name,
            v3AndBelowProducerId=self.producer_id,
            v3AndBelowProducerEpoch=self.producer_epoch,
            v3AndBelowTopics=[row],
        )

        def ask(connection: Connection) -> None:
            answer = connection.call(ADD_PARTITIONS, body, high=ADD_HIGH)
            for found in answer.resultsByTopicV3AndBelow:
                for one in found.resultsByPartition:
                    raise_for(one.partitionErrorCode, f"partition {partition} of topic {topic}")

        with_coordinator(self.cluster, self.name, ask, kind=TRANSACTION)

    def end(self, *, commit: bool) -> None:
        """Ends the transaction, whose records must all be acknowledged. Raises InvalidTxnState or
        ProducerFenced when it has ended in another way, KafkaError, ClientError."""
        ended = _end(self.cluster, self.prepared, commit)
        self._included.clear()
        if ended.producerId >= 0:
            self._goes_on_with(int(ended.producerId), int(ended.producerEpoch))

    def _goes_on_with(self, producer_id: int, producer_epoch: int) -> None:
        if producer_id < 0:
            raise ProtocolViolation(f"transactional id {self.name} has no producer id")
        if (producer_id, producer_epoch) != (self.producer_id, self.producer_epoch):
            for sequences in self._sequences.values():
                sequences.clear()
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self._included.clear()


def end_transaction(cluster: Cluster, prepared: Prepared, *, commit: bool) -> bool:
    """Ends a transaction that another producer wrote. It may be repeated: it returns True while the
    transaction's last end was this one, and False when the transaction ended in another way (by its
    timeout, or by a new claim of its id). Raises InvalidProducerIdMapping when the id has
    expired."""
    try:
        _end(cluster, prepared, commit)
    except (InvalidTxnState, ProducerFenced, InvalidProducerEpoch):
        return False
    return True


def _end(cluster: Cluster, prepared: Prepared, commit: bool) -> Struct:
    body = request(END_TXN).cls(
        transactionalId=prepared.name,
        producerId=prepared.producer_id,
        producerEpoch=prepared.producer_epoch,
        committed=commit,
    )

    def ask(connection: Connection) -> Struct:
        high = None if bumps_epochs(connection) else BUMPS_FROM - 1
        answer = connection.call(END_TXN, body, high=high)
        raise_for(answer.errorCode, f"transactional id {prepared.name}")
        return answer

    return with_coordinator(cluster, prepared.name, ask, kind=TRANSACTION)
