"""Records of __transaction_state: the key is the transactional id, the value its transaction.

Value version 0 is written while transaction.version is 0, else version 1; both are read. An id
that was forgotten has no value. Next: coordinator.py, which replays them.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache

from barnabas.cext.record.records import Record
from barnabas.coordinator.transactions.transaction import State, TopicPartition, Transaction
from barnabas.wire import Struct
from barnabas.wire.internal import TRANSACTION_STATE, read_key, record_type


def transaction_key(transactional_id: str) -> bytes:
    kind = record_type(TRANSACTION_STATE, "TransactionLog")
    return kind.encode_key(kind.key.cls(transactionalId=transactional_id))


def value_version(version_level: int) -> int:
    """`version_level`: of transaction.version. Version 0 has no fields for the ids before and
    after."""
    return 0 if version_level == 0 else 1


def transaction_value(transaction: Transaction, version_level: int) -> bytes:
    """`version_level`: of transaction.version."""
    kind = record_type(TRANSACTION_STATE, "TransactionLog")
    version = value_version(version_level)
    value = kind.value.cls(
        producerId=transaction.producer_id,
        producerEpoch=transaction.producer_epoch,
        transactionTimeoutMs=transaction.timeout_ms,
        transactionStatus=int(transaction.state),
        transactionPartitions=(
            None if transaction.state == State.EMPTY else _rows(transaction.partitions)
        ),
        transactionLastUpdateTimestampMs=transaction.update_ms,
        transactionStartTimestampMs=transaction.start_ms,
    )
    if version > 0:
        value.previousProducerId = transaction.previous_producer_id
        value.nextProducerId = transaction.next_producer_id
        value.clientTransactionVersion = transaction.client_version
    return kind.encode_value(value, version)


# A producer's transactions are in the same partitions again and again, and each takes four records.
@lru_cache(maxsize=1024)
def _rows(partitions: frozenset[TopicPartition]) -> list[Struct]:
    """Returns one row for each topic. Callers must not change the rows, which are cached."""
    row_of = record_type(TRANSACTION_STATE, "TransactionLog").value.struct("transactionPartitions")
    by_topic = defaultdict(list)
    for topic, index in sorted(partitions):
        by_topic[topic].append(index)
    return [row_of(topic=topic, partitionIds=found) for topic, found in by_topic.items()]


def read_transaction(record: Record) -> tuple[str, Transaction | None]:
    """A transactional id and its transaction; None: forgotten. Raises UnknownRecord,
    MalformedMessage, ValueError."""
    kind, key = read_key(TRANSACTION_STATE, record.key or b"")
    if record.value is None:
        return key.transactionalId, None
    _, value = kind.read_value(record.value)
    return key.transactionalId, Transaction(
        producer_id=value.producerId,
        producer_epoch=value.producerEpoch,
        timeout_ms=value.transactionTimeoutMs,
        state=State(value.transactionStatus),
        partitions=frozenset(
            (row.topic, index)
            for row in value.transactionPartitions or ()
            for index in row.partitionIds
        ),
        start_ms=value.transactionStartTimestampMs,
        update_ms=value.transactionLastUpdateTimestampMs,
        previous_producer_id=value.previousProducerId,
        next_producer_id=value.nextProducerId,
        client_version=value.clientTransactionVersion,
    )
