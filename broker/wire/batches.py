"""Record sets of requests, answers and logs: every magic, every codec.

cext has the byte formats (records.pyx for magic 2, messageset.pyx for 0 and 1), and compression.py
has the codecs; this file combines the two. `decode_batches` walks a record set; it reads a batch's
header and checks its CRC at once, and decodes its records on first use.

Bytes that are not a record set raise only CorruptRecords, whatever is wrong with them: with the
kind "too large" when a batch decompresses to more than size_max, and the codec's error as the
cause. Memory is limited by the given bytes plus, for each batch that is decoded, size_max and its
records.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from barnabas.cext.record.messageset import (
    decode_message_set,
    decode_wrapped,
    encode_message_set,
    encode_wrapper,
    parse_message,
)
from barnabas.cext.record.records import (
    BatchInfo,
    CorruptRecords,
    Record,
    check_crc,
    decode_records,
    encode_records,
    parse_header,
    seal_batch,
)
from barnabas.cext.record.records import (
    encode_batch as encode_plain_batch,
)
from barnabas.wire import compression
from barnabas.wire.compression import Buffer

CREATE_TIME = 0
APPEND_TIME = 1

BATCH_OVERHEAD_BYTES = 61
MAGIC_AT = 16  # in every magic, counted from the start of a batch or entry
NO_TIMESTAMP = -1
NO_SEQUENCE = -1
SEQUENCE_MAX = 2**31 - 1


@dataclass(slots=True)
class Batch:
    """One batch of a record set: a batch v2, a plain message, or a wrapper and the messages in it.

    crc, leader_epoch, producer_* and the flags are as stored; message sets have only the CRC (the
    others are -1 and False). The batch has `size_bytes` bytes of `data`, from `start` on.
    """

    data: memoryview = field(repr=False)
    start: int
    size_bytes: int
    magic: int
    codec: int
    timestamp_type: int | None  # None for magic 0, which has no timestamps
    last_offset: int
    max_timestamp: int
    crc: int
    size_max: int = field(repr=False)
    body_start: int = field(repr=False)
    stored_base_offset: int | None = field(default=None, repr=False)  # None for wrappers
    base_timestamp: int = NO_TIMESTAMP
    stored_count: int | None = field(default=None, repr=False)
    leader_epoch: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = NO_SEQUENCE
    transactional: bool = False
    control: bool = False
    delete_horizon: bool = False
    _records: list[Record] | None = field(default=None, repr=False)

    @property
    def records(self) -> list[Record]:
        """Returns the records, which the first call decodes. Raises CorruptRecords; its positions
        are those in `data` or, for a compressed batch, in the decompressed body."""
        if self._records is None:
            self._records = self._decoded()
        return self._records

    @property
    def base_offset(self) -> int:
        """Returns the first offset of the batch; a wrapper must be decoded to know it."""
        if self.stored_base_offset is None:
            self.stored_base_offset = self.records[0].offset
        return self.stored_base_offset

    @property
    def count(self) -> int:
        """Returns the number of records; a wrapper must be decoded to know it."""
        return len(self.records) if self.stored_count is None else self.stored_count

    @property
    def last_sequence(self) -> int:
        """Returns the sequence number of the last record; these numbers wrap from 2147483647 to
        0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset - self.base_offset) & SEQUENCE_MAX

    def body(self) -> Buffer:
        """Returns the decompressed bytes: the records of a batch v2, the messages in a wrapper, or
        a plain message itself. Raises CorruptRecords."""
        stored = self.data[self.body_start : self.start + self.size_bytes]
        emptied = self.magic == 2 and not stored  # compaction removed the last record
        if self.codec == compression.NONE or emptied:
            return stored
        try:
            return compression.decompress(
                self.codec, stored, size_max=self.size_max, magic=self.magic
            )
        except compression.DecompressedTooLarge as error:
            raise CorruptRecords(str(error), self.start, "too large") from error
        except (compression.CorruptCompressedData, compression.UnknownCodec) as error:
            raise CorruptRecords(str(error), self.start) from error

    def _decoded(self) -> list[Record]:
        body = self.body()
        if self.codec != compression.NONE:
            return self._records_of(body)
        try:
            return self._records_of(body)
        except CorruptRecords as error:
            position = error.position + self.body_start
            raise CorruptRecords(error.reason, position, error.kind) from None

    def _records_of(self, body: Buffer) -> list[Record]:
        append_time = self.max_timestamp if self.timestamp_type == APPEND_TIME else None
        if self.magic == 2:
            return decode_records(
                body,
                count=self.count,
                base_offset=self.base_offset,
                base_timestamp=self.base_timestamp,
                append_time=append_time,
            )
        if self.codec == compression.NONE:
            return decode_message_set(body, magic=self.magic)
        return decode_wrapped(
            body, magic=self.magic, wrapper_offset=self.last_offset, append_time=append_time
        )


def decode_batches(data: Buffer, *, size_max: int, partial_tail: bool = False) -> Iterator[Batch]:
    """Yields the batches of a record set, in order, each with a correct CRC.

    size_max: the largest number of bytes that the body of one batch may decompress to.
    partial_tail: the record set may end with an incomplete batch, as in fetch responses; it is left
    out. Raises CorruptRecords at the first bytes that are not a batch.
    """
    view = memoryview(data).cast("B")
    at = 0
    while at < len(view):
        if partial_tail and is_cut_off(view, at):
            return
        batch = batch_at(view, at, size_max)
        yield batch
        at += batch.size_bytes


def batch_at(view: memoryview, at: int, size_max: int) -> Batch:
    """Returns the batch, message or wrapper at one position of a record set. Raises
    CorruptRecords."""
    magic = view[at + MAGIC_AT] if at + MAGIC_AT < len(view) else None
    return _batch(view, at, size_max) if magic == 2 else _message(view, at, size_max)


def is_cut_off(data: memoryview, at: int) -> bool:
    """Returns whether the batch, or the message of magic 0 or 1, at byte `at` announces more bytes
    than `data` has: a fetch may end in the middle of a batch."""
    if len(data) - at < MAGIC_AT + 1:
        return True
    size_bytes = 12 + int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
    return size_bytes > len(data) - at


def _batch(view: memoryview, at: int, size_max: int) -> Batch:
    header: BatchInfo = parse_header(view, at)
    check_crc(view, at)
    return Batch(
        data=view,
        start=at,
        size_bytes=header.size_bytes,
        magic=2,
        codec=header.codec,
        timestamp_type=APPEND_TIME if header.append_time else CREATE_TIME,
        last_offset=header.base_offset + header.last_offset_delta,
        max_timestamp=header.max_timestamp,
        crc=header.crc,
        size_max=size_max,
        body_start=at + BATCH_OVERHEAD_BYTES,
        stored_base_offset=header.base_offset,
        base_timestamp=header.base_timestamp,
        stored_count=header.record_count,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.transactional,
        control=header.control,
        delete_horizon=header.delete_horizon,
    )


def _message(view: memoryview, at: int, size_max: int) -> Batch:
    entry = parse_message(view, at)
    plain = entry.codec == compression.NONE
    if not plain and entry.value_size < 0:
        raise CorruptRecords("a compressed message without a value", at, "invalid")
    timestamp_type = None
    if entry.magic == 1:
        timestamp_type = APPEND_TIME if entry.append_time else CREATE_TIME
    return Batch(
        data=view,
        start=at,
        size_bytes=entry.size_bytes,
        magic=entry.magic,
        codec=entry.codec,
        timestamp_type=timestamp_type,
        last_offset=entry.offset,
        max_timestamp=entry.timestamp,
        crc=entry.crc,
        size_max=size_max,
        body_start=at if plain else entry.value_start,
        stored_base_offset=entry.offset if plain else None,
        stored_count=1 if plain else None,
    )


def encode_batch(
    records: Iterable[Record | bytes],
    *,
    base_offset: int = 0,
    codec: int = compression.NONE,
    level: int | None = None,
    timestamp_type: int = CREATE_TIME,
    append_time: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = -1,
    magic: int = 2,
    keep_offsets: bool = False,
    base_timestamp: int | None = None,
    delete_horizon: bool = False,
    last_offset_delta: int | None = None,
    max_timestamp: int | None = None,
) -> bytes:
    """Returns one batch v2; for magic 0 and 1 a plain message set or, with a codec, one wrapper.

    records: Records, or bytes for values alone. keep_offsets: the records keep their own offsets
    (ascending, from base_offset on); otherwise they are numbered from base_offset. append_time (ms)
    goes with timestamp_type APPEND_TIME, and is then required. base_timestamp: None is that of the
    first record; with delete_horizon it is the delete horizon (KIP-534). last_offset_delta and
    max_timestamp: the values from before compaction removed records. Raises ValueError for fields
    that magic 0 and 1 do not have, and UnknownCodec.
    """
    compression.check_codec(codec, magic)
    if (timestamp_type == APPEND_TIME) != (append_time is not None):
        raise ValueError("append_time and timestamp_type APPEND_TIME go together")
    if magic < 2:
        idempotent = (producer_id, producer_epoch, base_sequence) != (-1, -1, NO_SEQUENCE)
        if idempotent or transactional or control or delete_horizon:
            raise ValueError(f"magic {magic} has no producers, transactions or control records")
        return _encode_legacy(
            records,
            magic=magic,
            codec=codec,
            level=level,
            base_offset=base_offset,
            append_time=append_time,
            keep_offsets=keep_offsets,
        )
    attributes = codec | timestamp_type << 3 | transactional << 4 | control << 5
    attributes |= delete_horizon << 6
    latest = append_time if append_time is not None else max_timestamp
    if codec == compression.NONE:
        return encode_plain_batch(
            records,
            base_offset=base_offset,
            attributes=attributes,
            leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            base_timestamp=base_timestamp,
            max_timestamp=latest,
            last_offset_delta=last_offset_delta,
            keep_offsets=keep_offsets,
        )
    body, count, last_delta, first_timestamp, largest = encode_records(
        records,
        base_timestamp=base_timestamp,
        base_offset=base_offset if keep_offsets else None,
    )
    return seal_batch(
        compression.compress(codec, body, level=level, magic=magic),
        count=count,
        last_offset_delta=last_delta if last_offset_delta is None else last_offset_delta,
        base_timestamp=first_timestamp,
        max_timestamp=largest if latest is None else latest,
        base_offset=base_offset,
        attributes=attributes,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def _encode_legacy(
    records: Iterable[Record | bytes],
    *,
    magic: int,
    codec: int,
    level: int | None,
    base_offset: int,
    append_time: int | None,
    keep_offsets: bool,
) -> bytes:
    if codec == compression.NONE:
        return encode_message_set(
            records,
            magic=magic,
            base_offset=base_offset,
            append_time=append_time,
            keep_offsets=keep_offsets,
        )
    items = [Record(item) if isinstance(item, bytes) else item for item in records]
    if not items:
        raise ValueError("a wrapper holds at least one record")
    last_offset = items[-1].offset if keep_offsets else base_offset + len(items) - 1
    if magic == 1:  # inner offsets are relative
        first = base_offset if keep_offsets else 0
        items = [
            _moved(item, item.offset - first if keep_offsets else i) for i, item in enumerate(items)
        ]
        inner = encode_message_set(items, magic=1, keep_offsets=True)
    else:
        inner = encode_message_set(
            items, magic=0, base_offset=base_offset, keep_offsets=keep_offsets
        )
    latest = max(item.timestamp for item in items) if magic == 1 else NO_TIMESTAMP
    return encode_wrapper(
        compression.compress(codec, inner, level=level, magic=magic),
        magic=magic,
        codec=codec,
        offset=last_offset,
        timestamp=latest if append_time is None else append_time,
        append_time=append_time is not None,
    )


def _moved(record: Record, offset: int) -> Record:
    return Record(
        record.value,
        record.key,
        timestamp=record.timestamp,
        headers=record.headers,
        offset=offset,
    )
