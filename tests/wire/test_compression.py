"""Hostile bytes give CorruptCompressedData or DecompressedTooLarge, chopped at every byte too."""

import gzip
import random
import subprocess
import sys

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.inflate import xxh32

from barnabas.wire import compression
from barnabas.wire.compression import (
    CODECS,
    CorruptCompressedData,
    DecompressedTooLarge,
    UnknownCodec,
    compress,
    decompress,
)

ROOM = 1 << 20
PACKED = [number for name, number in CODECS.items() if name != "none"]

# Made by Apache Kafka's own Java classes: the bytes after the header of a compressed message of
# magic 0 and of a batch of magic 2. The content is one record: key b"key", eight words "hello".
KAFKA = {
    ("gzip", 0): "1f8b08000000000000ff636080038779de46e7c02ce6ecd44a20a59f919a9393af403409002cd1"
    "0d974c000000",
    ("snappy", 0): "82534e415050590000000001000000010000001f4c0000190110409e4b32ce050f34036b65790"
    "000002f68656c6c6f20a20600",
    ("lz4", 0): "04224d1860401a240000001600010051409e4b32ce0f00ef036b65790000002f68656c6c6f200600"
    "115068656c6c6f00000000",
    ("lz4", 2): "04224d186040821a000000ff0070000000066b65795e68656c6c6f2006001250656c6c6f00000000"
    "00",
    ("zstd", 2): "28b52ffd0058b400008070000000066b65795e68656c6c6f2000010002953a010000",
}


def text(size: int) -> bytes:
    rng = random.Random(size)
    return bytes(rng.choice(b'abc{}":,0123 ') for _ in range(size))


@pytest.mark.parametrize("name", list(KAFKA))
def test_reads_what_kafka_wrote(name):
    hello = b" ".join([b"hello"] * 8)
    if name[1] == 0:
        content = bytes.fromhex("0000000000000000 00000040 9e4b32ce 0000 00000003") + b"key"
        content += len(hello).to_bytes(4, "big") + hello
    else:
        content = b"\x70\x00\x00\x00\x06key\x5e" + hello + b"\x00"
    packed = bytes.fromhex(KAFKA[name])
    data = decompress(CODECS[name[0]], packed, size_max=len(content), magic=name[1])
    assert data == content


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 400), st.sampled_from(sorted(CODECS.values())))
def test_round_trip(unit, times, codec):
    data = unit * times
    for kind in (bytes, bytearray, memoryview):
        packed = compress(codec, kind(data))
        assert decompress(codec, kind(packed), size_max=len(data)) == data


@pytest.mark.parametrize("codec", sorted(CODECS.values()))
@pytest.mark.parametrize("size", [1, 32768, 32769, 300_000, 1_200_000])
def test_the_limit_is_exact(codec, size):
    data = text(1000) * (size // 1000) + text(size % 1000)
    packed = compress(codec, data)
    assert decompress(codec, packed, size_max=size) == data
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, packed, size_max=size - 1)


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("size", [0, 1, 2000])
def test_torn_at_every_byte(codec, size):
    packed = compress(codec, text(size))
    for cut in range(len(packed)):
        if codec == compression.SNAPPY and cut == 16:
            assert decompress(codec, packed[:cut], size_max=ROOM) == b""  # the framing, no chunk
            continue
        with pytest.raises(CorruptCompressedData):
            decompress(codec, packed[:cut], size_max=ROOM)
    for tail in (b"\x00", b"garbage"):
        with pytest.raises(CorruptCompressedData):
            decompress(codec, packed + tail, size_max=ROOM)


@pytest.mark.parametrize("codec", PACKED)
def test_mutations_raise_only_the_errors_of_the_package(codec):
    rng = random.Random(codec)
    data = text(3000)
    packed = compress(codec, data)
    refused = 0
    for _ in range(1500):
        hurt = bytearray(packed)
        for _ in range(rng.randint(1, 3)):
            hurt[rng.randrange(len(hurt))] = rng.randrange(256)
        try:
            assert len(decompress(codec, bytes(hurt), size_max=5000)) <= 5000
        except (CorruptCompressedData, DecompressedTooLarge):
            refused += 1
    assert refused > 20


def test_gzip_is_written_as_kafka_does_and_members_are_read():
    one, two = compress(compression.GZIP, b"one", level=9), gzip.compress(b"two")
    assert one[:10] == bytes.fromhex("1f8b08000000000000ff")
    assert gzip.decompress(one) == b"one"
    assert decompress(compression.GZIP, one + two + one, size_max=9) == b"onetwoone"
    with pytest.raises(DecompressedTooLarge):
        decompress(compression.GZIP, one + two + one, size_max=8)


def test_snappy_is_framed_and_read_framed_twice_framed_and_bare():
    data = text(70_000)
    framed = compress(compression.SNAPPY, data)
    assert framed[:16] == bytes.fromhex("82534e41505059000000000100000001")
    first = int.from_bytes(framed[16:20], "big")
    assert snappy.uncompress(framed[20 : 20 + first]) == data[:32768]
    assert decompress(compression.SNAPPY, framed * 2, size_max=140_000) == data * 2
    assert decompress(compression.SNAPPY, snappy.compress(data), size_max=70_000) == data
    newer = framed[:15] + b"\x02" + framed[16:]
    with pytest.raises(CorruptCompressedData, match="version 2"):
        decompress(compression.SNAPPY, newer, size_max=ROOM)


def test_snappy_announcing_more_than_it_can_hold_allocates_nothing():
    with pytest.raises(CorruptCompressedData, match="cannot hold"):
        decompress(compression.SNAPPY, b"\xff\xff\xff\xff\x0f\x00a", size_max=1 << 40)


def test_lz4_header_is_kafkas_and_faulty_for_magic_0():
    data = text(1000)
    right, faulty = compress(compression.LZ4, data), compress(compression.LZ4, data, magic=0)
    assert right[:7] == bytes.fromhex("04224d18604082")
    assert faulty[:6] + faulty[7:] == right[:6] + right[7:]
    assert faulty[6] == xxh32(faulty[:6]) >> 8 & 0xFF != right[6]
    for magic in (0, 1, 2):
        for packed in (right, faulty):
            assert decompress(compression.LZ4, packed, size_max=1000, magic=magic) == data
    with pytest.raises(CorruptCompressedData):
        decompress(compression.LZ4, right[:6] + b"\x00" + right[7:], size_max=1000)


@pytest.mark.parametrize("linked", [False, True])
def test_lz4_of_other_writers(linked):
    data = text(500) * 500
    packed = lz4.frame.compress(
        data, block_linked=linked, content_checksum=True, block_checksum=True, store_size=True
    )
    assert decompress(compression.LZ4, packed, size_max=len(data)) == data
    skippable = b"\x50\x2a\x4d\x18\x01\x00\x00\x00x"
    with pytest.raises(CorruptCompressedData):
        decompress(compression.LZ4, skippable + packed, size_max=len(data))


def test_zstd_without_content_size_in_several_frames():
    data = text(300_000)
    streamed = zstandard.ZstdCompressor(write_content_size=False).compress(data)
    skippable = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
    packed = streamed + skippable + compress(compression.ZSTD, data, level=19)
    assert decompress(compression.ZSTD, packed, size_max=600_000) == data * 2
    with pytest.raises(CorruptCompressedData):
        decompress(compression.ZSTD, packed[:-1], size_max=600_000)


def test_zstd_window_is_bounded():
    # Content size unknown, window of 2^(10+21) = 2 GiB, one raw block "a".
    frame = bytes.fromhex("28b52ffd 00a8 090000 61")
    with pytest.raises(CorruptCompressedData):
        decompress(compression.ZSTD, frame, size_max=ROOM)
    assert decompress(compression.ZSTD, frame[:5] + b"\x88" + frame[6:], size_max=1) == b"a"


def test_unknown_codecs():
    for codec, magic in ((5, 2), (-1, 2), (compression.ZSTD, 1)):
        with pytest.raises(UnknownCodec):
            compress(codec, b"", magic=magic)
        with pytest.raises(UnknownCodec):
            decompress(codec, b"", size_max=1, magic=magic)


BOMB = """
import resource, sys
from barnabas.wire import compression
codec, size_max = int(sys.argv[1]), int(sys.argv[2])
packed = open(sys.argv[3], "rb").read()
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
try:
    compression.decompress(codec, packed, size_max=size_max)
    raise SystemExit("the bomb went off")
except compression.DecompressedTooLarge:
    print(peak() - before)
"""


@pytest.mark.parametrize("size_max", [1 << 20, 64 << 20])
@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_of_128_mib_costs_little_more_than_the_limit(codec, size_max, tmp_path):
    bomb = tmp_path / "bomb"
    bomb.write_bytes(compress(codec, bytes(128 << 20)))
    command = [sys.executable, "-c", BOMB, str(codec), str(size_max), str(bomb)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < size_max + (64 << 20)


def test_the_packages_are_not_imported_at_start():
    code = (
        "import sys; import barnabas.wire.compression;"
        "print(sorted({'lz4','snappy','cramjam','zstandard'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_zstd_frame_that_announces_too_much_is_refused_before_it_is_read():
    import zstandard

    whole = zstandard.compress(bytes(1 << 20))
    with pytest.raises(compression.DecompressedTooLarge):
        compression.decompress(compression.ZSTD, whole, size_max=(1 << 20) - 1)
    assert len(compression.decompress(compression.ZSTD, whole, size_max=1 << 20)) == 1 << 20
