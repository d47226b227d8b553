"""The map from keys to their latest offsets, and the hash that it uses."""

import ctypes
import random
import subprocess
from pathlib import Path

import pytest

from barnabas.cext.log.cleaner.offset_map import OffsetMap

SECRET = bytes(range(16))
# Of the authors' test vectors (vectors_sip128, key 00..0f, input 00, 01, 02, ...), by its length.
VECTORS = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
}


def test_the_hash_is_siphash_of_128_bits(tmp_path):
    header = Path(__file__).parent.parent.parent / "cext" / "memory"
    source = tmp_path / "sip.c"
    source.write_text(
        '#include "siphash.h"\n'
        "hash128 h(const uint8_t* k, const uint8_t* p, long n) { return siphash128(k, p, n); }\n"
    )
    library = tmp_path / "sip.so"
    command = ["gcc", "-O2", "-shared", "-fPIC", f"-I{header}", str(source), "-o", str(library)]
    subprocess.run(command, check=True)

    class Hash(ctypes.Structure):
        _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]

    run = ctypes.CDLL(str(library)).h
    run.restype = Hash
    run.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_long]
    for size in (0, 1):
        found = run(SECRET, bytes(range(size)), size)
        both = found.low.to_bytes(8, "little") + found.high.to_bytes(8, "little")
        assert both.hex() == VECTORS[size]


@pytest.mark.parametrize("keys_wanted", [1, 10, 100_000])
def test_what_was_learnt_last_is_found(keys_wanted):
    rng = random.Random(4)
    found = OffsetMap(24 * 5000)
    found.reset(keys_wanted)
    expected = {}
    for offset in range(20_000):
        key = b"%d" % rng.randrange(8000)
        if found.learn(key, offset):
            expected[key] = offset
        else:
            assert len(expected) == found.keys_max and key not in expected
    assert found.count == len(expected) <= found.keys_max <= 4500
    assert all(found.latest(key) == offset for key, offset in expected.items())
    assert found.latest(b"never") == -1


def test_memory_holds_no_more_keys_than_it_can():
    found = OffsetMap(24 * 100, 0.9)
    found.reset(1 << 40)
    assert [found.learn(b"%d" % i, i) for i in range(100)].count(True) == 90
    assert found.learn(b"3", 200) and found.latest(b"3") == 200
    found.reset(1 << 40)
    assert found.count == 0 and found.latest(b"3") == -1
    found.release()
    assert not found.learn(b"3", 1) and found.latest(b"3") == -1
    with pytest.raises(ValueError, match="at least 384"):
        OffsetMap(100)
