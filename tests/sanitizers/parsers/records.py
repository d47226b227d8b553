"""Record sets of every format and codec, what decompresses them, and their conversions."""

import contextlib
from collections.abc import Iterator
from itertools import chain

from oracle import kafka07
from oracle.old_produce import inner, wrapper
from oracle.produce import batch, compressed, record
from oracle.vectors import vectors
from sanitizers.parsers import Parser, of
from sanitizers.parsers.sealed import SIZE_MAX, old_messages, sealed

from barnabas.cext.codec.inflate import CorruptInput, TooLarge, lz4_block, lz4_decode, snappy_decode
from barnabas.cext.record.columns import ColumnsBuilder
from barnabas.cext.record.conversion import CannotConvert, down_convert, up_convert
from barnabas.cext.record.messages07 import (
    BadMessages,
    MissingRecords,
    messages_of,
    split_messages,
    to_message_set,
)
from barnabas.cext.record.messageset import (
    check_wrapped,
    decode_message_set,
    decode_wrapped,
    parse_message,
)
from barnabas.cext.record.records import CorruptRecords
from barnabas.wire import compression
from barnabas.wire.batches import decode_batches
from barnabas.wire.columns import read_columns

WRAPPERS = [wrapper(magic, 1, b"x", offset=2) for magic in (0, 1)]


def record_batches(data: bytes) -> None:
    """A record set of any formats, read as records and as columns."""
    with contextlib.suppress(CorruptRecords):
        for found in decode_batches(data, size_max=SIZE_MAX):
            list(found.records)
    with contextlib.suppress(CorruptRecords):
        read_columns(data, size_max=SIZE_MAX)


def sealed_batch(data: bytes) -> None:
    """As `record_batches`, with the length and the checksum that the first batch must have."""
    record_batches(sealed(data))


def record_sets() -> Iterator[bytes]:
    for vector in vectors("batches"):
        yield vector["bytes"]
    yield from old_messages()
    yield from (batch(), *(compressed(codec, [record()]) for codec in range(5)))


def message_set(data: bytes) -> None:
    """Messages of the formats 0 and 1: a plain set, and the content of a wrapper."""
    for magic in (0, 1):
        with contextlib.suppress(CorruptRecords):
            decode_message_set(data, magic=magic)
        with contextlib.suppress(CorruptRecords):
            check_wrapped(data, magic=magic)
        with contextlib.suppress(CorruptRecords):
            decode_wrapped(data, magic=magic, wrapper_offset=7)
        with contextlib.suppress(CorruptRecords):
            ColumnsBuilder().add_wrapped(data, magic=magic, offset=7)
    with contextlib.suppress(CorruptRecords):
        assert parse_message(data).size_bytes <= len(data)


def message_sets() -> Iterator[bytes]:
    for magic in (0, 1):
        for count in (1, 3, 9):
            yield inner(magic, count)
    yield from old_messages()


def compressed_bytes(data: bytes) -> None:
    for inflate in (lz4_decode, lz4_block, snappy_decode):
        with contextlib.suppress(CorruptInput, TooLarge):
            assert len(inflate(data, SIZE_MAX)) <= SIZE_MAX


def compressed_texts() -> Iterator[bytes]:
    for text in (b"", b"abcd", b"abcd" * 300 + bytes(range(256)), bytes(2000)):
        for codec in (compression.SNAPPY, compression.LZ4):
            yield compression.compress(codec, text)
        yield compression.compress(compression.LZ4, text)[7:]


def up_conversion(data: bytes) -> None:
    """Messages of the formats 0 and 1 as a batch: a plain set, and the content of a wrapper."""
    for one in (data, sealed(data)):
        for outer in (None, *WRAPPERS):
            with contextlib.suppress(CannotConvert):
                made = up_convert(one, wrapper=outer, bytes_max=SIZE_MAX)
                assert len(made) <= len(one) + 61
                (found,) = decode_batches(made, size_max=SIZE_MAX)
                assert [r.offset for r in found.records] == list(range(found.count))


def down_conversion(data: bytes) -> None:
    """A batch or a message in an older format. The result is never larger than it can be."""
    made = sealed(data)
    for magic in (0, 1):
        for wrapped in (False, True):
            with contextlib.suppress(CorruptRecords):
                assert len(down_convert(made, magic=magic, wrapped=wrapped)) <= 5 * len(made)


def messages07(data: bytes) -> None:
    """Messages of Kafka 0.7, and a stored batch in their form. The first byte says how many bytes
    of the messages get their sizes and checksums."""
    made = _sealed07(data[1:], data[0]) if data else data
    with contextlib.suppress(BadMessages):
        at = 0
        for codec, start, end in split_messages(made):
            assert at <= start <= end <= len(made)
            at = end
            if codec == 0:
                assert len(to_message_set(made[start:end])) <= 3 * (end - start)
    with contextlib.suppress(BadMessages):
        assert len(to_message_set(made)) <= 3 * len(made)


def _sealed07(data: bytes, count: int) -> bytes:
    """The bytes cut into messages of `count` bytes of payload each (0: left as they are)."""
    if not count:
        return data
    pieces = (data[at : at + count] for at in range(0, min(len(data), 16 * count), count))
    return b"".join(
        kafka07.message(piece[1:], magic=piece[0] & 1, codec=piece[0] >> 1 & 3) for piece in pieces
    )


def sets07() -> Iterator[bytes]:
    plain, packed = kafka07.messages([b"one", b""]), kafka07.wrapped([b"two"] * 9)
    for data in (plain, packed, plain + packed, kafka07.message(packed, codec=1)):
        yield b"\0" + data
        yield b"\x10" + data


def wrapped_message07(data: bytes) -> None:
    """A stored batch as messages of Kafka 0.7, with its own content and with a decompressed one."""
    one = sealed(data)
    for magic in (0, 1):
        with contextlib.suppress(CorruptRecords, MissingRecords):
            made = messages_of(one, first_offset=0, magic=magic)
            assert len(made) <= 2 * len(one) + 10
        with contextlib.suppress(CorruptRecords, MissingRecords):
            made = messages_of(one[:61], one[61:], first_offset=0, magic=magic)
            assert len(made) <= 2 * len(one) + 10


PARSERS = {
    "record_batches": Parser(of(record_batches), record_sets),
    "sealed_batch": Parser(of(sealed_batch), record_sets),
    "message_set": Parser(of(message_set), message_sets),
    "compressed": Parser(of(compressed_bytes), compressed_texts),
    "up_conversion": Parser(of(up_conversion), lambda: chain(message_sets(), record_sets())),
    "down_conversion": Parser(of(down_conversion), record_sets),
    "messages07": Parser(of(messages07), sets07),
    "wrapped_message07": Parser(of(wrapped_message07), record_sets),
}
