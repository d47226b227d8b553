"""Writes to one topic, blocking: `flush` returns when every record is acknowledged.

Records are gathered into batches, which the producer pipeline (delivery.py) sends to several
leaders at once. With acks "all" the producer is idempotent if the broker can give it an id (Kafka
0.11 and later): a batch that is sent again after a broken connection is stored once. A batch that
the broker finds too large is sent again as two halves, down to one record. With a TransactionalId
(transactional_id.py) the records belong to its open transaction.

Limits: batch_bytes for each batch before compression; PENDING_BYTES_MAX plus one record for records
that are not acknowledged yet.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Self

from barnabas.cext.record.records import Record
from barnabas.client.brokers import Brokers
from barnabas.client.cluster import Cluster
from barnabas.client.delivery import BATCH_BYTES, RECORD_OVERHEAD_BYTES, Batch, Delivery, size_of
from barnabas.client.partitioner import partition_of
from barnabas.client.transactional_id import TransactionalId
from barnabas.wire.compression import CODECS, UnknownCodec

if TYPE_CHECKING:
    from types import TracebackType

    from barnabas.cext.record.records import Header

ACKS = {"0": 0, "1": 1, "all": -1, "-1": -1}
PENDING_BYTES_MAX = 64 * 1024 * 1024  # of all partitions together
RETRY_BACKOFF_MS = 100
WAIT_S = 0.5


class Producer:
    """A producer of one topic. Close it, or use it in a `with` statement, which flushes it at the
    end.

    The constructor raises UnknownTopicOrPartition for a topic that does not exist and that the
    broker does not create by itself, UnknownCodec, ValueError. `send` and `flush` raise the first
    error of a batch (KafkaError, ClientError) when no other batch is in flight any more."""

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
            raise ValueError(f"acks {acks!r} is not one of 0, 1 and all")
        if transaction is not None and ACKS[acks] != -1:
            raise ValueError("a transaction needs acks all")
        self.cluster, self.topic = cluster, topic
        self.acks, self.batch_bytes = ACKS[acks], batch_bytes
        self.record_count = 0  # acknowledged (with acks 0: sent)
        self.last_offsets: dict[int, int] = {}  # of the newest batch in each partition
        self.partition_count = len(cluster.topic(topic, create=True).partitions)
        self._sticky = random.randrange(self.partition_count)
        self._sticky_bytes = 0
        self._unsent_bytes = 0  # since the last call of `step`
        self._error: Exception | None = None
        timeout_ms = round(1000 * cluster.timeout_s)
        self._delivery = Delivery(
            Brokers(cluster, refresh_ms=-1, owns_cluster=False),
            self._ended,
            acks=self.acks,
            codec_of=lambda _: CODECS[codec],
            retries_max=0,
            retry_backoff_ms=RETRY_BACKOFF_MS,
            request_timeout_ms=timeout_ms,
            delivery_timeout_ms=timeout_ms,
            idempotent=idempotent,
            transaction=transaction,
            batch_bytes=batch_bytes,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    def close(self) -> None:
        """Gives up the records that are not acknowledged yet. A second call does nothing."""
        self._delivery.close()

    def send(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        headers: Iterable[Header] = (),
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> None:
        """Adds a record to its partition's batch. `timestamp`: in ms since 1970.

        Records without a key go to one partition until its batch is full, then to another."""
        at_ms = time.time_ns() // 1_000_000 if timestamp is None else timestamp
        record = Record(value, key, timestamp=at_ms, headers=headers)
        size_bytes = size_of(record)
        whole_bytes = size_bytes + RECORD_OVERHEAD_BYTES
        place = self._place(partition, key, whole_bytes)
        self._delivery.add(self.topic, place, (record,), size_bytes, None)
        self._unsent_bytes += whole_bytes
        if self._unsent_bytes >= self.batch_bytes:
            self._unsent_bytes = 0
            self._delivery.step(0)
        while self._delivery.pending_bytes > PENDING_BYTES_MAX and self._error is None:
            self._delivery.step(WAIT_S)
        if self._error is not None:
            self.flush()

    def _place(self, partition: int | None, key: bytes | None, size_bytes: int) -> int:
        """Returns the requested partition, that of the key, or the one that gets records without a
        key now."""
        if partition is None and key is None:
            if self._sticky_bytes + size_bytes > self.batch_bytes:
                self._sticky, self._sticky_bytes = random.randrange(self.partition_count), 0
            self._sticky_bytes += size_bytes
            return self._sticky
        if partition is None:
            assert key is not None
            return partition_of(key, self.partition_count)
        if not 0 <= partition < self.partition_count:
            self.cluster.topic(self.topic).partition(partition)  # raises if there is none
        return partition

    def flush(self) -> None:
        """Waits until all records are acknowledged (with acks 0: until the brokers have read
        them)."""
        while not self._delivery.is_idle:
            if self._error is not None:  # the others would wait for their own timeouts
                self._delivery.fail_unsent(self._error)
            self._delivery.step(WAIT_S)
        self._delivery.settle()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _ended(self, batch: Batch, error: Exception | None) -> None:
        if error is not None:
            self._error = self._error or error
            return
        count = len(batch.records)
        self.record_count += count
        if batch.base_offset >= 0:
            self.last_offsets[batch.place.index] = batch.base_offset + count - 1
