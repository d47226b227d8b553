"""Every CRC implementation of this machine against the crc32c package and zlib."""

import random
import zlib

import crc32c as oracle
import pytest

from barnabas.cext.codec import crc

DATA = random.Random(7).randbytes(70_000)
# Every length up to beyond the first wide loop, and the borders of the long blocks of the others.
LENGTHS = [*range(0, 1100), *range(3570, 3600), *range(6120, 6170), *range(7160, 7180)]
LENGTHS += [*range(8180, 8210), 12_288, 20_000, 65_535, 65_536]
CASES = [(n, n % 64) for n in LENGTHS] + [
    (n, start) for n in range(500, 540) for start in range(16)
]


def disagreements(run, expected):
    return [
        (n, start)
        for n, start in CASES
        if run(DATA[start : start + n]) != expected(DATA[start : start + n])
    ]


def views_disagree(run, expected):
    """Slices of bytes are copied to an aligned address; views keep the alignment of the whole
    buffer."""
    view = memoryview(DATA)
    return [
        (n, start)
        for n, start in CASES
        if run(view[start : start + n]) != expected(view[start : start + n])
    ]


@pytest.mark.parametrize("name", crc.implementations())
def test_crc32c_agrees_with_the_package(name):
    assert len(CASES) > 1800
    assert disagreements(lambda data: crc.crc32c_with(name, data), oracle.crc32c) == []
    assert views_disagree(lambda data: crc.crc32c_with(name, data), oracle.crc32c) == []


@pytest.mark.parametrize("name", crc.implementations())
def test_crc32c_of_pieces_is_that_of_the_whole(name):
    whole = oracle.crc32c(DATA)
    for cut in (0, 1, 7, 511, 512, 6144, 40_000, len(DATA)):
        first = crc.crc32c_with(name, DATA[:cut])
        assert crc.crc32c_with(name, DATA[cut:], first) == whole, cut


def test_crc32_agrees_with_zlib():
    assert disagreements(crc.crc32, zlib.crc32) == []
    assert views_disagree(crc.crc32, zlib.crc32) == []
    assert crc.crc32(DATA[100:], crc.crc32(DATA[:100])) == zlib.crc32(DATA)


def test_the_best_implementation_is_in_use():
    assert crc.crc32c(b"123456789") == 0xE3069283
    assert crc.crc32(b"123456789") == 0xCBF43926
    assert crc.implementations()[-1] == "table"
    for size_bytes in (0, 100, 65_536):
        best = crc.crc32c_with(crc.implementations()[0], DATA[:size_bytes])
        assert crc.crc32c(bytearray(DATA[:size_bytes])) == best


def test_all_ones_is_a_checksum_and_no_error():
    """0xffffffff is the internal mark of an exception; as a checksum it must be returned."""
    assert crc.crc32c(b"", 0xFFFFFFFF) == 0xFFFFFFFF
    assert crc.crc32(b"", 0xFFFFFFFF) == 0xFFFFFFFF


def test_what_is_no_buffer_or_no_implementation_is_refused():
    with pytest.raises(TypeError):
        crc.crc32c("text")
    with pytest.raises(ValueError, match="table"):
        crc.crc32c_with("abacus", b"")
    with pytest.raises(OverflowError):
        crc.crc32c(b"", 2**32)


def test_a_wrong_constant_would_be_seen():
    """Tests the comparison: it names an implementation that is wrong in one bit for one length."""

    def faulty(data):
        return oracle.crc32c(data) ^ (len(data) == 513)

    assert disagreements(faulty, oracle.crc32c)[0] == (513, 513 % 64)
