"""Record batches v2: cext against the slow reader and writer, both directions, and its checks.

Hostile input gives CorruptRecords and nothing else (test_records_damage.py).
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import records as oracle

from barnabas.cext.record import records as r

I64 = st.integers(-(2**63), 2**63 - 1)
TIMES = st.one_of(st.just(-1), st.integers(1_700_000_000_000, 1_700_000_100_000), I64)
DATA = st.one_of(st.none(), st.binary(max_size=150))
HEADERS = st.lists(st.tuples(st.text(max_size=8), DATA), max_size=3).map(tuple)
RECORDS = st.lists(st.tuples(TIMES, DATA, DATA, HEADERS), max_size=12)
NOW = 1_700_000_000_000


def as_tuple(record):
    return (record.offset, record.timestamp, record.key, record.value, record.headers)


def as_record(offset, timestamp, key, value, headers):
    return r.Record(value, key, timestamp=timestamp, headers=headers, offset=offset)


def batch_of(count=3, **options):
    records = [
        r.Record(b"v%d" % i, b"k%d" % i, timestamp=NOW + (5, 9, 9, 1)[i % 4]) for i in range(count)
    ]
    return r.encode_batch(records, **options)


def changed(batch, at, data):
    """The batch with other bytes at a place, and a CRC that fits them."""
    new = bytearray(batch)
    new[at : at + len(data)] = data
    new[17:21] = oracle.crc32c(new[21:]).to_bytes(4, "big")
    return bytes(new)


def check(batch, **options):
    return r.check_records(batch[61:], r.parse_header(batch), **options)


@settings(max_examples=150, deadline=None)
@given(RECORDS, I64, st.booleans())
def test_bodies_agree_with_the_oracle_both_ways(rows, base, fixed):
    base = base % 2**62
    rows = [(base + i, *row) for i, row in enumerate(rows)]
    records = [as_record(*row) for row in rows]
    body, count, last, first_time, latest = r.encode_records(records)
    assert body == oracle.encode_body(rows, base_offset=base, base_timestamp=first_time)
    assert (count, last) == (len(rows), len(rows) - 1)
    assert first_time == (rows[0][1] if rows else -1)
    assert latest == max((row[1] for row in rows), default=-1)
    options = dict(count=count, base_offset=base, base_timestamp=first_time)
    options["append_time"] = 77 if fixed else None
    expected = oracle.decode_body(body, **options)
    assert [as_tuple(record) for record in r.decode_records(body, **options)] == expected
    if not fixed:
        assert expected == rows


@settings(max_examples=100, deadline=None)
@given(RECORDS, I64, st.integers(-1, 2**31 - 1), I64, st.integers(-1, 32767), st.data())
def test_whole_batches_agree_with_the_oracle(rows, base, leader, producer, epoch, data):
    attributes = data.draw(st.integers(0, 15)) * 8
    sequence = data.draw(st.integers(-1, 2**31 - 1))
    records = [as_record(-1, *row) for row in rows]
    batch = r.encode_batch(
        records,
        base_offset=base,
        attributes=attributes,
        leader_epoch=leader,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    body, count, last, first_time, latest = r.encode_records(records)
    fields = dict(
        base_offset=base,
        leader_epoch=leader,
        attributes=attributes,
        last_offset_delta=last,
        base_timestamp=first_time,
        max_timestamp=latest,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
    )
    assert batch == oracle.encode_batch(body, **fields)
    assert batch == r.seal_batch(
        body, **{("count" if k == "record_count" else k): v for k, v in fields.items()}
    )
    r.check_crc(batch)
    info = r.parse_header(b"xyz" + batch, 3)
    assert {name: getattr(info, name) for name in oracle.FIELDS} == oracle.parse_header(batch)
    assert (info.start, info.size_bytes) == (3, len(batch))


@settings(max_examples=300, deadline=None)
@given(RECORDS, st.booleans(), st.booleans(), st.data())
def test_check_agrees_with_the_oracle(rows, strict, keys, data):
    """Gaps, swapped offsets and changed bytes get the same verdict as from the oracle."""
    step = data.draw(st.sampled_from([1, 1, 2]))
    rows = [(i * step, *row) for i, row in enumerate(rows)]
    header = dict(
        base_offset=0,
        leader_epoch=-1,
        attributes=data.draw(st.sampled_from([0, 0, 0, 32])),
        last_offset_delta=len(rows) * step - step + data.draw(st.sampled_from([0, 0, 0, -1, 1])),
        base_timestamp=rows[0][1] if rows else -1,
        max_timestamp=-1,
        producer_id=data.draw(st.sampled_from([-1, 5])),
        producer_epoch=0,
        base_sequence=data.draw(st.sampled_from([-1, 0])),
        record_count=len(rows)
        + data.draw(st.sampled_from([0, 0, 0, -1, 1, 2**31 - 1 - len(rows)])),
    )
    body = bytearray(oracle.encode_body(rows, base_timestamp=header["base_timestamp"]))
    if body and data.draw(st.booleans()):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    if header["record_count"] < 0:
        header["record_count"] = -5
    info = r.parse_header(oracle.encode_batch(bytes(body), **header))
    expected = oracle.check_body(bytes(body), header, strict=strict, require_keys=keys)
    try:
        found = r.check_records(body, info, strict=strict, require_keys=keys)
    except r.CorruptRecords as error:
        found = error.kind
        assert 0 <= error.position <= len(body)
    # With both a missing key and later damage, the first one is reported.
    assert found == expected or (found == "missing key" and keys and expected == "invalid")


def test_values_alone():
    batch = r.encode_batch([b"a", b"", b"b" * 300], base_timestamp=NOW)
    info = r.parse_header(batch)
    assert (info.base_timestamp, info.max_timestamp, info.record_count) == (NOW, NOW, 3)
    records = r.decode_records(batch[61:], count=3, base_offset=10, base_timestamp=NOW)
    assert [as_tuple(x) for x in records] == [
        (10, NOW, None, b"a", ()),
        (11, NOW, None, b"", ()),
        (12, NOW, None, b"b" * 300, ()),
    ]
    body, *_ = r.encode_records([b"x"])
    assert r.decode_records(body, count=1, base_timestamp=-1)[0].timestamp == -1


def test_check_gives_the_first_record_with_the_largest_timestamp():
    assert check(batch_of(4)) == (4, NOW + 9, 1)
    negative = r.encode_batch([r.Record(b"", timestamp=-7), r.Record(b"", timestamp=-9)])
    assert check(negative) == (2, -7, 0)


def test_offsets_kept_with_gaps_are_for_replicas_only():
    records = [r.Record(b"x", timestamp=NOW, offset=offset) for offset in (12, 15)]
    batch = r.encode_batch(records, base_offset=10, keep_offsets=True, last_offset_delta=9)
    assert [x.offset for x in r.decode_records(batch[61:], count=2, base_offset=10)] == [12, 15]
    assert check(batch, strict=False) == (2, NOW, 2)
    with pytest.raises(r.CorruptRecords, match="last offset delta"):
        check(batch)
    contiguous = changed(batch, 23, (1).to_bytes(4, "big"))
    with pytest.raises(r.CorruptRecords, match="out of order"):
        check(contiguous)
    for wrong in ((9, 11), (11, 11), (12, 11), (10, 10 + 2**31)):
        with pytest.raises(ValueError, match="does not follow"):
            r.encode_batch(
                [r.Record(b"", offset=offset) for offset in wrong],
                base_offset=10,
                keep_offsets=True,
            )


@pytest.mark.parametrize("deltas", [(1, 1), (0, 0), (1, 0), (0, 2), (-1, 0), (0, -1), (1, 1, 2)])
@pytest.mark.parametrize("strict", [True, False])
def test_offsets_that_repeat_skip_or_go_back(deltas, strict):
    """Where possible within the last offset delta, so that only their order is wrong."""
    body = oracle.encode_body([(delta, 0, b"k", b"v", ()) for delta in deltas])
    count = len(deltas)
    batch = r.seal_batch(
        body, count=count, last_offset_delta=count - 1, base_timestamp=0, max_timestamp=0
    )
    with pytest.raises(r.CorruptRecords, match="out of order"):
        check(batch, strict=strict)


def test_an_emptied_batch_is_for_replicas_only():
    batch = r.encode_batch([], base_offset=5, last_offset_delta=3, attributes=0x10)
    assert len(batch) == 61
    assert check(batch, strict=False) == (0, -1, -1)
    with pytest.raises(r.CorruptRecords, match="count"):
        check(batch)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (dict(attributes=0x20), "control"),
        (dict(producer_id=4), "sequence"),
        (dict(last_offset_delta=3), "last offset delta"),
        (dict(last_offset_delta=1), "last offset delta"),
    ],
)
def test_rules_for_producers(options, reason):
    with pytest.raises(r.CorruptRecords, match=reason) as caught:
        check(batch_of(3, **options))
    assert caught.value.kind == "invalid"


def test_a_missing_key_is_its_own_kind():
    batch = r.encode_batch([r.Record(b"v", b"k"), r.Record(b"v"), r.Record(None, b"")])
    assert check(batch)[0] == 3
    with pytest.raises(r.CorruptRecords, match="without a key") as caught:
        check(batch, require_keys=True)
    assert caught.value.kind == "missing key"
    assert caught.value.position == 9


def test_stamp_leaves_the_crc_true_and_append_time_makes_it_anew():
    batch = bytearray(b"--" + batch_of(3, leader_epoch=-1))
    before = r.parse_header(batch, 2)
    r.stamp(batch, 123_456_789_012, 7, offset=2)
    r.check_crc(batch, 2)
    info = r.parse_header(batch, 2)
    assert (info.base_offset, info.leader_epoch) == (123_456_789_012, 7)
    assert (info.crc, info.append_time) == (before.crc, False)
    r.stamp(batch, 5, 8, offset=2, append_time=NOW + 99)
    r.check_crc(batch, 2)
    info = r.parse_header(batch, 2)
    assert (info.base_offset, info.max_timestamp, info.append_time) == (5, NOW + 99, True)
    assert info.crc != before.crc
    assert batch[2 + 61 :] == batch_of(3)[61:]
    with pytest.raises(BufferError):
        r.stamp(bytes(batch), 0, 0)


def test_one_changed_byte_fails_the_crc_and_nothing_else_is_covered():
    batch = batch_of(2)
    for at in range(len(batch)):
        damaged = bytearray(batch)
        damaged[at] ^= 0x40
        if at < 8 or 12 <= at < 16:
            r.check_crc(damaged)
        else:
            with pytest.raises(r.CorruptRecords):
                r.check_crc(damaged)


def test_headers_that_are_not_utf8_come_back_as_they_were():
    body = oracle.encode_body(
        [(0, 0, None, None, ((b"\xff\xfe".decode("utf-8", "surrogateescape"), b"x"),))]
    )
    records = r.decode_records(body, count=1)
    assert r.encode_records(records)[0] == body


def test_records_compare_hash_and_print():
    one = r.Record(b"v", b"k", timestamp=5, headers=[("h", None)], offset=9)
    assert one == r.Record(b"v", b"k", timestamp=5, headers=(("h", None),), offset=9)
    assert one != r.Record(b"v", b"k", timestamp=6, headers=(("h", None),), offset=9)
    assert one != "text" and len({one, one}) == 1
    assert repr(one) == "Record(b'v', b'k', timestamp=5, headers=(('h', None),), offset=9)"
    with pytest.raises(AttributeError):
        one.value = b""


def test_what_is_no_record_is_refused():
    for wrong in ("text", 5, None, (b"k", b"v")):
        with pytest.raises(TypeError):
            r.encode_batch([wrong])
    for headers in ([("h", "text")], [(b"h", b"v")], [("h", bytearray())]):
        with pytest.raises(TypeError):
            r.Record(b"", headers=headers)
    with pytest.raises(ValueError, match="seal_batch"):
        r.encode_batch([b""], attributes=1)
    with pytest.raises(ValueError, match="outside"):
        r.parse_header(b"", 1)
