"""Writing to one topic: records are gathered into batches, one a partition, and sent when full.

Sending waits for the answer, so at most one request is on its way and order is kept. With acks
"all" the producer takes an id from the broker where it can (Kafka 0.11 and later): a batch that is
sent again after a broken connection is stored once. A batch that the broker finds too large is sent
again as two halves, down to one record. With a TransactionalId (transactional_id.py) the records
belong to its open transaction.

Limits: batch_bytes for each partition before compression and PENDING_BYTES_MAX for all, and a
record more.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from barnabas.cext.record.records import Record
from barnabas.client.cluster import Cluster
from barnabas.client.failures import ProtocolViolation, raise_for
from barnabas.client.partitioner import partition_of
from barnabas.client.transactional_id import IMPLICIT_FROM, TransactionalId
from barnabas.errors import (
    DuplicateSequenceNumber,
    MessageTooLarge,
    UnknownTopicOrPartition,
    name_of,
)
from barnabas.wire import Struct, request
from barnabas.wire.batches import encode_batch
from barnabas.wire.compression import CODECS, ZSTD, UnknownCodec

if TYPE_CHECKING:
    from types import TracebackType

    from barnabas.cext.record.records import Header

PRODUCE, INIT_PRODUCER_ID = 0, 22
ACKS = {"0": 0, "1": 1, "all": -1, "-1": -1}
BATCH_BYTES = 512 * 1024  # below the 1 MiB that brokers take unless told otherwise
PENDING_BYTES_MAX = 64 * 1024 * 1024  # of all partitions together
RECORD_OVERHEAD_BYTES = 24  # lengths, deltas and counts around a record, at most
RECORD_V2, ZSTD_FROM = 3, 7  # versions of Produce
SEQUENCE_MASK = 2**31 - 1


@dataclass(slots=True)
class _Pending:
    records: list[Record] = field(default_factory=list)
    size_bytes: int = 0


class Producer:
    """Raises UnknownTopicOrPartition when made for a topic that is not there (and that the broker
    does not create by itself)."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        codec: str = "none",
        acks: str = "all",
        batch_bytes: int = BATCH_BYTES,
        idempotent: bool = True,
        transaction: TransactionalId | None = None,
    ) -> None:
        if codec not in CODECS:
            raise UnknownCodec(f"no codec {codec!r}; there are {', '.join(CODECS)}")
        if acks not in ACKS:
            raise ValueError(f"acks {acks!r} is none of 0, 1 and all")
        self.cluster, self.topic = cluster, topic
        if transaction is not None and ACKS[acks] != -1:
            raise ValueError("a transaction needs acks all")
        self.codec, self.acks, self.batch_bytes = CODECS[codec], ACKS[acks], batch_bytes
        self.transaction = transaction
        self.record_count = 0  # acknowledged (with acks 0: sent)
        self.last_offsets: dict[int, int] = {}  # of the newest batch in each partition
        self.partition_count = len(cluster.topic(topic, create=True).partitions)
        self.producer_id, self.producer_epoch = -1, -1
        if idempotent and self.acks == -1 and transaction is None:
            self.producer_id, self.producer_epoch = self._identity()
        self._pending: dict[int, _Pending] = {}
        self._pending_bytes = 0
        self._sequences: dict[int, int] = {}
        if transaction is not None:
            self._sequences = transaction.sequences_of(topic)
        self._sticky = random.randrange(self.partition_count)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.flush()

    def send(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        headers: Iterable[Header] = (),
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> None:
        """Put a record into its partition's batch; a full batch is sent, and waited for.

        Records without a key go to one partition until its batch is full, then to another."""
        at = time.time_ns() // 1_000_000 if timestamp is None else timestamp
        record = Record(value, key, timestamp=at, headers=headers)
        size_bytes = RECORD_OVERHEAD_BYTES + len(value or b"") + len(key or b"")
        if headers:
            for name, content in record.headers:
                size_bytes += RECORD_OVERHEAD_BYTES + len(name.encode()) + len(content or b"")
        is_free = partition is None and key is None
        place = self._sticky if is_free else self._place(partition, key)
        pending = self._pending.get(place)
        if pending is not None and pending.size_bytes + size_bytes > self.batch_bytes:
            self._send_pending(place)
            pending = None
            if is_free:
                place = self._sticky = random.randrange(self.partition_count)
                pending = self._pending.get(place)
        if pending is None:
            pending = self._pending[place] = _Pending()
        pending.records.append(record)
        pending.size_bytes += size_bytes
        self._pending_bytes += size_bytes
        if self._pending_bytes > PENDING_BYTES_MAX:
            self.flush()

    def _place(self, partition: int | None, key: bytes | None) -> int:
        """The partition asked for, or the key's."""
        if partition is None:
            assert key is not None
            return partition_of(key, self.partition_count)
        if not 0 <= partition < self.partition_count:
            raise UnknownTopicOrPartition(
                f"topic {self.topic} has no partition {partition}, it has {self.partition_count}"
            )
        return partition

    def flush(self) -> None:
        """Returns when all records are acknowledged."""
        for partition in sorted(self._pending):
            self._send_pending(partition)

    def _send_pending(self, partition: int) -> None:
        pending = self._pending.pop(partition, None)
        if pending is not None:
            self._pending_bytes -= pending.size_bytes
            self._send_records(partition, pending.records)

    def _send_records(self, partition: int, records: list[Record]) -> None:
        who = self if self.transaction is None else self.transaction
        sequence = self._sequences.get(partition, 0) if who.producer_id >= 0 else -1
        batch = encode_batch(
            records,
            codec=self.codec,
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            base_sequence=sequence,
            transactional=self.transaction is not None,
        )
        try:
            base_offset = self.cluster.retrying(
                lambda: self._produce(partition, batch), topic=self.topic
            )
        except MessageTooLarge:
            if len(records) == 1:
                raise
            middle = len(records) // 2
            self._send_records(partition, records[:middle])
            self._send_records(partition, records[middle:])
            return
        self.record_count += len(records)
        if sequence >= 0:
            self._sequences[partition] = (sequence + len(records)) & SEQUENCE_MASK
        if base_offset >= 0:
            self.last_offsets[partition] = base_offset + len(records) - 1

    def _produce(self, partition: int, batch: bytes) -> int:
        """The offset of the batch's first record; -1 where the broker does not tell."""
        message = request(PRODUCE)
        rows = [message.struct("topicData.partitionData")(index=partition, records=batch)]
        body = message.cls(
            acks=self.acks,
            timeoutMs=round(1000 * self.cluster.timeout_s),
            topicData=[message.struct("topicData")(name=self.topic, partitionData=rows)],
        )
        connection = self.cluster.leader(self.topic, partition)
        low = ZSTD_FROM if self.codec == ZSTD else RECORD_V2
        high = None
        if self.transaction is not None:
            body.transactionalId = self.transaction.name
            if not self.transaction.include(connection, self.topic, partition):
                high = IMPLICIT_FROM - 1
        if self.acks == 0:
            connection.tell(PRODUCE, body, low=low)
            return -1
        answer = connection.call(PRODUCE, body, low=low, high=high)
        for row in (row for rows in answer.responses for row in rows.partitionResponses):
            if row.errorCode == DuplicateSequenceNumber.code:
                return -1
            raise_for(row.errorCode, f"partition {partition} of topic {self.topic}", _why(row))
            return int(row.baseOffset)
        raise ProtocolViolation(f"{connection.address} answers Produce without a partition")

    def _identity(self) -> tuple[int, int]:
        return self.cluster.retrying(lambda: producer_identity(self.cluster))


def producer_identity(cluster: Cluster) -> tuple[int, int]:
    """A new producer id and its epoch; -1 and -1 from a broker that has none to give. Raises
    KafkaError, ClientError; nothing is tried again."""
    connection = cluster.any_connection()
    if INIT_PRODUCER_ID not in connection.versions:
        return -1, -1
    body = request(INIT_PRODUCER_ID).cls(transactionalId=None, transactionTimeoutMs=60_000)
    answer = connection.call(INIT_PRODUCER_ID, body, high=5)
    raise_for(answer.errorCode, "producer id")
    return int(answer.producerId), int(answer.producerEpoch)


def _why(row: Struct) -> str | None:
    """What the broker says of a refused batch: its own words, or the first bad record's."""
    if row.errorMessage:
        return f"{row.errorMessage} ({name_of(row.errorCode)})"
    for bad in row.recordErrors or ():
        if bad.batchIndexErrorMessage:
            return f"record {bad.batchIndex}: {bad.batchIndexErrorMessage}"
    return None
