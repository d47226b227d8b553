"""Lookups give the same results as bisect; hostile content gives a slot inside the range or -1."""

import bisect
import mmap
import random
import struct
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.cext.log.index import IndexFull, OffsetIndex, TimeIndex


def offset_bytes(entries) -> bytes:
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


def time_bytes(entries) -> bytes:
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


def floor(keys, target):
    return bisect.bisect_right(keys, target) - 1


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=80),
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 2**31 + 3), max_size=40),
)
def test_lookup_equals_bisect(keys, targets):
    keys.sort()
    targets += [key + step for key in keys for step in (-1, 0, 1)]
    offsets = OffsetIndex(offset_bytes((key, i) for i, key in enumerate(keys)), entries=len(keys))
    times = TimeIndex(time_bytes((key, i) for i, key in enumerate(keys)), entries=len(keys))
    slots = [floor(keys, target) for target in targets]
    assert list(offsets.lookup_many(array("q", targets))) == slots
    assert list(times.lookup_many(array("q", targets))) == slots
    for target, slot in zip(targets, slots, strict=True):
        want = None if slot < 0 else (keys[slot], slot)
        assert offsets.lookup(target) == want
        assert times.lookup(target) == want


@pytest.mark.parametrize("count", [1023, 1024, 1025, 2048, 5000])
def test_lookup_around_the_warm_end(count):
    keys = [3 * i + 5 for i in range(count)]
    offsets = OffsetIndex(offset_bytes((key, i) for i, key in enumerate(keys)), entries=count)
    times = TimeIndex(time_bytes((key, i) for i, key in enumerate(keys)), entries=count)
    targets = array("q", range(3 * count + 20))
    slots = [floor(keys, target) for target in targets]
    assert list(offsets.lookup_many(targets)) == slots
    assert list(times.lookup_many(targets)) == slots


def test_times_with_64_bits():
    keys = [-(2**63), -1, 0, 2**33, 2**63 - 1]
    times = TimeIndex(time_bytes((key, 0) for key in keys))
    targets = array("q", [*keys, -(2**62), 2**33 - 1, 2**62])
    assert list(times.lookup_many(targets)) == [floor(keys, target) for target in targets]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400), st.integers(-(2**63), 2**63 - 1))
def test_hostile_content_stays_inside(content, target):
    for index in (OffsetIndex(content), TimeIndex(content)):
        slot = index.lookup_many(array("q", [target]))[0]
        assert -1 <= slot < max(len(index), 1)
        assert index.lookup(target) == (None if slot < 0 else index.entries()[slot])


def test_random_bytes_of_many_entries_stay_inside():
    rng = random.Random(11)
    for size in (8 * 1025, 12 * 1025, 100_000):
        content = rng.randbytes(size)
        for index in (OffsetIndex(content), TimeIndex(content)):
            slots = index.lookup_many(
                array("q", [rng.randrange(-(2**63), 2**63) for _ in range(99)])
            )
            assert all(-1 <= slot < len(index) for slot in slots)


def test_append_writes_kafkas_bytes_into_a_map():
    with mmap.mmap(-1, 4096) as file:
        with OffsetIndex(file) as index:
            index.append(19, 4101)
            index.append(40, 8210)
            assert file[:24] == bytes.fromhex("0000001300001005 0000002800002012") + bytes(8)
            assert index.entries() == [(19, 4101), (40, 8210)]
        with OffsetIndex(file) as index:
            assert len(index) == 2
    with mmap.mmap(-1, 4092) as file, TimeIndex(file) as index:
        index.append(1_700_000_000_000, 19)
        assert file[:16] == bytes.fromhex("0000018bcfe56800 00000013") + bytes(4)


def test_append_refuses_what_does_not_grow():
    offsets = OffsetIndex(bytearray(24))
    offsets.append(5, 100)
    for entry in ((5, 200), (4, 200), (6, 100), (6, 99)):
        with pytest.raises(ValueError):
            offsets.append(*entry)
    offsets.append(6, 101)
    offsets.append(7, 102)
    with pytest.raises(IndexFull):
        offsets.append(8, 103)
    times = TimeIndex(bytearray(36))
    times.append(10, 5)
    for entry in ((10, 6), (9, 6), (11, 4)):
        with pytest.raises(ValueError):
            times.append(*entry)
    times.append(11, 5)
    assert times.entries() == [(10, 5), (11, 5)]
    with pytest.raises(ValueError, match="read-only"):
        OffsetIndex(bytes(8)).append(1, 1)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 30), st.integers(0, 40), st.integers(0, 11))
def test_used_length_of_a_preallocated_file(count, spare, odd):
    offsets = [(256 * (i + 1), 65536 * (i + 1)) for i in range(count)]  # ends in zero bytes
    times = [(256 * (i + 1), 65536 * i) for i in range(count)]
    assert OffsetIndex(offset_bytes(offsets) + bytes(8 * spare + odd % 8)).entries() == offsets
    assert TimeIndex(time_bytes(times) + bytes(12 * spare + odd)).entries() == times


def sound_offsets(entries, base_offset, offset_end, log_size_bytes):
    for i, (offset, position) in enumerate(entries):
        before = entries[i - 1] if i else (-1, -1)
        if offset <= before[0] or position <= before[1]:
            return i
        if base_offset + offset >= offset_end or position >= log_size_bytes:
            return i
    return len(entries)


def sound_times(entries, base_offset, offset_end):
    for i, (timestamp, offset) in enumerate(entries):
        before = entries[i - 1] if i else (-1, 0)
        if timestamp <= before[0] or offset < before[1] or base_offset + offset >= offset_end:
            return i
    return len(entries)


@pytest.mark.parametrize("seed", range(5))
def test_check_stops_at_the_first_damage(seed):
    rng = random.Random(seed)
    results = set()
    for _ in range(300):
        count = rng.randint(0, 12)
        offsets = [(10 * i + 3, 5000 * i + 4096) for i in range(count)]
        times = [(1000 + 7 * i, 10 * i + 3) for i in range(count)]
        if count and rng.random() < 0.7:
            at = rng.randrange(count)
            value = rng.choice((-1, 0, 3, 10 * at, 10 * at + 13, 2**31 - 1, rng.randrange(2**31)))
            offsets[at] = rng.choice(((value, offsets[at][1]), (offsets[at][0], value), (0, 0)))
            times[at] = rng.choice(((value, times[at][1]), (times[at][0], value), (0, 0)))
        base = rng.choice((0, 2**40))
        bounds = {"base_offset": base, "offset_end": base + rng.choice((2**31, 10 * count, 40))}
        size = rng.choice((2**31, 5000 * count))
        offset_index = OffsetIndex(offset_bytes(offsets), entries=count)
        want = sound_offsets(offsets, **bounds, log_size_bytes=size)
        assert offset_index.check(**bounds, log_size_bytes=size) == want
        time_index = TimeIndex(time_bytes(times), entries=count)
        assert time_index.check(**bounds) == sound_times(times, **bounds)
        results.add(want == count)
    assert results == {True, False}


def test_arguments_are_checked():
    with pytest.raises(ValueError):
        OffsetIndex(bytes(16), entries=3)
    with pytest.raises(ValueError):
        TimeIndex(bytes(16), entries=-1)
    with pytest.raises(TypeError):
        OffsetIndex(bytes(16)).lookup_many(array("i", [1]))
    index = OffsetIndex(bytes(16))
    index.close()
    with pytest.raises(ValueError, match="closed"):
        index.lookup(1)
