"""Columns equal the records: cext.record.columns compared with decode_batches, for all codecs and
magics.

Damage leaves the columns as they were and gives CorruptRecords; Arrow's reader sees the same table.
"""

import random
import threading
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.cext.record.columns import ColumnsBuilder
from barnabas.cext.record.records import CorruptRecords, Record, decode_records
from barnabas.wire import batches, compression
from barnabas.wire.columns import add_columns, read_columns

SIZE_MAX = 1 << 20
DATA = st.one_of(st.none(), st.binary(max_size=40))
HEADERS = st.lists(st.tuples(st.text(max_size=5), DATA), max_size=3)
ROWS = st.lists(st.tuples(st.integers(-1, 2**40), DATA, DATA, HEADERS), min_size=1, max_size=11)


def bits(buffer):
    return [byte >> i & 1 for byte in bytes(buffer) for i in range(8)]


def numbers(code, buffer):
    return array(code, bytes(buffer)).tolist()


def cut(data, ends, valid=None):
    data, ends = bytes(data), numbers("i", ends)
    parts = [data[start:end] for start, end in zip(ends, ends[1:], strict=False)]
    if valid is None:
        return parts
    flags = bits(valid)
    return [part if flags[i] else None for i, part in enumerate(parts)]


def rows_of(columns):
    """The table as (offset, timestamp, key, value, headers), read from its buffers only."""
    b = columns.buffers()
    names = cut(b["header_names"], b["header_name_ends"])
    values = cut(b["header_values"], b["header_value_ends"], b["header_value_valid"])
    headers = list(zip(names, values, strict=True))
    ends = numbers("i", b["header_ends"])
    per_row = [tuple(headers[start:end]) for start, end in zip(ends, ends[1:], strict=False)]
    return list(
        zip(
            numbers("q", b["offsets"]),
            numbers("q", b["timestamps"]),
            cut(b["keys"], b["key_ends"], b["key_valid"]),
            cut(b["values"], b["value_ends"], b["value_valid"]),
            per_row,
            strict=True,
        )
    )


def expected(data, offset_min=0):
    return [
        (
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            tuple((name.encode("utf-8", "surrogateescape"), v) for name, v in record.headers),
        )
        for batch in batches.decode_batches(data, size_max=SIZE_MAX)
        if not batch.control
        for record in batch.records
        if record.offset >= offset_min
    ]


def record_set(groups, codec=0, **options):
    """One batch for each group, with consecutive offsets."""
    data, offset = b"", 0
    for group in groups:
        records = [Record(v, k, timestamp=t, headers=tuple(h)) for t, k, v, h in group]
        data += batches.encode_batch(records, base_offset=offset, codec=codec, **options)
        offset += len(records)
    return data


@settings(max_examples=60, deadline=None)
@given(
    st.lists(ROWS, max_size=4),
    st.sampled_from(list(compression.CODECS.values())),
    st.integers(0, 12),
    st.booleans(),
)
def test_columns_agree_with_decoded_records(groups, codec, offset_min, append_time):
    options = {"timestamp_type": 1, "append_time": 77} if append_time else {}
    data = record_set(groups, codec, **options)
    columns = read_columns(data, size_max=SIZE_MAX, offset_min=offset_min)
    rows = rows_of(columns)
    assert rows == expected(data, offset_min)
    assert len(columns) == len(rows)


@pytest.mark.parametrize("append_time", [None, 44])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3], ids=["none", "gzip", "snappy", "lz4"])
def test_old_message_sets_become_columns_too(magic, codec, append_time):
    options = {}
    if append_time is not None:
        if magic == 0:
            return  # magic 0 has no times
        options = {"append_time": append_time, "timestamp_type": 1}
    records = [
        Record(None if i == 3 else b"v%d" % i, b"k" if i % 2 else None, timestamp=-1 - i * -magic)
        for i in range(9)
    ]
    data = batches.encode_batch(records, magic=magic, codec=codec, base_offset=5, **options)
    data += batches.encode_batch([b"after"], magic=2, base_offset=20)
    columns = read_columns(data, size_max=SIZE_MAX, offset_min=7)
    assert rows_of(columns) == expected(data, 7)
    assert len(columns) == 8
    kind = -1 if magic == 0 else int(append_time is not None)
    assert numbers("b", columns.buffers()["timestamp_types"]) == [kind] * 7 + [0]


def test_gaps_in_a_wrapper_of_magic_1_are_kept():
    inner = [Record(b"a", offset=0, timestamp=5), Record(b"b", offset=7, timestamp=6)]
    content = batches.encode_batch(inner, magic=1, keep_offsets=True)
    builder = ColumnsBuilder()
    builder.only(0, 100)
    builder.add_wrapped(content, magic=1, offset=57)
    assert [row[0] for row in rows_of(builder.finish())] == [50, 57]


def test_offsets_behind_the_end_are_left_out():
    data = record_set([[(1, None, b"%d" % i, []) for i in range(5)]] * 3)
    builder = ColumnsBuilder(partition=7)
    builder.only(3, 8)
    at = builder.add(data)
    assert (builder.stop, at) == ("past", len(data) // 3 * 2)
    columns = builder.finish()
    assert [row[0] for row in rows_of(columns)] == [3, 4, 5, 6, 7]
    assert numbers("i", columns.buffers()["partitions"]) == [7] * 5


def test_full_columns_stop_between_batches():
    data = record_set([[(1, None, b"v" * 100, [])] * 10] * 8)
    builder = ColumnsBuilder()
    builder.only(0, 1000, bytes_max=2000)
    at, found = builder.add(data), []
    while builder.stop == "full":
        found.append(builder.finish())
        at = builder.add(data, at)
    found.append(builder.finish())
    assert at == len(data)
    assert [len(columns) for columns in found] == [20] * 4
    assert sum((rows_of(columns) for columns in found), []) == expected(data)


def transactions(steps):
    """Batches of (producer id, "data" | "commit" | "abort"), the set and its aborted list."""
    data, offset, began, aborted = b"", 0, {}, []
    for producer, step in steps:
        options = {"producer_id": producer, "producer_epoch": 0, "transactional": True}
        if step == "data":
            began.setdefault(producer, offset)
            data += batches.encode_batch(
                [b"%d" % producer] * 2, base_offset=offset, base_sequence=0, **options
            )
            offset += 2
            continue
        key = b"\0\0\0\1" if step == "commit" else b"\0\0\0\0"
        marker = [Record(b"\0\0\0\0\0\0", key)]
        data += batches.encode_batch(marker, base_offset=offset, control=True, **options)
        if producer in began and step == "abort":
            aborted.append((producer, began[producer], offset))
        began.pop(producer, None)
        offset += 1
    return data, aborted, offset


def visible(data, aborted):
    """The records that a reader of committed records gets, computed in a simple way."""
    return [
        record.offset
        for batch in batches.decode_batches(data, size_max=SIZE_MAX)
        if not batch.control
        for record in batch.records
        if not any(
            pid == batch.producer_id and first <= record.offset <= last
            for pid, first, last in aborted
        )
    ]


STEPS = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(["data", "data", "commit", "abort"])), max_size=25
)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.booleans(), st.data())
def test_aborted_records_are_left_out(steps, ends_known, draw):
    data, aborted, end = transactions(steps)
    start = draw.draw(st.integers(0, end))
    told = [(p, f, last if ends_known else None) for p, f, last in aborted if last >= start]
    builder = ColumnsBuilder()
    builder.only(start, 1 << 40)
    builder.without_aborted(told)
    builder.add(data)
    found = [row[0] for row in rows_of(builder.finish())]
    assert found == [offset for offset in visible(data, aborted) if offset >= start]


def test_control_batches_hold_no_records():
    data = batches.encode_batch([b"marker"], control=True, transactional=True)
    data += batches.encode_batch([b"value"], base_offset=1)
    assert [row[3] for row in rows_of(read_columns(data, size_max=SIZE_MAX))] == [b"value"]
    builder = ColumnsBuilder()
    builder.add_batches(data, control=True)
    assert len(builder) == 2


def test_a_cut_off_tail_is_left_for_the_next_answer():
    whole = record_set([[(1, b"k", b"v", [])]])
    data = whole + whole[:-1]
    columns = read_columns(data, size_max=SIZE_MAX, partial_tail=True)
    assert len(columns) == 1
    with pytest.raises(CorruptRecords):
        read_columns(data, size_max=SIZE_MAX)


def test_damage_at_every_byte_leaves_the_columns_as_they_were():
    good = record_set([[(1, b"k", b"v", [("h", b"x")]), (2, None, None, [])]])
    builder = ColumnsBuilder()
    builder.add_batches(good)
    before = rows_of_builder(good)
    for at in range(61, len(good)):  # the body, which add_body reads without a CRC
        for value in (0xFF, good[at] ^ 1):
            body = good[61:at] + bytes([value]) + good[at + 1 :]
            try:
                builder.add_body(body, count=2, base_offset=0, base_timestamp=0)
            except CorruptRecords:
                continue
            builder = ColumnsBuilder()
            builder.add_batches(good)
    assert rows_of(builder.finish()) == before
    for at in range(1, len(good)):
        with pytest.raises(CorruptRecords):
            add_columns(ColumnsBuilder(), good[:at])


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("offset", [2**63 - 2**31, 2**63 - 2, 2**63 - 1])
def test_an_offset_that_no_log_has_is_damage(magic, offset):
    """A fuzzer found that the walk stopped at 2^63 - 1, as if it were behind the wanted records."""
    data = batches.encode_batch([b"value"], magic=magic, base_offset=offset)
    with pytest.raises(CorruptRecords, match=r"the offset is too large \(at byte 0\)"):
        read_columns(data, size_max=SIZE_MAX)
    data = batches.encode_batch([b"value"], magic=magic, base_offset=2**63 - 2**31 - 1)
    assert [row[0] for row in rows_of(read_columns(data, size_max=SIZE_MAX))] == [2**63 - 2**31 - 1]


NOW = 1_700_000_000_000


def plain(size, at=NOW):
    return (at, None, random.Random(at + size).randbytes(size), [])


def alike(size, count, step):
    """Records of one length, whose deltas grow beyond one byte."""
    return [plain(size, NOW + step * i) for i in range(count)]


# Runs of records with only a value, which are read fast, and records that interrupt a run.
RUNS = st.lists(
    st.one_of(
        st.builds(
            alike,
            st.sampled_from([0, 1, 20, 60, 61, 100, 600, 8200]),
            st.integers(2, 70),
            st.sampled_from([0, 1, 40, -40, 9000]),
        ),
        st.builds(plain, st.sampled_from([0, 1, 13, 14, 15, 30, 60, 61, 8200])).map(lambda r: [r]),
        st.builds(plain, st.integers(0, 70), st.integers(-1, 2**41)).map(lambda r: [r]),
        st.tuples(st.integers(NOW, NOW + 9), DATA, DATA, HEADERS).map(lambda r: [r]),
    ),
    min_size=1,
    max_size=12,
).map(lambda runs: [record for run in runs for record in run])


@settings(max_examples=150, deadline=None)
@given(
    st.lists(RUNS, min_size=1, max_size=3), st.integers(0, 50), st.integers(0, 300), st.booleans()
)
def test_runs_of_plain_records_and_what_interrupts_them(groups, start, count, append_time):
    options = {"timestamp_type": 1, "append_time": NOW} if append_time else {}
    data = record_set(groups, **options)
    builder = ColumnsBuilder()
    builder.only(start, start + count)
    builder.add(data)
    assert rows_of(builder.finish()) == [r for r in expected(data, start) if r[0] < start + count]


@pytest.mark.parametrize("options", [{}, {"timestamp_type": 1, "append_time": NOW + 77}])
@pytest.mark.parametrize("size", [0, 20, 61, 100, 600])
@pytest.mark.parametrize("step", [0, 1, 40, -40, 9000])
def test_long_runs_of_one_length(size, step, options):
    data = record_set([alike(size, 300, step), alike(size + 1, 80, 1)], **options)
    everything = expected(data)
    assert len(everything) == 380 and rows_of_builder(data) == everything
    builder = ColumnsBuilder()
    builder.only(30, 270)
    builder.add(data)
    assert rows_of(builder.finish()) == everything[30:270]


def add_body_as_decoded(body, count):
    """Checks for the same rows, or the same position of the error and no rows."""
    builder = ColumnsBuilder()
    try:
        wanted = decode_records(body, count=count)
    except CorruptRecords as error:
        with pytest.raises(CorruptRecords) as raised:
            builder.add_body(body, count=count, base_offset=0, base_timestamp=NOW)
        assert raised.value.position == error.position
        assert rows_of(builder.finish()) == []
        return
    builder.add_body(body, count=count, base_offset=0, base_timestamp=NOW)
    found = [row[:4] for row in rows_of(builder.finish())]
    assert found == [(r.offset, NOW + r.timestamp, r.key, r.value) for r in wanted if r.offset >= 0]


@pytest.mark.parametrize(
    "group",
    [
        [plain(size, NOW + 300 * size) for size in (3, 0, 16, 70, 5, 31, 12)],
        alike(20, 9, 20),
        alike(70, 5, 1),
    ],
    ids=["of several lengths", "of one length", "of one greater length"],
)
def test_damage_in_a_run_of_plain_records_is_what_the_decoder_says_it_is(group):
    body = record_set([group])[61:]
    for at in range(len(body)):
        add_body_as_decoded(body[:at], len(group))
        for value in {body[at] ^ 1, body[at] ^ 2, body[at] ^ 0x80, 0, 1, 2, 0xFF}:
            add_body_as_decoded(body[:at] + bytes([value]) + body[at + 1 :], len(group))


def test_records_of_one_length_that_takes_three_bytes():
    """And of one offset, which the decoder does not check."""
    record = b"\xe8\x81\x01" + b"\0\0\x02\x01" + b"\xd8\x81\x01" + bytes(8300) + b"\0"
    add_body_as_decoded(record * 4, 4)


def rows_of_builder(data):
    builder = ColumnsBuilder()
    builder.add_batches(data)
    return rows_of(builder.finish())


def test_an_announced_count_takes_no_memory():
    builder = ColumnsBuilder()
    with pytest.raises(CorruptRecords):
        builder.add_body(bytes(50), count=2**31 - 1, base_offset=0, base_timestamp=0)
    assert len(builder) == 0


def test_damage_in_a_compressed_batch_says_where_it_is():
    good = record_set([[(1, b"k", b"v", [])]])
    damaged = bytearray(record_set([[(1, b"k", b"v" * 50, [])]], compression.GZIP))
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecords) as raised:
        read_columns(good + bytes(damaged), size_max=SIZE_MAX)
    assert raised.value.position == len(good)


def test_finish_gives_the_builder_back_empty():
    builder = ColumnsBuilder()
    data = record_set([[(1, b"k", b"v", [])]])
    builder.add_batches(data)
    first = builder.finish()
    builder.add_batches(data + data)
    assert len(first) == 1
    assert len(builder.finish()) == 2
    assert rows_of(builder.finish()) == []


def test_buffers_outlive_their_table():
    view = memoryview(
        read_columns(record_set([[(1, b"k", b"v", [])]]), size_max=9).buffers()["values"]
    )
    assert bytes(view) == b"v"
    assert view.readonly


def test_two_threads_cannot_corrupt_one_builder():
    data = record_set([[(1, b"k", b"v" * 100, [])] * 400]) * 50
    builder, failures = ColumnsBuilder(), []

    def add():
        for _ in range(20):
            try:
                builder.add_batches(data)
            except RuntimeError as error:
                failures.append(error)

    threads = [threading.Thread(target=add) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(builder) == (60 - len(failures)) * 20_000


def test_arrow_reads_the_same_table():
    pyarrow = pytest.importorskip("pyarrow")
    rows = [
        (i - 1, b"k" if i % 3 else None, None if i % 5 == 0 else b"v" * i, [("h", None)] * (i % 3))
        for i in range(40)
    ]
    data = record_set([rows, rows[:7]])
    columns = read_columns(data, size_max=SIZE_MAX)
    wanted = rows_of(columns)
    table = pyarrow.record_batch(columns)
    del columns
    table.validate(full=True)
    assert wanted == expected(data)
    assert wanted == [
        (
            row["offset"],
            -1 if row["timestamp"] is None else round(row["timestamp"].timestamp() * 1000),
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row in table.to_pylist()
    ]
    assert table["key"].null_count == sum(row[2] is None for row in wanted)
    child = table["value"]
    del table
    assert child.to_pylist() == [row[3] for row in wanted]
    assert pyarrow.record_batch(read_columns(b"", size_max=1)).num_rows == 0
