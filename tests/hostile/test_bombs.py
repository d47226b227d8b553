"""Batches that are small on the wire and large after decompression: refused, or streamed; never
wholly in memory."""

import functools
import struct
import zlib

import lz4.frame
import pytest
import snappy
import zstandard
from compat.support import Wire
from hostile.raw import Growth, error_of
from hostile.test_bad_inputs import compressed
from node.test_settings import create

from barnabas.cext.record.records import Record, encode_records
from barnabas.wire import compression
from barnabas.wire.batches import encode_batch
from barnabas.wire.compression import GZIP_HEADER, XERIAL_HEADER

GROWTH_MAX = 64 << 20  # the README's limit for any decompressed batch
STREAMED_MAX = 32 << 20  # memory to open a gzip or zstd batch of any decompressed size
BOMB_BYTES = 512 << 20
PIECE = bytes(1 << 20)
CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
TOO_LARGE = 10


def gzip_zeros(pieces: int) -> bytes:
    """In members of at most 64 pieces, because deflating zeros takes longer than inflating them."""
    if pieces > 64:
        return gzip_zeros(64) * (pieces // 64)
    deflater = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = b"".join(deflater.compress(PIECE) for _ in range(pieces)) + deflater.flush()
    crc = functools.reduce(lambda crc, _: zlib.crc32(PIECE, crc), range(pieces), 0)
    return GZIP_HEADER + body + struct.pack("<II", crc, pieces * len(PIECE))


def snappy_zeros(pieces: int) -> bytes:
    block = snappy.compress(PIECE[: 32 << 10])
    return XERIAL_HEADER + (len(block).to_bytes(4, "big") + block) * (32 * pieces)


def lz4_zeros(pieces: int) -> bytes:
    frame = lz4.frame.LZ4FrameCompressor(block_linked=False)
    return frame.begin() + b"".join(frame.compress(PIECE) for _ in range(pieces)) + frame.flush()


def zstd_zeros(pieces: int) -> bytes:
    stream = zstandard.ZstdCompressor(level=3).compressobj()
    return b"".join(stream.compress(PIECE) for _ in range(pieces)) + stream.flush()


ZEROS = {"gzip": gzip_zeros, "snappy": snappy_zeros, "lz4": lz4_zeros, "zstd": zstd_zeros}


@pytest.fixture(scope="module", autouse=True)
def bombs(broker):
    with Wire(broker.address) as wire:
        create(wire, "bombs", {"max.message.bytes": 32 << 20})


@pytest.mark.parametrize("name", ZEROS)
def test_bomb_of_512_mib_is_refused(broker, neighbour, name):
    batch = compressed(CODECS[name], ZEROS[name](BOMB_BYTES // len(PIECE)))
    growth = Growth(broker)
    assert error_of(neighbour, batch, topic="bombs") == TOO_LARGE
    assert growth.peak_bytes() <= (STREAMED_MAX if name in ("gzip", "zstd") else GROWTH_MAX)


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_60_mib_in_one_record_are_let_in_without_being_held(broker, neighbour, name):
    body, count, last, base, largest = encode_records([Record(bytes(60 << 20), timestamp=1)])
    batch = compressed(CODECS[name], compression.compress(CODECS[name], body))
    del body
    growth = Growth(broker)
    assert error_of(neighbour, batch, topic="bombs") == 0
    assert growth.peak_bytes() <= STREAMED_MAX


@pytest.mark.parametrize("name", ["none", *ZEROS])
def test_a_million_records_in_a_batch(broker, neighbour, name):
    records = [Record(b"", timestamp=1)] * 1_000_000
    batch = encode_batch(records, codec=CODECS.get(name, 0))
    growth = Growth(broker)
    assert error_of(neighbour, batch, topic="bombs") == 0
    assert growth.peak_bytes() <= GROWTH_MAX
