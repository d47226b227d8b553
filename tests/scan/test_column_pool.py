"""The memory of freed columns is used again, within limits, and its former contents are never
visible."""

import random
import threading

import pytest

from barnabas.cext.record.column_pool import column_pool_bytes
from barnabas.cext.record.columns import ColumnsBuilder
from barnabas.cext.record.records import Record
from barnabas.wire.batches import encode_batch

pyarrow = pytest.importorskip("pyarrow")
MIB = 1 << 20
KEPT_BYTES_MAX = 1 << 30


def roomy(data=b"", *, data_bytes=MIB):
    builder = ColumnsBuilder()
    builder.expect(min(data_bytes // 64, 20_000), 0, data_bytes)
    if data:
        builder.add_batches(data)
    return builder.finish()


@pytest.fixture(autouse=True)
def nothing_kept():
    """Frees columns, which displace the memory that earlier tests left."""
    roomy(data_bytes=KEPT_BYTES_MAX - 700_000)
    taken = roomy(data_bytes=KEPT_BYTES_MAX - 700_000)
    assert column_pool_bytes() == 0
    yield
    del taken


def records(seed):
    draw = random.Random(seed)
    return [
        Record(
            draw.choice([None, draw.randbytes(draw.randrange(90))]),
            draw.choice([None, b"k" * draw.randrange(30)]) if seed % 3 else None,
            timestamp=draw.choice([-1, draw.randrange(2**41)]) if seed % 2 else 5,
            headers=[("h", None)] * draw.randrange(3) if seed % 4 else [],
        )
        for _ in range(draw.randrange(1, 2000))
    ]


def test_space_is_used_again():
    first = roomy(encode_batch([b"x" * 100] * 1000))
    assert column_pool_bytes() == 0
    del first
    kept = column_pool_bytes()
    assert MIB <= kept < 3 * MIB
    for _ in range(5):
        again = roomy(encode_batch([b"y" * 90] * 900))
        assert column_pool_bytes() == 0
        assert pyarrow.record_batch(again)["value"].to_pylist() == [b"y" * 90] * 900
        del again
        assert column_pool_bytes() == kept


def test_a_table_is_the_same_in_memory_that_another_one_left():
    for seed in range(40):
        data = encode_batch(records(seed))
        plain = ColumnsBuilder()
        plain.add_batches(data)
        found = roomy(data)
        assert column_pool_bytes() == 0
        wanted = pyarrow.record_batch(plain.finish())
        assert pyarrow.record_batch(found).equals(wanted)
        pyarrow.record_batch(found).validate(full=True)
        del found
        assert column_pool_bytes() > 0


def test_small_tables_neither_leave_memory_nor_take_it():
    small = ColumnsBuilder()
    small.add_batches(encode_batch([b"x"] * 10))
    del small
    assert column_pool_bytes() == 0
    roomy()
    kept = column_pool_bytes()
    assert kept > 0
    tables = [roomy(encode_batch([b"x"]), data_bytes=size) for size in (0, 100, MIB // 4)]
    assert [len(columns) for columns in tables] == [1, 1, 1]
    assert column_pool_bytes() == kept


def test_unused_capacity_is_not_kept():
    for _ in range(3):
        grown = ColumnsBuilder()
        grown.add_batches(encode_batch([b"x" * 1000] * 1000))
        grown.finish()
    assert column_pool_bytes() == 0


def test_what_is_kept_is_bounded_and_the_oldest_goes_first():
    tables = [roomy(data_bytes=(120 + number) * MIB) for number in range(10)]
    kept = []
    while tables:
        tables.pop(0)
        kept.append(column_pool_bytes())
    assert kept[:8] == sorted(kept[:8])
    assert KEPT_BYTES_MAX // 2 < kept[-1] <= max(kept) <= KEPT_BYTES_MAX
    roomy(data_bytes=KEPT_BYTES_MAX)  # its columns together are larger than the limit
    assert column_pool_bytes() == kept[-1]
    roomy()
    before = column_pool_bytes()
    again = roomy()
    assert column_pool_bytes() < before
    del again


def test_threads_get_budgets_of_their_own():
    wrong = []

    def work(seed):
        value = b"%d" % seed * 50
        data = encode_batch([value] * 500)
        for _ in range(200):
            found = pyarrow.record_batch(roomy(data))["value"]
            if found.to_pylist() != [value] * 500:
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert column_pool_bytes() <= 8 * 3 * MIB
