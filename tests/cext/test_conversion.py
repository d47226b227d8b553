"""Records between the message formats, compared with a twin in plain Python; and damaged bytes.

The twin: oracle/old_produce.py writes messages byte by byte, oracle/old_fetch.py reads them.
"""

import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle.old_fetch import T, entries, entry_of
from oracle.old_produce import inner, message, wrapper

from barnabas.cext.record.conversion import CannotConvert, down_convert, up_convert
from barnabas.cext.record.records import CorruptRecords, Record
from barnabas.wire.batches import decode_batches, encode_batch

DATA = st.none() | st.binary(max_size=40) | st.just(bytes(300))
TIMES = st.integers(min_value=-1, max_value=2**62)
ROWS = st.lists(st.tuples(TIMES, DATA, DATA), min_size=1, max_size=8)
TEXT = st.none() | st.text("abc", max_size=5)
CORRUPT_MESSAGE, INVALID_TIMESTAMP, INVALID_RECORD = 2, 32, 87


def messages(magic: int, rows: list, first: int = 0) -> bytes:
    return b"".join(
        message(magic, value, key, offset=first + i, timestamp=time)
        for i, (time, key, value) in enumerate(rows)
    )


@given(rows=ROWS, magic=st.integers(0, 1), wrapped=st.booleans())
def test_up(rows: list, magic: int, wrapped: bool) -> None:
    content = messages(magic, rows)
    outer = wrapper(magic, 1, b"x", offset=len(rows) - 1) if wrapped else None
    made = up_convert(content, wrapper=outer)
    (batch,) = decode_batches(made, size_max=1 << 20)
    assert (batch.magic, batch.codec, batch.producer_id, batch.base_offset) == (2, 0, -1, 0)
    times = [time if magic else -1 for time, _, _ in rows]
    assert [(r.timestamp, r.key, r.value) for r in batch.records] == [
        (time, key, value) for time, (_, key, value) in zip(times, rows, strict=True)
    ]
    assert batch.max_timestamp == max(times)
    assert len(made) <= len(content) + 61


@given(
    rows=st.lists(st.tuples(st.integers(0, 2**40), TEXT, TEXT), min_size=1, max_size=8),
    magic=st.integers(0, 1), wrapped=st.booleans(), base=st.integers(0, 2**40),
    first=st.integers(0, 9), append_time=st.booleans(),
)  # fmt: skip
def test_down(
    rows: list, magic: int, wrapped: bool, base: int, first: int, append_time: bool
) -> None:
    records = [
        Record(
            None if value is None else value.encode(), None if key is None else key.encode(),
            timestamp=T + time, headers=[("h", b"v")],
        )
        for time, key, value in rows
    ]  # fmt: skip
    stamps = {"timestamp_type": 1, "append_time": T + 5} if append_time else {}
    batch = encode_batch(records, base_offset=base, producer_id=7, producer_epoch=1,
                         base_sequence=3, **stamps)  # fmt: skip
    made = down_convert(batch, magic=magic, first_offset=base + first, wrapped=wrapped)
    expected = []
    for i, (time, key, value) in enumerate(rows):
        if wrapped or i >= first:
            stamp = ("now" if append_time else time) if magic else None
            offset = i if wrapped and magic else base + i
            expected.append([magic, 8 if append_time and magic else 0, offset, stamp, [key, value]])
    assert [entry_of(one) for one in entries(made)] == expected
    assert b"".join(entries(made)) == made
    list(decode_batches(made, size_max=1 << 20))  # each CRC is right


@given(data=st.binary(max_size=200))
def test_any_bytes_are_converted_or_refused(data: bytes) -> None:
    for outer in (None, wrapper(0, 1, b"x"), wrapper(1, 1, b"x")):
        try:
            up_convert(data, wrapper=outer)
        except CannotConvert as error:
            assert error.code in (CORRUPT_MESSAGE, INVALID_RECORD)
    for magic in (0, 1):
        with pytest.raises(CorruptRecords):
            down_convert(data, magic=magic)


def test_every_cut_and_every_changed_byte() -> None:
    """Of a plain set, of a wrapper's content, of a batch and of a message of format 1."""
    rng = random.Random(5)
    for magic in (0, 1):
        content = inner(magic, 3)
        for outer in (None, wrapper(magic, 1, b"x", offset=2)):
            for size in range(len(content)):
                try:
                    made = up_convert(content[:size], wrapper=outer)
                    assert next(decode_batches(made, size_max=999)).count == 3 * size // len(
                        content
                    )
                except CannotConvert as error:
                    assert error.code == INVALID_RECORD and size < len(content) // 3
            for at in range(len(content)):
                wrong = bytearray(content)
                wrong[at] ^= rng.randrange(1, 256)
                try:
                    up_convert(bytes(wrong), wrapper=outer)
                except CannotConvert as error:
                    assert error.code in (CORRUPT_MESSAGE, INVALID_RECORD)
    batch = encode_batch([Record(b"value", b"key", timestamp=T)] * 3)
    for whole in (batch, message(1, b"value", b"key")):
        for size in range(len(whole)):
            with pytest.raises(CorruptRecords):
                down_convert(whole[:size], magic=0)
        for at in range(len(whole)):
            wrong = bytearray(whole)
            wrong[at] ^= rng.randrange(1, 256)
            try:
                down_convert(bytes(wrong), magic=0)
            except CorruptRecords:
                pass


@pytest.mark.parametrize("magic", [0, 1])
def test_what_may_not_be_inside_a_wrapper(magic: int) -> None:
    outer = wrapper(magic, 1, b"x", offset=2)
    for content in (
        b"",
        wrapper(magic, 1, inner(magic, 1)),
        inner(1 - magic, 1),
        encode_batch([b"v"]),
        inner(magic, 2) + inner(1 - magic, 1),
    ):
        with pytest.raises(CannotConvert) as caught:
            up_convert(content, wrapper=outer)
        assert caught.value.code == INVALID_RECORD


def test_a_producers_append_time_is_refused_where_it_cannot_be_kept() -> None:
    """As in Kafka: the topic has append time itself, or the time is none."""
    own = message(1, b"v", attributes=8)
    assert up_convert(own)
    for records, append_time in (
        (own, True),
        (message(1, b"v", attributes=8, timestamp=-1), False),
    ):
        with pytest.raises(CannotConvert) as caught:
            up_convert(records, append_time=append_time)
        assert caught.value.code == INVALID_TIMESTAMP


def test_memory_follows_the_bytes_received() -> None:
    """A size field of 2 GiB takes no memory."""
    huge = bytearray(inner(0, 1))
    huge[8:12] = (2**31 - 1).to_bytes(4, "big")
    tracemalloc.start()
    for records in (bytes(huge), bytes(huge) + bytes(5000)):
        with pytest.raises(CannotConvert):
            up_convert(records)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20
