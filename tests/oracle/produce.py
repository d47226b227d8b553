"""Encodes Produce requests and decodes responses with barnabas.wire; and a table of refused
batches.

CASES are the same requests that were sent to Apache Kafka 4.3.1 (raw sockets, one broker, topics as
in TOPICS); `kafka` is its response: (error code, has a message, indexes of record errors).
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.cext.codec.crc import crc32c
from barnabas.cext.record.records import Record, encode_batch, encode_records, seal_batch
from barnabas.wire import compression
from barnabas.wire.headers import decode_response_header, encode_request
from barnabas.wire.messages import request, response

NOW_MS = 1_795_000_000_000

TOPICS = {  # name -> (settings of a Kafka topic, rules of the partition table)
    "plain": ({}, {}),
    "compacted": ({"cleanup.policy": "compact"}, {"requires_keys": True}),
    "appendtime": ({"message.timestamp.type": "LogAppendTime"}, {"append_time": True}),
    "small": ({"max.message.bytes": "1000"}, {"message_bytes_max": 1000}),
    "bounded": (
        {"message.timestamp.before.max.ms": "60000"},
        {"timestamp_before_max_ms": 60000},
    ),
    "isr2": ({"min.insync.replicas": "2"}, {"min_insync_replicas": 2}),
}


def produce_frame(
    parts: list[tuple],
    version: int = 9,
    acks: int = -1,
    timeout_ms: int = 5000,
    transactional_id: str | None = None,
    correlation_id: int = 7,
    framed: bool = False,
) -> bytes:
    """A request from [(topic name or id, partition, records or None), ...]."""
    message = request(0)
    topic_of = message.struct("topicData")
    partition_of = message.struct("topicData.partitionData")
    topics: dict = {}
    for topic, index, records in parts:
        if topic not in topics:
            key = {"topicId": topic} if version >= 13 else {"name": topic}
            topics[topic] = topic_of(partitionData=[], **key)
        topics[topic].partitionData.append(partition_of(index=index, records=records))
    body = message.cls(acks=acks, timeoutMs=timeout_ms, topicData=list(topics.values()))
    if version >= 3:
        body.transactionalId = transactional_id
    return encode_request(0, version, correlation_id, "tests", body, framed)


def produce_answer(frame: bytes, version: int = 9):
    """The ProduceResponse of a frame with its size prefix."""
    assert len(frame) == struct.unpack_from(">i", frame)[0] + 4
    header, at = decode_response_header(frame[4:], 0, version)
    assert header.correlationId == 7
    body = response(0).decode(frame[4:], version, at)
    return body


def partitions_of(answer) -> list:
    return [p for topic in answer.responses for p in topic.partitionResponses]


def patched(batch: bytes, at: int, layout: str, value: int, seal: bool = True) -> bytes:
    """The batch with one header field replaced, and by default with a matching CRC."""
    out = bytearray(batch)
    struct.pack_into(layout, out, at, value)
    if seal:
        struct.pack_into(">I", out, 17, crc32c(bytes(out[21:])))
    return bytes(out)


def compressed(codec: int, records: list, attributes: int = 0) -> bytes:
    body, count, last, base, largest = encode_records(records)
    return seal_batch(
        compression.compress(codec, body),
        count=count,
        last_offset_delta=last,
        base_timestamp=base,
        max_timestamp=largest,
        attributes=codec | attributes,
    )


def record(value: bytes = b"value", key: bytes | None = b"key", timestamp: int = NOW_MS) -> Record:
    return Record(value, key, timestamp=timestamp)


def batch(count: int = 3, **options) -> bytes:
    return encode_batch([record(b"value %d" % i) for i in range(count)], **options)


@dataclass
class Case:
    name: str
    records: Callable[[int], bytes | None]  # relative to the current time
    kafka: tuple[int, bool, list[int]]
    topic: str = "plain"
    version: int = 9
    acks: int = -1
    index: int = 0
    transactional_id: str | None = None
    ours: tuple[int, bool, list[int]] | None = None  # our response where it differs on purpose
    why: str = field(default="")


def _at(now: int, *offsets_ms: int, key: bytes | None = b"k") -> bytes:
    return encode_batch([Record(b"v", key, timestamp=now + ms) for ms in offsets_ms])


DAY = 86_400_000
CASES = [
    Case("whole", lambda now: _at(now, 0, 1), (0, False, [])),
    Case("empty", lambda now: b"", (87, False, [])),
    Case(
        "null", lambda now: None, (87, False, []), ours=(87, False, []), why="Kafka never answers"
    ),
    Case("two batches", lambda now: _at(now, 0) * 2, (87, False, [])),
    Case(
        "a tail of 5 bytes",
        lambda now: _at(now, 0) + b"12345",
        (0, False, []),
        ours=(87, False, []),
        why="Kafka cuts the tail off",
    ),
    Case("cut off", lambda now: _at(now, 0)[:-3], (87, False, [])),
    Case("10 bytes", lambda now: bytes(10), (87, False, [])),
    Case("length too small", lambda now: patched(_at(now, 0), 8, ">i", 20), (2, False, [])),
    Case("length negative", lambda now: patched(_at(now, 0), 8, ">i", -5), (2, True, [])),
    Case("magic 0", lambda now: patched(_at(now, 0), 16, ">b", 0), (87, False, [])),
    Case("magic 1", lambda now: patched(_at(now, 0), 16, ">b", 1), (87, False, [])),
    Case("magic 3", lambda now: patched(_at(now, 0), 16, ">b", 3), (2, True, [])),
    Case("bad crc", lambda now: patched(_at(now, 0), 17, ">I", 1, seal=False), (2, False, [])),
    Case(
        "codec 5",
        lambda now: patched(_at(now, 0), 21, ">h", 5),
        (-1, False, []),
        ours=(76, False, []),
        why="the right word for it",
    ),
    Case(
        "zstd before version 7",
        lambda now: compressed(4, [record(timestamp=now)]),
        (76, False, []),
        version=6,
    ),
    Case(
        "zstd in version 7",
        lambda now: compressed(4, [record(timestamp=now)]),
        (0, False, []),
        version=7,
    ),
    Case("gzip", lambda now: compressed(1, [record(timestamp=now)]), (0, False, [])),
    Case("snappy", lambda now: compressed(2, [record(timestamp=now)]), (0, False, [])),
    Case("lz4", lambda now: compressed(3, [record(timestamp=now)]), (0, False, [])),
    Case(
        "gzip that is not",
        lambda now: patched(_at(now, 0), 21, ">h", 1),
        (-1, False, []),
        ours=(2, False, []),
        why="CORRUPT_MESSAGE says what it is",
    ),
    Case(
        "lz4 that is not",
        lambda now: patched(_at(now, 0), 21, ">h", 3),
        (-1, False, []),
        ours=(2, False, []),
        why="CORRUPT_MESSAGE says what it is",
    ),
    Case("control bit", lambda now: patched(_at(now, 0), 21, ">h", 0x20), (87, False, [])),
    Case("append time bit", lambda now: patched(_at(now, 0), 21, ">h", 0x08), (0, False, [])),
    Case("transactional, no id", lambda now: patched(_at(now, 0), 21, ">h", 0x10), (53, False, [])),
    Case(
        "transactional, not added",
        lambda now: encode_batch(
            [record(timestamp=now)],
            attributes=0x10,
            producer_id=9000,
            producer_epoch=0,
            base_sequence=0,
        ),
        (19, True, []),
        transactional_id="t",
        ours=(48, False, []),
        why="what Kafka says once a coordinator is there",
    ),
    Case(
        "base offset 5", lambda now: patched(_at(now, 0), 0, ">q", 5, seal=False), (87, False, [])
    ),
    Case("count 0", lambda now: patched(_at(now, 0), 57, ">i", 0), (87, False, [])),
    Case(
        "count 2 of 1",
        lambda now: patched(patched(_at(now, 0), 57, ">i", 2), 23, ">i", 1),
        (87, False, []),
    ),
    Case("count beyond delta", lambda now: patched(_at(now, 0), 57, ">i", 2), (87, False, [])),
    Case(
        "producer without sequence", lambda now: patched(_at(now, 0), 43, ">q", 77), (87, False, [])
    ),
    Case(
        "too large",
        lambda now: encode_batch([record(bytes(2000), timestamp=now)]),
        (10, False, []),
        topic="small",
    ),
    Case(
        "too large and bad crc",
        lambda now: patched(
            encode_batch([record(bytes(2000), timestamp=now)]), 17, ">I", 1, seal=False
        ),
        (10, False, []),
        topic="small",
    ),
    Case(
        "no key",
        lambda now: encode_batch(
            [
                record(timestamp=now),
                record(key=None, timestamp=now),
                record(timestamp=now),
                record(key=None, timestamp=now),
            ]
        ),
        (87, True, [1, 3]),
        topic="compacted",
    ),
    Case(
        "no key, version 7",
        lambda now: encode_batch([record(key=None, timestamp=now)]),
        (87, False, []),
        topic="compacted",
        version=7,
    ),
    Case("tomorrow", lambda now: _at(now, 0, DAY, 1, 2 * DAY), (32, True, [1, 3])),
    Case(
        "tomorrow, lz4",
        lambda now: compressed(3, [record(timestamp=now), record(timestamp=now + DAY)]),
        (32, True, [1]),
    ),
    Case("tomorrow by append time", lambda now: _at(now, DAY), (0, False, []), topic="appendtime"),
    Case("yesterday", lambda now: _at(now, -DAY, 0), (32, True, [0]), topic="bounded"),
    Case("yesterday unbounded", lambda now: _at(now, -DAY), (0, False, [])),
    Case(
        "no timestamp",
        lambda now: encode_batch([Record(b"v", b"k", timestamp=-1)]),
        (0, False, []),
        topic="bounded",
    ),
    Case("acks 2", lambda now: _at(now, 0), (21, False, []), acks=2),
    Case("acks -2", lambda now: _at(now, 0), (21, False, []), acks=-2),
    Case("acks 2 and empty", lambda now: b"", (87, False, []), acks=2),
    Case("too few replicas", lambda now: _at(now, 0), (0, False, []), topic="isr2"),
    Case("too few replicas, acks 1", lambda now: _at(now, 0), (0, False, []), topic="isr2", acks=1),
    Case(
        "too few replicas and bad crc",
        lambda now: patched(_at(now, 0), 17, ">I", 1, seal=False),
        (2, False, []),
        topic="isr2",
    ),
    Case("unknown topic", lambda now: _at(now, 0), (3, False, []), topic="nowhere"),
    Case("unknown partition", lambda now: _at(now, 0), (3, False, []), index=9),
    Case("negative partition", lambda now: _at(now, 0), (3, False, []), index=-1),
    Case("unknown topic, empty", lambda now: b"", (3, False, []), topic="nowhere"),
]
