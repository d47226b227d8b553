"""Hostile bytes in record batches and message sets: CorruptRecords and nothing else."""

import random
import tracemalloc

import pytest
from oracle import records as oracle

from barnabas.cext.record import messageset as m
from barnabas.cext.record import records as r

NOW = 1_700_000_000_000
RECORDS = [
    r.Record(b"value", b"key", timestamp=NOW, headers=[("name", b"x"), ("other", None)]),
    r.Record(None, None, timestamp=NOW + 300),
    r.Record(b"v" * 200, b"", timestamp=NOW - 5),
]
BATCH = r.encode_batch(RECORDS, base_offset=5_000_000_000)
BODY = BATCH[61:]
ENDLESS = b"\xff" * 40
HUGE = oracle.varint(2**31 - 1)


def read_all(batch, body):
    """Calls everything that reads a batch. Returns the number of calls that refused it."""
    refused = 0
    for call in (
        lambda: r.check_crc(batch),
        lambda: r.parse_header(batch),
        lambda: r.check_records(body, r.parse_header(batch)),
        lambda: r.check_records(body, r.parse_header(batch), strict=False),
        lambda: r.decode_records(body, count=3),
        lambda: m.parse_message(batch),
        lambda: m.decode_message_set(batch, magic=0),
        lambda: m.decode_message_set(batch, magic=1),
    ):
        try:
            call()
        except r.CorruptRecords as error:
            assert error.reason and 0 <= error.position <= len(batch)
            refused += 1
    return refused


def record(inner, size=None):
    return oracle.varint(len(inner) if size is None else size) + inner


def test_a_batch_cut_at_every_byte_is_refused():
    for size in range(len(BATCH)):
        with pytest.raises(r.CorruptRecords) as caught:
            r.parse_header(BATCH[:size])
        assert caught.value.kind == "corrupt"
        with pytest.raises(r.CorruptRecords):
            r.check_crc(BATCH[:size])
    info = r.parse_header(BATCH)
    for size in range(len(BODY)):
        with pytest.raises(r.CorruptRecords) as caught:
            r.decode_records(BODY[:size], count=3)
        assert caught.value.kind == "invalid"
        with pytest.raises(r.CorruptRecords):
            r.check_records(BODY[:size], info)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_set_cut_at_every_byte_is_refused_or_ends_earlier(magic):
    data = m.encode_message_set([b"one", b"two"], magic=magic)
    whole = len(data) // 2
    for size in range(len(data)):
        if size in (0, whole):
            assert len(m.decode_message_set(data[:size], magic=magic)) == size // whole
            continue
        with pytest.raises(r.CorruptRecords):
            m.decode_message_set(data[:size], magic=magic)


@pytest.mark.parametrize("length", [-(2**31), -13, -12, -1, 0, 48, len(BATCH) - 11, 2**31 - 1])
def test_a_lying_batch_length(length):
    lying = BATCH[:8] + length.to_bytes(4, "big", signed=True) + BATCH[12:]
    with pytest.raises(r.CorruptRecords) as caught:
        r.parse_header(lying)
    assert caught.value.kind == "corrupt"
    with pytest.raises(r.CorruptRecords):
        r.stamp(bytearray(lying), 0, 0)


@pytest.mark.parametrize("count", [-(2**31), -1, 4, 2**31 - 1])
def test_a_lying_count_takes_neither_time_nor_memory(count):
    lying = bytearray(BATCH)
    lying[57:61] = count.to_bytes(4, "big", signed=True)
    tracemalloc.start()
    for body in (BODY, BODY[:10], b""):
        with pytest.raises(r.CorruptRecords):
            r.decode_records(body, count=count)
        for strict in (True, False):
            with pytest.raises(r.CorruptRecords):
                r.check_records(body, r.parse_header(lying), strict=strict)
    with pytest.raises(r.CorruptRecords):  # and a last offset delta that fits the false count
        lying[23:27] = (max(count, 1) - 1).to_bytes(4, "big")
        r.check_records(BODY[:10], r.parse_header(lying))
    assert tracemalloc.get_traced_memory()[1] < 200_000
    tracemalloc.stop()


GOOD = b"\0" + oracle.varint(0) * 2


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (ENDLESS, "length"),
        (record(GOOD, 2**31 - 1), "length"),
        (record(GOOD, -1) + bytes(9), "length"),
        (record(GOOD, -(2**31)) + bytes(9), "length"),
        (record(b"\0" + ENDLESS), "field"),
        (record(b"\0" + b"\x80" * 9 + b"\x02" + bytes(9)), "field"),
        (record(b"") + bytes(9), "field"),
        (record(GOOD + ENDLESS), "field|key"),
        (record(GOOD + HUGE + bytes(9)), "key"),
        (record(GOOD + oracle.varint(-2) + bytes(9)), "key"),
        (record(GOOD + oracle.varint(-(2**31)) + bytes(9)), "key"),
        (record(GOOD + oracle.varint(-1) + HUGE + bytes(9)), "value"),
        (record(GOOD + oracle.varint(-1) + oracle.varint(-2) + bytes(9)), "value"),
        (record(GOOD + oracle.varint(-1) * 2 + HUGE + bytes(9)), "headers"),
        (record(GOOD + oracle.varint(-1) * 3), "headers"),
        (
            record(GOOD + oracle.varint(-1) * 2 + oracle.varint(1) + oracle.varint(-1) * 2),
            "headers",
        ),
        (record(GOOD + oracle.varint(-1) * 2 + oracle.varint(1) + b"\0" + HUGE), "headers"),
        (record(GOOD + oracle.varint(-1) * 2 + oracle.varint(1) + b"\0\x03"), "headers"),
        (record(GOOD + oracle.varint(-1) * 2 + b"\0\0"), "inside a record"),
        (record(GOOD + oracle.varint(-1) * 2 + b"\0") + b"\0", "after the last"),
    ],
)
def test_lying_sizes_inside_a_record(body, reason):
    header = r.parse_header(r.encode_batch([b""]))
    for call in (
        lambda: r.decode_records(body, count=1),
        lambda: r.check_records(body, header),
    ):
        with pytest.raises(r.CorruptRecords, match=reason) as caught:
            call()
        assert caught.value.kind == "invalid"


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("field", [0, 1])
@pytest.mark.parametrize("size", [-(2**31), -2, 7, 2**31 - 1])
def test_lying_sizes_inside_a_message(magic, field, size):
    data = bytearray(oracle.encode_entry(0, 5, b"k", b"v", magic=magic))
    at = len(data) - (10, 5)[field]
    data[at : at + 4] = size.to_bytes(4, "big", signed=True)
    data[12:16] = oracle.zlib.crc32(data[16:]).to_bytes(4, "big")
    with pytest.raises(r.CorruptRecords, match=("key", "value")[field]) as caught:
        m.parse_message(data)
    assert caught.value.kind == "invalid"


def test_random_changes_never_raise_anything_else():
    rng = random.Random(20_240_817)
    refused = 0
    legacy = [m.encode_message_set([b"one", b"two"], magic=magic) for magic in (0, 1)]
    for _ in range(3000):
        batch = bytearray(rng.choice([BATCH, BATCH, *legacy]))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(batch))
            batch[at] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
        if rng.random() < 0.3:
            del batch[rng.randrange(len(batch)) :]
        body = batch[61:]
        refused += read_all(batch, body)
        try:
            found = r.decode_records(body, count=3)
        except r.CorruptRecords:
            found = None
        try:
            expected = oracle.decode_body(bytes(body), count=3)
        except oracle.Damaged:
            expected = None
        if found is not None:
            found = [(x.offset, x.timestamp, x.key, x.value, x.headers) for x in found]
        assert found == expected
    assert 3000 < refused < 24_000
