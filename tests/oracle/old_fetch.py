"""Apache Kafka 3.9.2's responses to Fetch 0 to 3, in a form that can be compared with ours.

    python tests/oracle/old_fetch.py HOST:PORT > tests/vectors/fetch-old-kafka-3.9.2.json

TOPICS holds batches that producers of today write; a number in place of a batch is the marker that
commits (1) or aborts (0) the transaction before it. Each topic is fetched in each old version from
each offset, and with sizes that end inside its batches. A response is its error, its high
watermark and its whole messages; Kafka's has a fragment of one more behind them.
tests/native/test_fetch_old.py asks the native handler the same.
"""

import json
import struct
import sys
import time
from collections.abc import Iterator
from typing import Any

from barnabas.cext.record.records import Record
from barnabas.wire import compression, request
from barnabas.wire.batches import decode_batches, encode_batch

T = 1_700_000_000_000
VERSIONS = (0, 1, 2, 3)
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
COMMIT, ABORT = 1, 0
WHOLE = 1 << 20


def _records(first: int, count: int) -> list[Record]:
    rows = [
        Record(b"value %d" % i, b"key %d" % i, timestamp=T + 10 * i, headers=[("h", b"x")])
        for i in range(first, first + count)
    ]
    rows[0] = Record(None, None, timestamp=T + 10 * first + 500)
    rows[-1] = Record(b"", b"", timestamp=T + 10 * first, headers=[("only", None)])
    return rows


def _batch(first: int, count: int = 4, **options: Any) -> bytes:
    return encode_batch(_records(first, count), **options)


def _small(first: int, count: int, codec: int = 0) -> bytes:
    rows = [Record(b"%d" % (i % 10), timestamp=T + i) for i in range(first, first + count)]
    return encode_batch(rows, codec=codec)


IN_TXN = {"producer_id": 1, "producer_epoch": 0, "transactional": True}
TOPICS: dict[str, list[bytes | int]] = {
    "codecs": [_batch(0), *(_batch(4 * c, codec=c) for c in (GZIP, SNAPPY, LZ4)), _batch(16)],
    "idempotent": [_batch(0, producer_id=9, producer_epoch=0, base_sequence=0), _batch(4)],
    "small": [_small(0, 20), _small(20, 20), _small(40, 20)],
    "small gzip": [_small(0, 20, GZIP), _small(20, 20, GZIP), _small(40, 20)],
    "append time": [_batch(0), _batch(4, codec=GZIP)],
    "zstd": [_batch(0), _batch(4, codec=ZSTD), _batch(8)],
    "committed": [_batch(0, **IN_TXN, base_sequence=0), COMMIT, _batch(4)],
    "aborted": [
        _batch(0, **IN_TXN, base_sequence=0),
        ABORT,
        _batch(4, **IN_TXN, base_sequence=4, codec=LZ4),
        COMMIT,
        _batch(8),
    ],
    "topic of zstd": [_batch(0)],
    "without conversion": [_batch(0)],
}
SETTINGS = {
    "append time": {"message.timestamp.type": "LogAppendTime"},
    "topic of zstd": {"compression.type": "zstd"},
    "without conversion": {"message.downconversion.enable": "false"},
}


def count_of(batch: bytes | int) -> int:
    return 1 if isinstance(batch, int) else next(decode_batches(batch, size_max=WHOLE)).count


def steps() -> Iterator[tuple[str, int, int, int]]:
    """(topic, version, offset, size)"""
    for topic, batches in TOPICS.items():
        end = sum(count_of(batch) for batch in batches)
        offsets = range(end + 1) if end < 20 else (0, 1, 7, 19, 20, 21, 39, 40, 45, 59)
        sizes = [len(batch) for batch in batches if not isinstance(batch, int)]
        for version in VERSIONS:
            for offset in offsets[:: 1 if version in (0, 2) else 6]:
                yield topic, version, offset, WHOLE
            for size in (1, sizes[0] - 1, sizes[0], sizes[0] + 1, sum(sizes[:2]), sum(sizes)):
                yield topic, version, 0, size


def form(part: Any) -> dict[str, Any]:
    """The answer of a partition. Behind a control batch Kafka 3.9.2 sends the first batch twice:
    messages that go back are left out."""
    messages: list[list[Any]] = []
    for entry in entries(bytes(part.records or b"")):
        found = entry_of(entry)
        if not messages or found[2] > messages[-1][2]:
            messages.append(found)
    return {
        "error": part.errorCode,
        "high_watermark": part.highWatermark,
        "messages": messages,
    }


def entries(data: bytes) -> Iterator[bytes]:
    at = 0
    while len(data) - at >= 12:
        size = 12 + struct.unpack_from(">i", data, at + 8)[0]
        if size > len(data) - at:
            return
        yield data[at : at + size]
        at += size


def entry_of(entry: bytes) -> list[Any]:
    """[format, attributes, offset, timestamp, messages inside or [key, value]]"""
    offset, magic, attributes = struct.unpack_from(">q8xbb", entry)
    at = 18
    stamp: Any = None
    if magic == 1:
        (stamp,) = struct.unpack_from(">q", entry, at)
        stamp = "now" if attributes & 8 else stamp - T
        at += 8
    fields: list[Any] = []
    for _ in range(2):
        (size,) = struct.unpack_from(">i", entry, at)
        at += 4
        fields.append(None if size < 0 else entry[at : at + size])
        at += max(size, 0)
    assert at == len(entry)
    codec = attributes & 7
    if codec:
        assert fields[0] is None
        content = compression.decompress(codec, fields[1], size_max=WHOLE, magic=magic)
        fields = [entry_of(one) for one in entries(content)]
        list(decode_batches(content, size_max=WHOLE))  # each CRC is right
    else:
        fields = [None if field is None else field.decode() for field in fields]
    return [magic, attributes, offset, stamp, fields]


def fetch_body(topic: str, version: int, offset: int, size: int) -> Any:
    asks = request(1)
    part = asks.struct("topics.partitions")(fetchOffset=offset, partitionMaxBytes=size)
    named = asks.struct("topics")(topic=topic, partitions=[part])
    body = asks.cls(replicaId=-1, maxWaitMs=0, minBytes=1, topics=[named])
    if version >= 3:
        body.maxBytes = WHOLE
    return body


def _fill(address: str, topic: str, batches: list[bytes | int], settings: dict[str, str]) -> None:
    from compat.support import Wire, create_topic

    create_topic(address, topic, 1, settings)
    with Wire(address) as wire:
        transactional_id, producer = f"t {topic}", None
        for batch in batches:
            if isinstance(batch, int):
                assert producer is not None
                body = request(26).cls(
                    transactionalId=transactional_id, producerId=producer[0],
                    producerEpoch=producer[1], committed=bool(batch),
                )  # fmt: skip
                assert wire.call(26, 1, body).errorCode == 0
                time.sleep(1)  # the marker is written after the answer
                continue
            found = next(decode_batches(batch, size_max=WHOLE))
            if found.transactional:
                producer = producer or _producer(wire, transactional_id)
                batch = _with_producer(batch, *producer)
                _begin(wire, transactional_id, producer, topic)
            asks = request(0)
            part = asks.struct("topicData.partitionData")(index=0, records=batch)
            body = asks.cls(
                acks=-1, timeoutMs=9000,
                transactionalId=transactional_id if found.transactional else None,
                topicData=[asks.struct("topicData")(name=topic, partitionData=[part])],
            )  # fmt: skip
            told = wire.call(0, 7, body).responses[0].partitionResponses[0]
            assert told.errorCode == 0, (topic, told)


def _producer(wire: Any, transactional_id: str) -> tuple[int, int]:
    while True:
        wire.call(10, 1, request(10).cls(key=transactional_id, keyType=1))
        body = request(22).cls(transactionalId=transactional_id, transactionTimeoutMs=60000)
        told = wire.call(22, 1, body)
        if told.errorCode == 0:
            return told.producerId, told.producerEpoch
        time.sleep(0.1)


def _begin(wire: Any, transactional_id: str, producer: tuple[int, int], topic: str) -> None:
    asks = request(24)
    named = asks.struct("v3AndBelowTopics")(name=topic, partitions=[0])
    body = asks.cls(
        v3AndBelowTransactionalId=transactional_id, v3AndBelowProducerId=producer[0],
        v3AndBelowProducerEpoch=producer[1], v3AndBelowTopics=[named],
    )  # fmt: skip
    while (told := wire.call(24, 1, body)).resultsByTopicV3AndBelow[0].resultsByPartition[
        0
    ].partitionErrorCode == 51:
        time.sleep(0.05)  # CONCURRENT_TRANSACTIONS
    assert told.resultsByTopicV3AndBelow[0].resultsByPartition[0].partitionErrorCode == 0


def _with_producer(batch: bytes, producer_id: int, epoch: int) -> bytes:
    from oracle.produce import patched

    return patched(patched(batch, 43, ">q", producer_id), 51, ">h", epoch)


def main() -> None:
    from compat.support import Wire

    address = sys.argv[1]
    stamp = int(time.time())
    names = {topic: f"{topic.replace(' ', '-')}-{stamp}" for topic in TOPICS}
    for topic, batches in TOPICS.items():
        _fill(address, names[topic], batches, SETTINGS.get(topic, {}))
    found: dict[str, dict[str, Any]] = {}
    with Wire(address) as wire:
        for topic, version, offset, size in steps():
            body = fetch_body(names[topic], version, offset, size)
            answer = wire.call(1, version, body).responses[0].partitions[0]
            found[f"{topic}, version {version}, offset {offset}, {size} bytes"] = form(answer)
    lines = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in found.items()]
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    main()
