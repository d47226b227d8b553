"""Messages of Kafka 0.7: what producers send, and what consumers receive, against plain Python."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import kafka07
from oracle.log_builder import NOW

from barnabas.cext.record.messages07 import (
    BadMessages,
    MissingRecords,
    messages_of,
    messages_size,
    split_messages,
    to_message_set,
    whole_messages,
)
from barnabas.cext.record.messageset import decode_message_set
from barnabas.cext.record.records import CorruptRecords, Record
from barnabas.wire.batches import decode_batches, encode_batch

PAYLOADS = st.lists(st.binary(max_size=60), max_size=8)
SIZE_MAX = 1 << 20


def stored(values, **fields):
    records = [Record(value, b"k", timestamp=NOW) for value in values]
    return encode_batch(records, **fields)


def converted(data, first_offset, magic=1):
    """The 0.7 form of one stored batch, as addresses.py makes it."""
    batch = next(decode_batches(data, size_max=SIZE_MAX))
    content = batch.body() if batch.codec else None
    made = messages_of(data, content, first_offset=first_offset, magic=magic)
    assert messages_size(data, content, first_offset=first_offset, magic=magic) == len(made)
    return made


# ------------------------------------------------------------------------ what producers send


@given(PAYLOADS, st.sampled_from([0, 1]))
def test_plain_messages_become_entries_of_format_0(payloads, magic) -> None:
    data = kafka07.messages(payloads, magic)
    assert split_messages(data) == ([(0, 0, len(data))] if payloads else [])
    records = decode_message_set(to_message_set(data), magic=0)
    assert [(r.offset, r.key, r.value) for r in records] == [(0, None, p) for p in payloads]


def test_parts_of_a_set_keep_their_order() -> None:
    first, wrapper = kafka07.messages([b"a", b"b"]), kafka07.wrapped([b"c"])
    last = kafka07.messages([b"d"])
    parts = split_messages(first + wrapper + last)
    start, end = len(first), len(first) + len(wrapper)
    assert parts == [(0, 0, start), (1, start + 10, end), (0, end, end + len(last))]


@given(PAYLOADS.filter(len), st.data())
def test_a_last_message_that_is_cut_off_is_left_out(payloads, data) -> None:
    whole = kafka07.messages(payloads)
    last = len(kafka07.message(payloads[-1]))
    cut = whole[: len(whole) - data.draw(st.integers(1, last - 1))]
    if len(payloads) == 1:
        for refuse in (split_messages, to_message_set):
            with pytest.raises(BadMessages, match="cut off"):
                refuse(cut)
    else:
        assert split_messages(cut) == [(0, 0, len(whole) - last)]
        assert len(decode_message_set(to_message_set(cut), magic=0)) == len(payloads) - 1


def test_wrong_messages_are_refused_with_their_position() -> None:
    good = kafka07.message(b"good")
    size = struct.pack(">i", 4)
    wrong = {
        kafka07.message(b"x", crc=1): "CRC",
        kafka07.message(b"x", magic=2): "magic",
        kafka07.message(b"x", codec=3): "codec",
        struct.pack(">ib", 5, 1) + bytes(5): "smaller",
        size + bytes(4): "smaller",
        struct.pack(">i", -1) + bytes(20): "smaller",
        struct.pack(">i", -(2**31)) + bytes(20): "smaller",
    }
    for data, reason in wrong.items():
        for refuse in (split_messages, to_message_set):
            with pytest.raises(BadMessages, match=reason) as caught:
                refuse(good + data)
            assert caught.value.position == len(good)
    with pytest.raises(BadMessages, match="inside a compressed"):
        to_message_set(good + kafka07.wrapped([b"x"]))


@given(st.binary(max_size=80), st.data())
def test_hostile_bytes_raise_bad_messages_only(noise, data) -> None:
    valid = kafka07.messages([b"one", b"two"]) + kafka07.wrapped([b"x" * 20])
    at = data.draw(st.integers(0, len(valid)))
    for hostile in (noise, valid[:at] + noise, valid[:at] + noise + valid[at + len(noise) :]):
        for reads in (split_messages, to_message_set):
            try:
                reads(hostile)
            except BadMessages as error:
                assert 0 <= error.position <= len(hostile)


# --------------------------------------------------------------------- what consumers receive


@given(
    st.lists(st.none() | st.binary(max_size=60), min_size=1, max_size=8),
    st.sampled_from([(2, 0), (2, 1), (2, 3), (2, 4), (1, 1), (0, 1), (0, 2), (1, 3)]),
    st.integers(0, 1),
    st.data(),
)
def test_records_of_every_format_become_messages(values, form, magic, data) -> None:
    stored_magic, codec = form
    batch = stored(values, base_offset=7, magic=stored_magic, codec=codec)
    first = data.draw(st.integers(7, 7 + len(values) - 1))
    wanted = [value or b"" for value in values[first - 7 :]]
    assert converted(batch, first, magic) == kafka07.messages(wanted, magic)


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=3), st.sampled_from([0, 1]))
def test_plain_messages_of_older_formats(values, stored_magic) -> None:
    data = stored(values, base_offset=3, magic=stored_magic)
    for offset, batch in enumerate(decode_batches(data, size_max=SIZE_MAX), 3):
        one = data[batch.start : batch.start + batch.size_bytes]
        assert converted(one, offset) == kafka07.message(values[offset - 3])


@pytest.mark.parametrize("form", [(2, 0), (2, 1), (1, 1), (0, 1)])
@pytest.mark.parametrize("offsets", [(7, 9), (8, 9), (7, 8)])
def test_removed_records_are_noticed(form, offsets) -> None:
    magic, codec = form
    records = [Record(b"v", b"k", offset=o, timestamp=NOW) for o in offsets]
    last = {"last_offset_delta": 2} if magic == 2 else {}
    batch = encode_batch(
        records, base_offset=7, keep_offsets=True, magic=magic, codec=codec, **last
    )
    if offsets == (7, 8) and magic < 2:  # a wrapper ends with its last record
        assert converted(batch, 7) == kafka07.messages([b"v", b"v"])
        return
    with pytest.raises(MissingRecords):
        converted(batch, 7)


@given(st.binary(max_size=200), st.integers(0, 120))
def test_damaged_batches_raise_corrupt_records_only(noise, at) -> None:
    batch = stored([b"one", b"two"])
    for damaged in (noise, batch[:at], batch[:at] + noise + batch[at + len(noise) :]):
        for content in (None, noise):
            try:
                messages_of(damaged, content, first_offset=0)
            except (CorruptRecords, MissingRecords):
                pass


def test_a_magic_that_0_7_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="not 2"):
        messages_of(stored([b"v"]), first_offset=0, magic=2)


@given(st.lists(st.binary(max_size=9), max_size=6), st.integers(0, 90), st.integers(0, 90))
def test_whole_messages(payloads, start, size_max) -> None:
    data = kafka07.messages(payloads)
    bounds = [0]
    for payload in payloads:
        bounds.append(bounds[-1] + len(kafka07.message(payload)))
    if start > len(data):
        return
    expected = -1
    if start in bounds:
        expected = max(b for b in bounds if b >= start and b - start <= size_max)
    assert whole_messages(data, start, size_max) == expected
