"""Message sets v0 and v1: cext against the slow reader and writer, wrappers, damage by size."""

import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import records as oracle

from barnabas.cext.record import messageset as m
from barnabas.cext.record.records import CorruptRecords, Record

I64 = st.integers(-(2**63), 2**63 - 1)
DATA = st.one_of(st.none(), st.binary(max_size=60))
ROWS = st.lists(st.tuples(I64, I64, DATA, DATA), max_size=8)


def as_tuple(record):
    return (record.offset, record.timestamp, record.key, record.value, record.headers)


def entries(offsets, *, magic=1, **options):
    rows = [(offset, 1000 + offset, b"k", b"v%d" % offset) for offset in offsets]
    return b"".join(oracle.encode_entry(*row, magic=magic, **options) for row in rows)


@settings(max_examples=150, deadline=None)
@given(ROWS, st.sampled_from([0, 1]))
def test_sets_agree_with_the_oracle_both_ways(rows, magic):
    expected = b"".join(oracle.encode_entry(*row, magic=magic) for row in rows)
    records = [
        Record(value, key, timestamp=time, offset=offset) for offset, time, key, value in rows
    ]
    assert m.encode_message_set(records, magic=magic, keep_offsets=True) == expected
    found = m.decode_message_set(expected, magic=magic)
    assert [as_tuple(record) for record in found] == oracle.decode_entries(expected, magic=magic)


def test_offsets_are_numbered_and_append_time_is_marked():
    data = m.encode_message_set([b"a", b"b"], magic=1, base_offset=7, append_time=99)
    assert [as_tuple(x) for x in m.decode_message_set(data, magic=1)] == [
        (7, 99, None, b"a", ()),
        (8, 99, None, b"b", ()),
    ]
    assert m.parse_message(data).append_time and m.parse_message(data).codec == 0


def test_a_wrapper_makes_relative_offsets_absolute_and_keeps_gaps():
    found = m.decode_wrapped(entries([0, 1, 4, 9]), magic=1, wrapper_offset=109)
    assert [x.offset for x in found] == [100, 101, 104, 109]
    assert [x.timestamp for x in found] == [1000, 1001, 1004, 1009]
    # Compaction removed the first ones: only the distance to the last counts.
    found = m.decode_wrapped(entries([4, 9]), magic=1, wrapper_offset=109)
    assert [x.offset for x in found] == [104, 109]


def test_a_wrapper_of_magic_0_has_absolute_offsets():
    found = m.decode_wrapped(entries([100, 104], magic=0), magic=0, wrapper_offset=104)
    assert [(x.offset, x.timestamp) for x in found] == [(100, -1), (104, -1)]


def test_append_time_of_a_wrapper_replaces_every_inner_one():
    found = m.decode_wrapped(entries([0, 1]), magic=1, wrapper_offset=1, append_time=5)
    assert [x.timestamp for x in found] == [5, 5]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        entries([0]) + entries([1], attributes=1),
        entries([0], magic=0),
        entries([0]) + entries([1], magic=0),
    ],
    ids=["empty", "nested", "other magic", "mixed magic"],
)
def test_a_wrapper_holds_plain_messages_of_its_magic(content):
    with pytest.raises(CorruptRecords, match="wrapper"):
        m.decode_wrapped(content, magic=1, wrapper_offset=1)
    with pytest.raises(CorruptRecords, match="wrapper") as caught:
        m.check_wrapped(content, magic=1)
    assert caught.value.kind == "invalid"


def test_check_wrapped_sees_keys_and_checksums():
    m.check_wrapped(entries([0, 1]), magic=1, require_keys=True)
    keyless = entries([0]) + oracle.encode_entry(1, 5, None, b"v", magic=1)
    m.check_wrapped(keyless, magic=1)
    with pytest.raises(CorruptRecords) as caught:
        m.check_wrapped(keyless, magic=1, require_keys=True)
    assert (caught.value.kind, caught.value.position) == ("missing key", len(entries([0])))
    damaged = bytearray(entries([0, 1]))
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecords, match="checksum"):
        m.check_wrapped(damaged, magic=1)


@pytest.mark.parametrize(("magic", "size_min"), [(0, 14), (1, 22)])
def test_sizes_below_the_smallest_are_damage(magic, size_min):
    smallest = oracle.encode_entry(0, 0, None, None, magic=magic)
    assert len(smallest) == 12 + size_min
    assert m.parse_message(smallest).size_bytes == len(smallest)
    for size in (-(2**31), -1, 0, 4, size_min - 1):
        message = smallest[16 : 12 + max(size, 5)]
        head = struct.pack(">qiI", 0, size, zlib.crc32(message))
        with pytest.raises(CorruptRecords, match="below the smallest") as caught:
            m.parse_message(head + message + bytes(40))
        assert caught.value.kind == "corrupt"


def test_wrappers_are_written_as_entries():
    data = m.encode_wrapper(b"zz", magic=1, codec=2, offset=9, timestamp=5, append_time=True)
    assert data == oracle.encode_entry(9, 5, None, b"zz", magic=1, attributes=2 | 8)
    info = m.parse_message(b"++" + data, 2)
    assert (info.codec, info.append_time, info.offset, info.timestamp) == (2, True, 9, 5)
    assert (b"++" + data)[info.value_start :] == b"zz"
    assert (info.key_size, info.value_size, info.size_bytes) == (-1, 2, len(data))


def test_what_a_message_set_cannot_carry_is_refused():
    with pytest.raises(ValueError, match="headers"):
        m.encode_message_set([Record(b"", headers=[("h", b"")])], magic=1)
    with pytest.raises(ValueError, match="timestamps"):
        m.encode_message_set([b""], magic=0, append_time=5)
    with pytest.raises(ValueError, match="magic 0 or 1"):
        m.encode_message_set([b""], magic=2)
    with pytest.raises(ValueError, match="compressed"):
        m.encode_wrapper(b"", magic=1, codec=0, offset=0)
    with pytest.raises(TypeError):
        m.encode_message_set(["text"], magic=0)
