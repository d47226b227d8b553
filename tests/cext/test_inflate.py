"""Hostile bytes give CorruptInput or TooLarge, whole, mutated or chopped at every byte."""

import random
from array import array

import lz4.block
import lz4.frame
import pytest
import snappy
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import inflate as oracle

from barnabas.cext.codec import inflate
from barnabas.wire import compression

ROOM = 1 << 20
ERRORS = (inflate.CorruptInput, inflate.TooLarge)


def json_like(size: int, seed: int = 1) -> bytes:
    rng = random.Random(seed)
    out = bytearray()
    while len(out) < size:
        out += b'{"id":%d,"user":"u%d","score":%.3f}\n' % (rng.randrange(9999), seed, rng.random())
    return bytes(out[:size])


def runs(size: int, seed: int) -> bytes:
    """Repeats at every short distance, where a wide copy goes wrong first."""
    rng = random.Random(seed)
    out = bytearray()
    while len(out) < size:
        out += rng.randbytes(rng.randint(1, 40)) * rng.randint(1, 30)
    return bytes(out[:size])


@st.composite
def contents(draw) -> bytes:
    unit = draw(st.binary(min_size=0, max_size=40))
    return draw(st.binary(max_size=60)) + unit * draw(st.integers(0, 300)) + draw(st.binary())


FRAMES = [
    {"block_linked": linked, "store_size": sized, "content_checksum": sums, "block_checksum": sums}
    for linked in (False, True)
    for sized in (False, True)
    for sums in (False, True)
]


def lz4_frame(data: bytes, options: dict, block_size: int = 4) -> bytes:
    return lz4.frame.compress(data, block_size=block_size, **options)


def outcome(decode, data: bytes, size_max: int):
    # An array has no byte after its last one (bytes do), so a sanitizer sees any read beyond it.
    data = array("B", data)
    try:
        return decode(data, size_max)
    except (inflate.CorruptInput, oracle.Corrupt):
        return "corrupt"
    except (inflate.TooLarge, oracle.Large):
        return "large"


@settings(max_examples=150, deadline=None)
@given(contents(), st.sampled_from(FRAMES))
def test_what_the_packages_compress_comes_back(data, options):
    assert inflate.lz4_decode(lz4_frame(data, options), len(data)) == data
    assert inflate.lz4_block(lz4.block.compress(data, store_size=False), ROOM) == data
    assert inflate.snappy_decode(snappy.compress(data), len(data)) == data
    framed = compression.compress(compression.SNAPPY, data)
    assert inflate.snappy_decode(framed, len(data)) == data


@pytest.mark.parametrize("options", FRAMES)
@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 300_000])
def test_blocks_of_every_frame_kind(options, size):
    for data in (json_like(size), runs(size, 7), random.Random(3).randbytes(size), bytes(size)):
        for level in (0, 9):
            for block_size in (4, 7):
                frame = lz4_frame(data, options | {"compression_level": level}, block_size)
                assert inflate.lz4_decode(frame, size) == data
        assert inflate.snappy_decode(snappy.compress(data), size) == data


@pytest.mark.parametrize("period", range(1, 40))
def test_matches_at_every_short_distance(period):
    unit = bytes(range(period))
    for size in range(period, period + 90):
        data = (unit * 200)[:size]
        # One literal run, one match; the block must end in literals.
        rest = size - period
        if rest >= 4:
            token = (min(period, 15) << 4) | min(rest - 4, 15)
            block = bytes([token]) + (bytes([period - 15]) if period >= 15 else b"") + unit
            block += period.to_bytes(2, "little")
            block += (bytes([rest - 19]) if rest >= 19 else b"") + b"\x10!"
            assert inflate.lz4_block(block, size + 1) == data + b"!"
            assert outcome(inflate.lz4_block, block, size) == "large"
        assert inflate.snappy_decode(snappy.compress(data), size) == data


def samples() -> list[tuple[str, bytes]]:
    found = []
    for data in (b"", b"abc", json_like(700), runs(500, 4), bytes(3000)):
        for options in FRAMES:
            found.append(("lz4", lz4_frame(data, options)))
        found.append(("snappy", snappy.compress(data)))
        found.append(("snappy", compression.compress(compression.SNAPPY, data) * 2))
    return found


PAIRS = {
    "lz4": (inflate.lz4_decode, oracle.lz4_frame),
    "snappy": (inflate.snappy_decode, oracle.snappy),
}


def test_torn_at_every_byte():
    for kind, data in samples():
        ours, plain = PAIRS[kind]
        for cut in range(len(data)):
            torn = data[:cut]
            assert outcome(ours, torn, ROOM) == outcome(plain, torn, ROOM), (kind, torn)
            if kind == "lz4":
                with pytest.raises(inflate.CorruptInput):
                    ours(torn, ROOM)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_bytes_mean_the_same_to_the_oracle(seed):
    rng = random.Random(seed)
    seen = set()
    for kind, data in samples():
        ours, plain = PAIRS[kind]
        for _ in range(60):
            hurt = bytearray(data)
            for _ in range(rng.randint(1, 3)):
                # Mostly after the lz4 header: a change inside it is only a wrong header checksum.
                low = rng.choice((0, 7, 11)) if kind == "lz4" else 0
                at = rng.randrange(low, max(len(hurt), low + 1))
                hurt[at : at + rng.randint(0, 2)] = rng.randbytes(rng.randint(0, 2))
            size_max = rng.choice((ROOM, 100, 600))
            result = outcome(ours, bytes(hurt), size_max)
            assert result == outcome(plain, bytes(hurt), size_max), (kind, bytes(hurt), size_max)
            seen.add(result if isinstance(result, str) else "decoded")
    assert seen == {"corrupt", "large", "decoded"}


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=80))
def test_random_bytes_mean_the_same_to_the_oracle(data):
    header = lz4_frame(b"", FRAMES[0])[:7]
    framed = header + len(data).to_bytes(4, "little") + data + bytes(4)
    for bytes_, kind in ((framed, "lz4"), (data, "lz4"), (data, "snappy")):
        ours, plain = PAIRS[kind]
        assert outcome(ours, bytes_, 4096) == outcome(plain, bytes_, 4096)


def test_header_checksum_of_magic_0_and_no_other():
    data = json_like(1000)
    right = bytearray(compression.compress(compression.LZ4, data))
    faulty = bytearray(compression.compress(compression.LZ4, data, magic=0))
    assert right[6] != faulty[6] and right[:6] + right[7:] == faulty[:6] + faulty[7:]
    for check in range(256):
        right[6] = check
        fits = check in (faulty[6], 0x82)
        assert outcome(inflate.lz4_decode, bytes(right), ROOM) == (data if fits else "corrupt")


def test_limit_is_exact():
    data = json_like(200_000)
    for decode, packed in (
        (inflate.lz4_decode, compression.compress(compression.LZ4, data)),
        (inflate.snappy_decode, compression.compress(compression.SNAPPY, data)),
        (inflate.snappy_decode, snappy.compress(data)),
    ):
        assert decode(packed, len(data)) == data
        for size_max in (0, 1, 65536, len(data) - 1):
            with pytest.raises(inflate.TooLarge):
                decode(packed, size_max)


def test_damage_the_mutations_may_miss():
    frame = lz4_frame(b"abc" * 50, FRAMES[0])
    for hurt in (
        frame + b"\x00",  # a tail
        b"\x50\x2a\x4d\x18\x00\x00\x00\x00" + frame,  # a skippable frame
        frame[:7] + b"\x01\x00\x01\x00\x00" + bytes(4),  # a block beyond 64 KiB
        frame[:7] + bytes.fromhex("04000000 10610100") + bytes(4),  # a block that ends in a match
    ):
        with pytest.raises(inflate.CorruptInput):
            inflate.lz4_decode(hurt, ROOM)
    for hurt in (b"", b"\xff\xff\xff\xff\xff\x01", b"\xff\xff\xff\xff\x0f\x00a", b"\x05\x00a"):
        with pytest.raises(inflate.CorruptInput):
            inflate.snappy_decode(hurt, 1 << 40)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=100))
def test_hash_equals_the_oracle(data):
    assert inflate.hash32(data) == oracle.xxh32(data)


def test_arguments_are_checked():
    with pytest.raises(ValueError):
        inflate.lz4_decode(b"", -1)
    with pytest.raises(TypeError):
        inflate.snappy_decode("text", 1)
