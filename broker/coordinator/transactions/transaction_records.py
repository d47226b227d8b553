"""Records of __transaction_state: the key is the transactional id, the value its transaction.

Value version 0 is written while transaction.version is 0, else version 1; both are read. A deleted
id has a null value. TransactionalIds.record writes the records
(cext/coordinator/transactional_ids.pyx). Next: coordinator.py, which replays them.
"""

from __future__ import annotations

from barnabas.cext.record.records import Record
from barnabas.coordinator.transactions.transaction import State, Transaction
from barnabas.wire.internal import TRANSACTION_STATE, read_key


def value_version(version_level: int) -> int:
    """Returns the version of the value for a level of transaction.version. Version 0 has no fields
    for the former and the next producer id."""
    return 0 if version_level == 0 else 1


def read_transaction(record: Record) -> tuple[str, Transaction | None]:
    """Decodes a record. Returns a transactional id and its transaction, or None when it was
    deleted.

    Raises UnknownRecord, MalformedMessage, ValueError."""
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
