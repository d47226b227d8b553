"""Results of the old consumers: Message, MessageAndOffset, MessageSet, MessageAndMetadata.

Bytes stay as the broker sent them until the caller iterates; then cext/record/records decodes a
whole batch. A message of the current format has no checksum (its batch has one, which was checked),
so the old Message.checksum does not exist here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.cext.record.records import CorruptRecords, Record
from barnabas.clients.error_mapping import ErrorMapping, InvalidMessageException
from barnabas.wire.batches import Batch, decode_batches
from barnabas.wire.compression import Buffer

if TYPE_CHECKING:
    from barnabas.cext.record.records import Header

BATCH_BYTES_MAX = 256 * 1024 * 1024  # size of one decompressed batch


class Message:
    """The bytes of a record: `payload` and `key`, each None where the record has none."""

    __slots__ = ("_record",)

    def __init__(self, record: Record) -> None:
        self._record = record

    @property
    def payload(self) -> bytes | None:
        return self._record.value

    @property
    def key(self) -> bytes | None:
        return self._record.key

    @property
    def has_key(self) -> bool:
        return self._record.key is not None

    @property
    def is_null(self) -> bool:
        """Returns whether the message is a tombstone, that is, has no payload."""
        return self._record.value is None

    @property
    def payload_size(self) -> int:
        """Returns the size of the payload in bytes; -1 without a payload."""
        return -1 if self._record.value is None else len(self._record.value)

    @property
    def timestamp(self) -> int:
        """Returns the timestamp in ms since 1970; -1 for a message from before Kafka 0.10."""
        return self._record.timestamp

    @property
    def headers(self) -> tuple[Header, ...]:
        return self._record.headers

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return (self.key, self.payload) == (other.key, other.payload)

    def __hash__(self) -> int:
        return hash((self.key, self.payload))

    def __repr__(self) -> str:
        return f"Message(key={self.key!r}, payload={self.payload!r})"


class MessageAndOffset(NamedTuple):
    """A message and its offset, as in 0.8. (In 0.7 it was the offset of the next message.)"""

    message: Message
    offset: int

    @property
    def next_offset(self) -> int:
        """Returns the offset at which the next fetch begins."""
        return self.offset + 1


class MessageSet:
    """The messages of one partition in a response, from the requested offset on.

    Iterating raises the error of the partition, if the response has one, and
    InvalidMessageException at a damaged batch. `high_watermark` is the offset after the last
    message that consumers may read; -1 when it is unknown."""

    def __init__(
        self, data: Buffer, offset: int, *, error_code: int = 0, high_watermark: int = -1
    ) -> None:
        self._data = memoryview(data).cast("B")
        self._offset = offset
        self.error_code = error_code
        self.high_watermark = high_watermark

    @property
    def size_in_bytes(self) -> int:
        """Returns the size in bytes as sent, with an incomplete batch at the end."""
        return len(self._data)

    @property
    def valid_bytes(self) -> int:
        """Returns the size in bytes without an incomplete batch at the end. Raises as iterating
        does."""
        return sum(batch.size_bytes for batch in self._batches())

    def __iter__(self) -> Iterator[MessageAndOffset]:
        for batch in self._batches():
            if batch.control:
                continue
            for record in records_from(batch, self._offset):
                yield MessageAndOffset(Message(record), record.offset)

    def _batches(self) -> Iterator[Batch]:
        ErrorMapping.maybe_throw_exception(self.error_code)
        try:
            yield from decode_batches(self._data, size_max=BATCH_BYTES_MAX, partial_tail=True)
        except CorruptRecords as error:
            raise InvalidMessageException(
                f"a message from offset {self._offset} on: {error}"
            ) from error


def records_from(batch: Batch, offset: int) -> list[Record]:
    """Returns the records of a batch from `offset` on: the broker sends whole batches.

    Raises CorruptRecords."""
    records = batch.records
    if records and records[0].offset < offset:
        return [record for record in records if record.offset >= offset]
    return records


class MessageAndMetadata:
    """A message of a stream. `raw_key` and `raw_message` are its bytes, or None when it has none.
    `key` and `message` are the results of the stream's decoders, and raise the errors of these."""

    __slots__ = ("_place", "_record")

    def __init__(self, place: tuple[str, int], record: Record) -> None:
        self._place = place
        self._record = record

    @property
    def topic(self) -> str:
        return self._place[0]

    @property
    def partition(self) -> int:
        return self._place[1]

    @property
    def offset(self) -> int:
        return self._record.offset

    @property
    def key(self) -> Any:
        return self._record.key

    @property
    def message(self) -> Any:
        return self._record.value

    @property
    def raw_key(self) -> bytes | None:
        return self._record.key

    @property
    def raw_message(self) -> bytes | None:
        return self._record.value

    @property
    def timestamp(self) -> int:
        """Returns the timestamp in ms since 1970; -1 for a message from before Kafka 0.10."""
        return self._record.timestamp

    @property
    def headers(self) -> tuple[Header, ...]:
        return self._record.headers

    def __repr__(self) -> str:
        return (
            f"MessageAndMetadata({self.topic!r}, partition={self.partition}, offset={self.offset},"
            f" key={self.raw_key!r}, message={self.raw_message!r})"
        )


class Undecoded:
    """Bytes that are decoded at their first use."""

    __slots__ = ("_data", "_decode")

    def __init__(self, decode: Callable[[Any], Any], data: bytes | None) -> None:
        self._decode = decode
        self._data = data

    def decoded(self) -> Any:
        """Returns the decoded object. Raises the errors of the decoder."""
        return self._decode(self._data)


class DecodedMessage(MessageAndMetadata):
    """A message with a decoder for its key or its value."""

    __slots__ = ("_key", "_message")

    def __init__(self, place: tuple[str, int], record: Record, key: Any, message: Any) -> None:
        super().__init__(place, record)
        self._key = key
        self._message = message

    @property
    def key(self) -> Any:
        return self._key.decoded() if type(self._key) is Undecoded else self._key

    @property
    def message(self) -> Any:
        found = self._message
        return found.decoded() if type(found) is Undecoded else found
