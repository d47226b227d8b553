"""What the broker does for a plugin that runs inside it; `broker_started` hands it over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from barnabas.cext.record.records import Record


class Services(Protocol):
    """Any thread may call these methods. A method waits for the disk only where it says so."""

    def now_ms(self) -> int:
        """The broker's wall clock."""

    def partition_count(self, topic: str) -> int:
        """Returns the number of partitions of a topic, 0 when there is no such topic."""

    def high_watermark(self, topic: str, partition: int) -> int:
        """Records below it can be read; 0 for a partition that this broker does not lead."""

    def committed_offsets(self, topic: str, partition: int) -> Mapping[str, int]:
        """Returns the committed offsets of a partition, by consumer group."""

    def create_topic(self, topic: str, partition_count: int, configs: Mapping[str, str]) -> None:
        """Makes a topic with one replica; nothing happens when it is there already."""

    def append(self, topic: str, partition: int, records: Iterable[Record]) -> int:
        """Appends records as one batch and waits until they are durable; gives the offset of the
        first. No interceptor sees them. Raises KafkaError, also when the wait takes too long."""

    def read(self, topic: str, partition: int, offset: int) -> Iterator[Record]:
        """The records from an offset on (or from the log's start, when that is later) up to the
        high watermark of the moment of the call. Raises KafkaError."""

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Deletes the records below that offset: no consumer reads them, and retention frees their
        space."""
