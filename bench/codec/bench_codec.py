"""The codec beside Python's own clients and packages, called from Python as they are.

    pytest bench/codec/bench_codec.py --benchmark-enable

Each group is one piece of work; every competitor first shows that it does the same work.
"""

import bisect
import functools
import random
import struct
from array import array

import crc32c as crc_package
import pytest
from aiokafka.protocol.metadata import MetadataResponse_v5 as AioMetadata
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from aiokafka.record.util import decode_varint_cython
from kafka.protocol.metadata import MetadataResponse as PyMetadata
from kafka.record.default_records import DefaultRecordBatch as PyBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as PyBuilder
from kafka.record.util import decode_varint as py_decode_varint

from barnabas.cext.crc import crc32c
from barnabas.cext.index import OffsetIndex
from barnabas.cext.records import (
    Record,
    check_crc,
    decode_records,
    encode_batch,
    parse_header,
)
from barnabas.cext.varint import decode_varint, encode_varint
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


@pytest.mark.benchmark(group="1,000 random searches of 1,000,000 index entries")
@pytest.mark.parametrize("by", ["barnabas", "barnabas, one a call", "bisect of array"])
def test_index(benchmark, by):
    offsets = array("q", range(10, 10 * ENTRIES + 10, 10))
    data = b"".join(struct.pack(">ii", offset, offset * 4) for offset in offsets)
    index = OffsetIndex(data, entries=ENTRIES)
    targets = array("q", random.Random(2).choices(range(10, 10 * ENTRIES), k=1000))
    function = {
        "barnabas": lambda: list(index.lookup_many(targets)),
        "barnabas, one a call": lambda: [index.lookup(one)[0] // 10 - 1 for one in targets],
        "bisect of array": lambda: [bisect.bisect_right(offsets, one) - 1 for one in targets],
    }[by]
    assert benchmark(function) == [bisect.bisect_right(offsets, one) - 1 for one in targets]
    index.close()


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
