"""The services of the broker for a plugin that runs inside it; `broker_started` gets them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from barnabas.cext.record.records import Record


class Services(Protocol):
    """Any thread may call these methods. A method waits for the disk only where it says so."""

    def now_ms(self) -> int:
        """Returns the time of the broker's wall clock, in ms since 1970."""

    def rules_changed(self) -> None:
        """Withdraws what the plugin has allowed in `authorize`: the broker asks it again before the
        next use, also on open connections. Call it after the change."""

    def partition_count(self, topic: str) -> int:
        """Returns the number of partitions of a topic; 0 when there is no such topic. It may be
        called for any topic of the cluster."""

    def high_watermark(self, topic: str, partition: int) -> int:
        """Returns the high watermark: consumers see the records below it. Returns 0 for a partition
        that this broker does not lead."""

    def committed_offsets(self, topic: str, partition: int) -> Mapping[str, int]:
        """Returns consumer group -> committed offset for one partition, of the groups that this
        broker coordinates. A group without a committed offset is missing."""

    def create_topic(self, topic: str, partition_count: int, configs: Mapping[str, str]) -> None:
        """Creates a topic with one replica; does nothing when the topic exists. Raises
        KafkaError."""

    def append(self, topic: str, partition: int, records: Iterable[Record]) -> int:
        """Appends records as one batch and waits until they are durable; returns the offset of the
        first record. No interceptor sees them. Raises KafkaError: NotLeaderOrFollower for a
        partition that another broker leads, RequestTimedOut when the wait takes too long."""

    def read(self, topic: str, partition: int, offset: int) -> Iterator[Record]:
        """Returns the records from an offset on (or from the log start offset, when that is
        greater) up to the high watermark at the time of the call. Raises KafkaError, as
        `append`."""

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Deletes the records below the offset `before`: consumers no longer see them, and
        retention frees their space (DeleteRecords). Raises KafkaError, as `append`, and
        OffsetOutOfRange."""
