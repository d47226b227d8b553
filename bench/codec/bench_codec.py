"""The codec beside Python's own clients and packages, called from Python as they are.

    python bench/codec --out DIR                            a table and codec.json
    pytest bench/codec/bench_codec.py --benchmark-enable    pytest-benchmark's own tables

Each group is one piece of work; every competitor first shows that it does the same work.
"""

import bisect
import functools
import random
import struct
from array import array

import crc32c as crc_package
import numpy
import pyarrow
import pytest
from aiokafka.protocol.metadata import MetadataResponse_v5 as AioMetadata
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from aiokafka.record.util import decode_varint_cython
from kafka.protocol.metadata import MetadataResponse as PyMetadata
from kafka.record.default_records import DefaultRecordBatch as PyBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as PyBuilder
from kafka.record.util import decode_varint as py_decode_varint

from barnabas.cext.codec.crc import crc32c
from barnabas.cext.codec.varint import decode_varint, encode_varint
from barnabas.cext.log.index import OffsetIndex
from barnabas.cext.record.columns import ColumnsBuilder
from barnabas.cext.record.records import (
    Record,
    check_crc,
    decode_records,
    encode_batch,
    parse_header,
)
from barnabas.wire import by_name

RECORDS = [bytes([97 + i % 26]) * 100 for i in range(595)]
BATCH = encode_batch([Record(offset=i, timestamp=0, value=v) for i, v in enumerate(RECORDS)])
BATCH_HEADER = 61
ENTRIES = 1_000_000
VARINT = encode_varint(123_456_789)


@pytest.mark.benchmark(group="varint of 5 bytes, decoded")
@pytest.mark.parametrize("by", ["barnabas", "aiokafka", "kafka-python"])
def test_varint(benchmark, by):
    function = {
        "barnabas": decode_varint,
        "aiokafka": decode_varint_cython,
        "kafka-python": py_decode_varint,
    }[by]
    assert benchmark(function, VARINT, 0)[0] == 123_456_789


@pytest.mark.parametrize("by", ["barnabas", "crc32c package"])
@pytest.mark.parametrize("size", [100, 65536, 1 << 20])
def test_crc(benchmark, by, size):
    benchmark.group = f"CRC-32C of {size} bytes"
    data = random.Random(1).randbytes(size)
    function = {"barnabas": crc32c, "crc32c package": crc_package.crc32c}[by]
    assert benchmark(function, data) == crc_package.crc32c(data)


def decoded_here(data):
    check_crc(data)
    count = parse_header(data).record_count
    return [row.value for row in decode_records(data[BATCH_HEADER:], count=count)]


def decoded_by(batch_class, data):
    batch = batch_class(data)
    assert batch.validate_crc()
    return [row.value for row in batch]


@pytest.mark.benchmark(group="batch of 595 records of 100 bytes, decoded with CRC")
@pytest.mark.parametrize("by", ["barnabas", "aiokafka", "kafka-python"])
def test_decode(benchmark, by):
    function = {
        "barnabas": decoded_here,
        "aiokafka": functools.partial(decoded_by, AioBatch),
        "kafka-python": functools.partial(decoded_by, PyBatch),
    }[by]
    assert benchmark(function, BATCH) == RECORDS


def columns_here(data):
    builder = ColumnsBuilder()
    builder.add_batches(data)
    return pyarrow.record_batch(builder.finish())


def columns_by(batch_class, data):
    """The same columns by way of the records, as a user of the package would make them."""
    batch = batch_class(data)
    assert batch.validate_crc()
    rows = [(row.offset, row.timestamp, row.key, row.value) for row in batch]
    offsets, timestamps, keys, values = zip(*rows, strict=True)
    return pyarrow.record_batch(
        {
            "offset": pyarrow.array(offsets, pyarrow.int64()),
            "timestamp": pyarrow.array(timestamps, pyarrow.int64()),
            "key": pyarrow.array(keys, pyarrow.binary()),
            "value": pyarrow.array(values, pyarrow.binary()),
        }
    )


@pytest.mark.benchmark(group="batch of 595 records of 100 bytes, to Arrow columns with CRC")
@pytest.mark.parametrize("by", ["barnabas", "aiokafka", "kafka-python"])
def test_columns(benchmark, by):
    function = {
        "barnabas": columns_here,
        "aiokafka": functools.partial(columns_by, AioBatch),
        "kafka-python": functools.partial(columns_by, PyBatch),
    }[by]
    found = benchmark(function, BATCH)
    assert found["value"].to_pylist() == RECORDS
    assert found["offset"].to_pylist() == list(range(len(RECORDS)))


def walked_by(batch_class, data):
    """Every record is made and let go: the least that the package can do."""
    batch = batch_class(data)
    assert batch.validate_crc()
    return sum(1 for _ in batch)


def walked_here(data):
    builder = ColumnsBuilder()
    builder.add_batches(data)
    return len(builder.finish())


@pytest.mark.benchmark(group="batch of 595 records of 100 bytes, every record looked at, with CRC")
@pytest.mark.parametrize("by", ["barnabas", "aiokafka", "kafka-python"])
def test_walk(benchmark, by):
    function = {
        "barnabas": walked_here,
        "aiokafka": functools.partial(walked_by, AioBatch),
        "kafka-python": functools.partial(walked_by, PyBatch),
    }[by]
    assert benchmark(function, BATCH) == len(RECORDS)


def encoded_by(builder_class, values):
    builder = builder_class(2, 0, 0, -1, -1, -1, 1 << 20)
    for offset, value in enumerate(values):
        builder.append(offset, 0, None, value, [])
    return bytes(builder.build())


@pytest.mark.benchmark(group="batch of 595 records of 100 bytes, encoded with CRC")
@pytest.mark.parametrize("by", ["barnabas", "aiokafka", "kafka-python"])
def test_encode(benchmark, by):
    function = {
        "barnabas": encode_batch,
        "aiokafka": functools.partial(encoded_by, AioBuilder),
        "kafka-python": functools.partial(encoded_by, PyBuilder),
    }[by]
    assert decoded_here(benchmark(function, RECORDS)) == RECORDS


@functools.cache
def index_of_a_million():
    offsets = array("q", range(10, 10 * ENTRIES + 10, 10))
    data = b"".join(struct.pack(">ii", offset, offset * 4) for offset in offsets)
    return offsets, numpy.frombuffer(offsets, dtype=numpy.int64), OffsetIndex(data, entries=ENTRIES)


# A thousand places stay in the processor's cache from round to round, a hundred thousand do not.
@pytest.mark.parametrize("count", [1_000, 100_000])
@pytest.mark.parametrize("by", ["barnabas", "barnabas, one a call", "bisect of array", "numpy"])
def test_index(benchmark, by, count):
    benchmark.group = f"{count:,} random searches of 1,000,000 index entries"
    offsets, as_numpy, index = index_of_a_million()
    targets = array("q", random.Random(2).choices(range(10, 10 * ENTRIES), k=count))
    wanted = [bisect.bisect_right(offsets, one) - 1 for one in targets]
    function = {
        "barnabas": lambda: index.lookup_many(targets),
        "barnabas, one a call": lambda: [index.lookup(one) for one in targets],
        "bisect of array": lambda: [bisect.bisect_right(offsets, one) - 1 for one in targets],
        "numpy": lambda: numpy.searchsorted(as_numpy, targets, side="right") - 1,
    }[by]
    found = benchmark(function)
    if by == "barnabas, one a call":
        found = [offset // 10 - 1 for offset, _position in found]
    assert list(found) == wanted


def metadata_bytes():
    """Metadata 5 of 100 topics with 3 partitions, by aiokafka."""
    brokers = [(i, f"host{i}", 9092, None) for i in range(3)]
    parts = [(0, i, i, [0, 1, 2], [0, 1, 2], []) for i in range(3)]
    topics = [(0, f"topic-{i}", False, parts) for i in range(100)]
    return AioMetadata(0, brokers, "cluster", 0, topics).encode()


@pytest.mark.parametrize("by", ["barnabas", "aiokafka", "kafka-python"])
@pytest.mark.parametrize("way", ["decoded", "encoded"])
def test_message(benchmark, by, way):
    benchmark.group = f"Metadata 5 of 300 partitions, {way}"
    data, message = metadata_bytes(), by_name("MetadataResponse")
    decode, encode = {
        "barnabas": (lambda: message.decode(data, 5), lambda value: message.encode(value, 5)),
        "aiokafka": (lambda: AioMetadata.decode(data), lambda value: value.encode()),
        "kafka-python": (
            lambda: PyMetadata.decode(data, version=5),
            lambda value: value.encode(),
        ),
    }[by]
    value = decode()
    assert len(value.topics) == 100
    if way == "decoded":
        benchmark(decode)
    else:
        assert bytes(benchmark(encode, value)) == data
