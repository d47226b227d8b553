"""Arguments and return values of hooks: plain values, snapshots at the time of the call.

A value is one of these classes or made of None, bool, int, float, str, bytes, tuples and
dictionaries with text keys, so that it can go to a plugin in its own process (child_values.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.cext.record.records import Record, decode_records
from barnabas.wire import batches

if TYPE_CHECKING:
    from barnabas.cext.record.columns import Columns

NOTHING: Mapping[str, int] = {}


class SegmentView(NamedTuple):
    """One segment of a log. The last segment is active: the broker appends records to it."""

    base_offset: int  # the offset of the segment's first record, and the name of its file
    next_offset: int  # the offset after the segment's last record
    size_bytes: int  # size of its .log file
    largest_timestamp_ms: int  # of its records; without one, the time of the file's last change
    is_active: bool  # whether the segment is the active one


class LogView(NamedTuple):
    """The log of a partition, for a policy. `size_bytes` is the sum over the segments, `end_offset`
    the offset after the last record."""

    topic: str  # its name
    partition: int  # its index
    segments: tuple[SegmentView, ...]  # oldest first; at least the active one
    high_watermark: int  # consumers see records below it
    retention_ms: int  # the topic's retention.ms; -1: no limit
    retention_bytes: int  # the topic's retention.bytes; -1: no limit
    committed_offsets: Mapping[str, int] = NOTHING  # consumer group -> committed offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def end_offset(self) -> int:
        return self.segments[-1].next_offset


class UnflushedLog(NamedTuple):
    """A log with unflushed records."""

    topic: str  # its name
    partition: int  # its index
    record_count: int  # number of unflushed records
    age_ms: int  # age of the oldest of them, in ms
    flush_ms: int  # the topic's flush.ms


class DirtyLog(NamedTuple):
    """A log that is due for compaction."""

    topic: str  # its name
    partition: int  # its index
    dirty_bytes: int  # bytes that are not compacted yet
    dirty_ratio: float  # dirty_bytes divided by all bytes of the log, 0 to 1
    is_overdue: bool  # whether max.compaction.lag.ms is over


class DirectoryView(NamedTuple):
    """A log directory for a new partition."""

    path: str  # its path in log.dirs
    partition_count: int  # number of partitions in it now
    free_bytes: int  # free space of its file system


class NewTopicView(NamedTuple):
    """A topic that a client wants to create."""

    name: str  # its name
    partition_count: int  # with the broker's default filled in
    replication_factor: int  # with the broker's default filled in
    configs: Mapping[str, str]  # name -> value of the topic's own settings


class ConfigChange(NamedTuple):
    """Settings that a client wants to change."""

    resource_type: str  # "topic" or "broker"
    resource_name: str  # a topic's name, a broker's id, or "" for the default of all brokers
    configs: Mapping[str, str | None]  # all own settings of a topic; altered ones of a broker


class ConnectionView(NamedTuple):
    """A connection that has logged in with SASL, or has shown a certificate on an SSL listener."""

    listener: str  # the name of its listener
    host: str  # the client's address
    mechanism: str  # SASL mechanism; "" on an SSL listener
    user: str  # the name that the client logged in with; "" on an SSL listener
    subject: str  # distinguished name of the certificate (RFC 2253); "" with SASL
    certificate: bytes | None  # the verified certificate, DER; None with SASL


class GroupMemberView(NamedTuple):
    """A member of a group, for an assignor."""

    member_id: str  # created by the client or the broker
    instance_id: str | None  # group.instance.id of a static member
    rack_id: str | None  # client.rack
    topics: frozenset[bytes]  # ids of the existing topics that it subscribes to
    assigned: Mapping[bytes, frozenset[int]]  # topic id -> partitions of its last assignment


class GroupTopicView(NamedTuple):
    """A topic that a member of the group subscribes to."""

    name: str  # its name
    partition_count: int  # its number of partitions
    racks: tuple[frozenset[str], ...]  # of each partition's replicas; () without broker.rack


class GroupView(NamedTuple):
    """A group, for an assignor; a snapshot."""

    group_id: str  # group.id of its members
    members: Mapping[str, GroupMemberView]  # member id -> member; at least one
    topics: Mapping[bytes, GroupTopicView]  # topic id -> topic


class KeyedMessage(NamedTuple):
    """An event of the old producer: one message for a topic, with key and message as the encoders
    take them. `event._replace(field=value)` makes a copy with another field."""

    topic: str  # the topic that it goes to
    message: Any  # the value, not encoded
    key: Any = None  # the key, not encoded
    part_key: Any = None  # chooses the partition instead of the key
    headers: tuple[tuple[str, bytes | None], ...] = ()  # names and values
    timestamp_ms: int = -1  # -1: the time of the send
    partition: int | None = None  # None: the partitioner chooses


class MirroredMessage(NamedTuple):
    """A message that a mirror has read from a source cluster."""

    topic: str  # in the source
    partition: int  # in the source
    offset: int  # in the source
    timestamp_ms: int  # since 1970
    key: bytes | None  # as the source has it
    value: bytes | None  # as the source has it
    headers: tuple[tuple[str, bytes | None], ...] = ()  # names and values


class RecordBatch:
    """A whole batch. The first read of its records decompresses and decodes them.

    - `topic`, `partition`: the partition that the batch goes to, or comes from.
    - `count`: the number of records. `base_offset`: the offset of the first one; a batch from a
      producer counts from 0, a batch for a consumer has the offsets of the log.
    - `records`: a list of `Record`, each with `key`, `value` (bytes or None), `headers`,
      `timestamp` (ms since 1970) and `offset`.
    - `columns`: the same records in Arrow's layout, which is many times cheaper for a plugin that
      works on whole columns.
    - `producer_id`: -1 without an idempotent producer. `transactional`: whether the batch belongs
      to a transaction.
    - `data`: the batch as bytes, with its header. `body`: its records as bytes, not compressed.
      `stored`: all fields of the header.
    """

    __slots__ = ("_batch", "_body", "_records", "data", "partition", "topic")

    def __init__(
        self, topic: str, partition: int, data: bytes, size_max: int, body: bytes | None = None
    ) -> None:
        """`data`: one batch of format 2. `size_max`: the largest size of its records in bytes, not
        compressed. `body`: these records, when the caller has them. Raises CorruptRecords."""
        self.topic = topic
        self.partition = partition
        self.data = data
        self._batch = batches.batch_at(memoryview(data), 0, size_max)
        self._body = body
        self._records: list[Record] | None = None

    @property
    def size_max(self) -> int:
        return self._batch.size_max

    @property
    def count(self) -> int:
        return self._batch.count

    @property
    def base_offset(self) -> int:
        return self._batch.base_offset

    @property
    def producer_id(self) -> int:
        return self._batch.producer_id

    @property
    def transactional(self) -> bool:
        return self._batch.transactional

    @property
    def stored(self) -> batches.Batch:
        """All fields of the header."""
        return self._batch

    @property
    def body(self) -> bytes:
        """The records as bytes, not compressed."""
        if self._body is None:
            self._body = bytes(self._batch.body())
        return self._body

    @property
    def records(self) -> list[Record]:
        if self._records is None:
            self._records = decode_records(self.body, **self._frame())
        return self._records

    def _frame(self) -> dict[str, Any]:
        stored = self._batch
        is_appended = stored.timestamp_type == batches.APPEND_TIME
        return {
            "count": stored.count,
            "base_offset": stored.base_offset,
            "base_timestamp": stored.base_timestamp,
            "append_time": stored.max_timestamp if is_appended else None,
        }

    @property
    def columns(self) -> Columns:
        """See cext/record/columns.pyi: `buffers()`, or an Arrow array by
        pyarrow.record_batch(columns)."""
        from barnabas.cext.record.columns import ColumnsBuilder

        builder = ColumnsBuilder()
        builder.add_body(self.body, **self._frame())
        return builder.finish()

    def rewritten(self, records: Iterable[Record | None]) -> bytes:
        """Returns the batch with other records in place of its own; None leaves a place empty.
        Offsets, sequence numbers and codec stay. Raises ValueError for another number of places."""
        stored = self._batch
        offsets = [record.offset for record in self.records]
        kept = list(_placed(offsets, records))
        latest = max((record.timestamp for record in kept), default=stored.max_timestamp)
        append_time = stored.max_timestamp if stored.timestamp_type == batches.APPEND_TIME else None
        return batches.encode_batch(
            kept,
            base_offset=stored.base_offset,
            codec=stored.codec if kept else 0,
            timestamp_type=stored.timestamp_type or batches.CREATE_TIME,
            append_time=append_time,
            producer_id=stored.producer_id,
            producer_epoch=stored.producer_epoch,
            base_sequence=stored.base_sequence,
            transactional=stored.transactional,
            leader_epoch=stored.leader_epoch,
            keep_offsets=True,
            base_timestamp=stored.base_timestamp,
            last_offset_delta=stored.last_offset - stored.base_offset,
            max_timestamp=None if append_time is not None else latest,
            delete_horizon=stored.delete_horizon,
        )

    def recoded(self, codec: int, level: int | None = None) -> bytes:
        """Returns the bytes of a batch with the same records, offsets and producer fields,
        compressed with another codec (0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd). `level`: on the
        scale of the codec's Python package; None is its default."""
        return batches.encode_batch(
            self.records,
            base_offset=self._batch.base_offset,
            codec=codec if self.count else 0,
            level=level,
            producer_id=self._batch.producer_id,
            producer_epoch=self._batch.producer_epoch,
            base_sequence=self._batch.base_sequence,
            transactional=self._batch.transactional,
            keep_offsets=True,
            base_timestamp=self._batch.base_timestamp,
            last_offset_delta=self._batch.last_offset - self._batch.base_offset,
            max_timestamp=self._batch.max_timestamp,
        )


def _placed(offsets: list[int], records: Iterable[Record | None]) -> Iterator[Record]:
    places = list(records)
    if len(places) != len(offsets):
        raise ValueError(f"{len(places)} places for a batch of {len(offsets)} records")
    for offset, record in zip(offsets, places, strict=True):
        if record is None:
            continue
        if not isinstance(record, Record):
            raise ValueError(f"{type(record).__name__} in place of a Record or None")
        yield Record(
            record.value,
            record.key,
            timestamp=record.timestamp,
            headers=record.headers,
            offset=offset,
        )


class Reject(NamedTuple):
    """The answer of an interceptor that rejects the whole batch, and of build_principal when it
    refuses a connection. The client gets the message (up to 1,000 characters)."""

    message: str


class Replace:
    """An interceptor's answer with other records in place of those of the batch, one for each; None
    leaves a place empty, so that no record has its offset."""

    __slots__ = ("records",)

    def __init__(self, records: Iterable[Record | None]) -> None:
        self.records = tuple(records)
