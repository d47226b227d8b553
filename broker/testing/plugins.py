"""Helps tests of plugins: makes batches as hooks get them, and sends batches to a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Self

from barnabas.cext.record.records import Record
from barnabas.client.cluster import Cluster
from barnabas.client.producer import Producer
from barnabas.hooks.views import RecordBatch
from barnabas.wire.batches import encode_batch
from barnabas.wire.compression import CODECS

if TYPE_CHECKING:
    from types import TracebackType

SIZE_MAX = 64 << 20


def batch_of(
    records: Iterable[bytes | Record],
    *,
    topic: str = "topic",
    partition: int = 0,
    codec: str = "none",
    base_offset: int = 0,
) -> RecordBatch:
    """Returns a batch as an interceptor gets it. `records`: values or Records; `codec`: none, gzip,
    snappy, lz4 or zstd. Raises KeyError for another codec."""
    data = encode_batch(records, codec=CODECS[codec], base_offset=base_offset)
    return RecordBatch(topic, partition, data, SIZE_MAX)


class Sender:
    """Sends batches to one broker."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._cluster = Cluster(bootstrap_servers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._cluster.close()

    def send(
        self,
        topic: str,
        records: Iterable[bytes | Record],
        *,
        partition: int = 0,
        codec: str = "none",
        idempotent: bool = False,
    ) -> int:
        """Sends one batch and waits for the acknowledgement; returns the offset of its first
        record. Raises KafkaError."""
        given = [row if isinstance(row, Record) else Record(row) for row in records]
        with Producer(self._cluster, topic, codec=codec, idempotent=idempotent) as producer:
            for row in given:
                stamp = None if row.timestamp < 0 else row.timestamp
                producer.send(
                    row.value, row.key, headers=row.headers, timestamp=stamp, partition=partition
                )
        return producer.last_offsets[partition] - len(given) + 1
