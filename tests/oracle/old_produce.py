"""Produce requests of versions 0 to 2, and Apache Kafka 3.9.2's responses to them.

CASES were sent to Apache Kafka 3.9.2 (one broker, topics of oracle.produce.TOPICS); `kafka` is
its response: the error code, and for a success the records as Kafka then stored them: (offset,
timestamp, key, value), and the codec. `python tests/oracle/old_produce.py ADDRESS` asks a broker
again and prints what differs.
"""

import struct
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.cext.record.records import Record
from barnabas.wire import compression
from barnabas.wire.batches import decode_batches, encode_batch

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
NO_TIME = -1
NOW_MS = 1_795_000_000_000
DAY = 86_400_000
WORD = "the right word for it: Kafka answers UNKNOWN_SERVER_ERROR"


def message(
    magic: int,
    value: bytes | None,
    key: bytes | None = b"k",
    *,
    offset: int = 0,
    timestamp: int = NOW_MS,
    attributes: int = 0,
    crc: int | None = None,
) -> bytes:
    """One entry, whatever its fields are."""
    body = bytes([magic, attributes])
    if magic >= 1:
        body += struct.pack(">q", timestamp)
    for part in (key, value):
        body += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    crc = zlib.crc32(body) if crc is None else crc
    return struct.pack(">qiI", offset, len(body) + 4, crc) + body


def wrapper(
    magic: int, codec: int, content: bytes, *, offset: int = 0, timestamp: int = NOW_MS,
    attributes: int = 0, as_magic: int | None = None,
) -> bytes:  # fmt: skip
    """A wrapper around any content. `as_magic`: the magic whose lz4 header checksum it has."""
    packed = compression.compress(codec, content, magic=magic if as_magic is None else as_magic)
    return message(
        magic, packed, None, offset=offset, timestamp=timestamp, attributes=codec | attributes
    )


def inner(magic: int, count: int, first: int = 0, **options) -> bytes:
    return b"".join(
        message(magic, b"value %d" % i, b"key %d" % i, offset=first + i, **options)
        for i in range(count)
    )


def patched(data: bytes, at: int, layout: str, value: int, seal: bool = True) -> bytes:
    """The first entry with another field, and by default a matching CRC."""
    out = bytearray(data)
    struct.pack_into(layout, out, at, value)
    if seal:
        size = struct.unpack_from(">i", out, 8)[0]
        struct.pack_into(">I", out, 12, zlib.crc32(bytes(out[16 : 12 + size])))
    return bytes(out)


def nested(magic: int) -> bytes:
    return wrapper(magic, GZIP, wrapper(magic, GZIP, inner(magic, 2)))


@dataclass
class Case:
    name: str
    version: int
    records: Callable[[int], bytes | None]  # of the time of the request
    kafka: int
    stored: list[tuple[int, bytes | None, bytes | None]] | None = None  # time, key, value
    codec: int = 0
    topic: str = "plain"
    acks: int = -1
    index: int = 0
    ours: int | None = None  # our error code where it differs on purpose
    why: str = field(default="")


def _rows(count: int, timestamp: int | None = NOW_MS) -> list:
    return [(timestamp, b"key %d" % i, b"value %d" % i) for i in range(count)]


def _plain_cases() -> list[Case]:
    cases = []
    for magic in (0, 1):
        stamp = NOW_MS if magic else NO_TIME
        v = f"magic {magic}: "
        for version in (0, 1, 2):
            cases.append(
                Case(f"{v}three messages, version {version}", version,
                     lambda now, m=magic: inner(m, 3), 0, _rows(3, stamp))
            )  # fmt: skip
        cases += [
            Case(v + "offsets are ignored", 2, lambda now, m=magic: inner(m, 2, first=70), 0,
                 _rows(2, stamp)),
            Case(v + "nulls and empties", 2,
                 lambda now, m=magic: message(m, None, None) + message(m, b"", b""), 0,
                 [(stamp, None, None), (stamp, b"", b"")]),
            Case(v + "wrong crc", 2,
                 lambda now, m=magic: patched(inner(m, 2), 12, ">I", 1, False), 2),
            Case(v + "wrong crc of the second", 2,
                 lambda now, m=magic: inner(m, 1) + message(m, b"v", crc=5), 2),
            Case(v + "a tail of 5 bytes", 2, lambda now, m=magic: inner(m, 2) + b"12345", 0,
                 _rows(2, stamp)),
            Case(v + "a cut off second", 2, lambda now, m=magic: inner(m, 2)[:-3], 0,
                 _rows(1, stamp)),
            Case(v + "cut off", 2, lambda now, m=magic: inner(m, 1)[:-3], 0, []),
            Case(v + "key size beyond the end", 2,
                 lambda now, m=magic: patched(message(m, b"v"), 18 + 8 * m, ">i", 99), -1,
                 ours=87, why=WORD),
            Case(v + "key size below -1", 2,
                 lambda now, m=magic: patched(message(m, b"v"), 18 + 8 * m, ">i", -2), -1,
                 ours=87, why=WORD),
            Case(v + "value size beyond the end", 2,
                 lambda now, m=magic: patched(message(m, b"v", None), 22 + 8 * m, ">i", 99), -1,
                 ours=87, why=WORD),
            Case(v + "value size too small", 2,
                 lambda now, m=magic: patched(message(m, b"value", None), 22 + 8 * m, ">i", 2), 0,
                 ours=87, why="Kafka drops the bytes behind the value"),
            Case(v + "no key in a compacted topic", 2,
                 lambda now, m=magic: message(m, b"v", None), 87, topic="compacted"),
            Case(v + "append time", 2, lambda now, m=magic: inner(m, 2), 0, _rows(2, None),
                 topic="appendtime"),
            Case(v + "too large", 2,
                 lambda now, m=magic: message(m, bytes(2000)), 10, topic="small"),
            Case(v + "two of together too large", 2,
                 lambda now, m=magic: message(m, bytes(600)) * 2, 10, topic="small"),
            Case(v + "mixed with the other magic", 2,
                 lambda now, m=magic: inner(m, 1) + inner(1 - m, 1), 87),
            Case(v + "a batch of magic 2 behind", 2,
                 lambda now, m=magic: inner(m, 1) + encode_batch([Record(b"v", timestamp=now)]),
                 87),
            Case(v + "unknown attribute bits", 2,
                 lambda now, m=magic: message(m, b"v", b"k", attributes=0xF0), 0,
                 [(stamp, b"k", b"v")]),
            Case(v + "codec 5", 2, lambda now, m=magic: message(m, b"v", None, attributes=5), -1,
                 ours=76, why=WORD),
            Case(v + "codec 7", 2, lambda now, m=magic: message(m, b"v", None, attributes=7), -1,
                 ours=76, why=WORD),
            Case(v + "acks 7", 2, lambda now, m=magic: inner(m, 1), 21, acks=7),
            Case(v + "unknown partition", 2, lambda now, m=magic: inner(m, 1), 3, index=9),
        ]  # fmt: skip
    return cases


def _wrapped_cases() -> list[Case]:
    cases = []
    for magic in (0, 1):
        stamp = NOW_MS if magic else NO_TIME
        v = f"magic {magic}: "
        for codec, name in ((GZIP, "gzip"), (SNAPPY, "snappy"), (LZ4, "lz4")):
            cases.append(Case(
                f"{v}{name}", 2,
                lambda now, m=magic, c=codec: wrapper(m, c, inner(m, 3), offset=2),
                0, _rows(3, stamp), codec))  # fmt: skip
        cases += [
            Case(v + "zstd", 2, lambda now, m=magic: message(
                m, compression.compress(ZSTD, inner(m, 2)), None, attributes=ZSTD), 87),
            Case(v + "lz4 with the other header checksum", 2, lambda now, m=magic: wrapper(
                m, LZ4, inner(m, 2), offset=1, as_magic=1 - m), -1 if magic else 0,
                 _rows(2, stamp), LZ4,
                 ours=0, why="Kafka accepts the wrong one of magic 0 there only"),
            Case(v + "snappy without framing", 2, lambda now, m=magic: message(
                m, _raw_snappy(inner(m, 2)), None, offset=1, attributes=SNAPPY), 0, _rows(2, stamp),
                 SNAPPY),
            Case(v + "wrapper of nothing", 2, lambda now, m=magic: wrapper(m, GZIP, b""), 87),
            Case(v + "wrapper without a value", 2,
                 lambda now, m=magic: message(m, None, None, attributes=GZIP), 87),
            Case(v + "wrapper with a key", 2, lambda now, m=magic: message(
                m, compression.compress(GZIP, inner(m, 2)), b"key", attributes=GZIP), 0,
                 _rows(2, stamp), GZIP),
            Case(v + "no gzip", 2, lambda now, m=magic: message(
                m, b"nothing of the kind", None, attributes=GZIP), -1, ours=2, why=WORD),
            Case(v + "gzip cut off", 2, lambda now, m=magic: message(
                m, compression.compress(GZIP, inner(m, 50))[:-20], None, attributes=GZIP), -1,
                 ours=2, why=WORD),
            Case(v + "no snappy", 2, lambda now, m=magic: message(
                m, b"\xff\xff\xff\xff\xff\xff nothing", None, attributes=SNAPPY), -1,
                 ours=2, why=WORD),
            Case(v + "no lz4", 2, lambda now, m=magic: message(
                m, b"nothing of the kind", None, attributes=LZ4), -1, ours=2, why=WORD),
            Case(v + "nested", 2, lambda now, m=magic: nested(m), 87),
            Case(v + "the other magic inside", 2,
                 lambda now, m=magic: wrapper(m, GZIP, inner(1 - m, 2)), 87),
            Case(v + "magic 2 inside", 2, lambda now, m=magic: wrapper(
                m, GZIP, encode_batch([Record(b"v", timestamp=NOW_MS)])), -1,
                 ours=87, why=WORD),
            Case(v + "a tail inside", 2,
                 lambda now, m=magic: wrapper(m, GZIP, inner(m, 2) + b"12345"), 0,
                 _rows(2, stamp), GZIP),
            Case(v + "a cut off second inside", 2,
                 lambda now, m=magic: wrapper(m, GZIP, inner(m, 2)[:-3]), 0, _rows(1, stamp), GZIP),
            Case(v + "wrong size inside", 2,
                 lambda now, m=magic: wrapper(m, GZIP, patched(inner(m, 1), 8, ">i", 5)), 2),
            Case(v + "wrong crc inside", 2,
                 lambda now, m=magic: wrapper(m, GZIP, message(m, b"v", crc=5)), 2),
            Case(v + "two wrappers", 2,
                 lambda now, m=magic: wrapper(m, GZIP, inner(m, 2)) * 2, 87),
            Case(v + "a plain message behind a wrapper", 2,
                 lambda now, m=magic: wrapper(m, GZIP, inner(m, 2)) + inner(m, 1), 87),
            Case(v + "a wrapper behind a plain message", 2,
                 lambda now, m=magic: inner(m, 1) + wrapper(m, GZIP, inner(m, 2)), 87),
            Case(v + "no key in a wrapper to a compacted topic", 2, lambda now, m=magic: wrapper(
                m, GZIP, message(m, b"v", None)), 87, topic="compacted"),
            Case(v + "gzip with append time", 2,
                 lambda now, m=magic: wrapper(m, GZIP, inner(m, 2), offset=1), 0, _rows(2, None),
                 GZIP, topic="appendtime"),
            Case(v + "any inner offsets", 2, lambda now, m=magic: wrapper(
                m, GZIP, message(m, b"a", offset=9) + message(m, b"b", offset=3)), 0,
                 [(stamp, b"k", b"a"), (stamp, b"k", b"b")], GZIP),
            Case(v + "wrapper offset below the inner ones", 2, lambda now, m=magic: wrapper(
                m, GZIP, inner(m, 3, first=5), offset=2), 87 if magic else 0,
                 _rows(3, stamp), GZIP),
        ]  # fmt: skip
    return cases


def _raw_snappy(data: bytes) -> bytes:
    import snappy

    return snappy.compress(data)


def _time_cases() -> list[Case]:
    return [
        Case("two times", 2, lambda now: message(1, b"a", timestamp=NOW_MS)
             + message(1, b"b", timestamp=NOW_MS - 5), 0,
             [(NOW_MS, b"k", b"a"), (NOW_MS - 5, b"k", b"b")]),
        Case("no time", 2, lambda now: message(1, b"a", timestamp=-1), 0, [(-1, b"k", b"a")]),
        Case("time below -1", 2, lambda now: message(1, b"a", timestamp=-7), -1,
             ours=32, why=WORD),
        Case("time of the far future", 2, lambda now: message(1, b"a", timestamp=now + 9 * DAY), 0,
             ours=32, why="message.timestamp.after.max.ms is an hour by default since Kafka 4.0"),
        Case("time of the far future in gzip", 2, lambda now: wrapper(
            1, GZIP, message(1, b"a", timestamp=now + 9 * DAY)), 0, ours=32,
             why="as in the case before"),
        Case("time before the limit", 2, lambda now: message(1, b"a", timestamp=now - DAY), 32,
             topic="bounded"),
        Case("no time with a limit", 2, lambda now: message(0, b"a"), 0, [(-1, b"k", b"a")],
             topic="bounded"),
        Case("append time of a producer", 2, lambda now: message(1, b"a", attributes=8), 0,
             [(NOW_MS, b"k", b"a")]),
        Case("append time of a producer, no time", 2,
             lambda now: message(1, b"a", attributes=8, timestamp=-1), 32),
        Case("append time of a producer to append time", 2,
             lambda now: message(1, b"a", attributes=8), 32, topic="appendtime"),
        Case("append time of a wrapper", 2, lambda now: wrapper(
            1, GZIP, inner(1, 2, timestamp=NOW_MS - 9), offset=1, attributes=8), 0, _rows(2), GZIP),
        Case("times inside", 2, lambda now: wrapper(
            1, GZIP, inner(1, 2, timestamp=NOW_MS - 9), offset=1), 0, _rows(2, NOW_MS - 9), GZIP),
    ]  # fmt: skip


def _frame_cases() -> list[Case]:
    return [
        Case("no records", 2, lambda now: b"", 0, []),
        Case("null", 2, lambda now: None, 87, why="Kafka never answers"),
        Case("10 bytes", 2, lambda now: bytes(10), 0, []),
        Case("13 bytes", 2, lambda now: bytes(8) + struct.pack(">i", 20) + b"x", 0, []),
        Case("size too small", 2, lambda now: patched(inner(0, 1), 8, ">i", 13, False), 2),
        Case("size negative", 2, lambda now: patched(inner(0, 1), 8, ">i", -5, False), 2),
        Case("magic 1 in 14 bytes", 2, lambda now: _short(), -1, ours=2, why=WORD),
        Case("magic 3", 2, lambda now: patched(inner(0, 1), 16, ">b", 3), 2),
        Case("magic -1", 2, lambda now: patched(inner(0, 1), 16, ">b", -1), 2),
        Case("magic 2", 1, lambda now: encode_batch([Record(b"v", b"k", timestamp=NOW_MS)]), 0,
             [(NOW_MS, b"k", b"v")]),
        Case("magic 2 in zstd", 1, lambda now: encode_batch(
            [Record(b"v", b"k", timestamp=NOW_MS)], codec=ZSTD), 0, [(NOW_MS, b"k", b"v")], ZSTD),
        Case("two of magic 2", 1,
             lambda now: encode_batch([Record(b"v", timestamp=NOW_MS)]) * 2, 87),
        Case("magic 2 and a tail", 1, lambda now: encode_batch(
            [Record(b"v", b"k", timestamp=NOW_MS)]) + b"12345", 0, [(NOW_MS, b"k", b"v")]),
        Case("magic 2 cut off", 1,
             lambda now: encode_batch([Record(b"v", timestamp=NOW_MS)])[:-1], 0, []),
    ]  # fmt: skip


def _short() -> bytes:
    body = bytes([1, 0]) + bytes(8)
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


def _topic_codec_cases() -> list[Case]:
    """Topics with a compression.type of their own."""
    return [
        Case("plain into gzip", 2, lambda now: inner(1, 3), 0, _rows(3), GZIP, topic="gzipped"),
        Case("snappy into gzip", 2, lambda now: wrapper(1, SNAPPY, inner(1, 3), offset=2), 0,
             _rows(3), GZIP, topic="gzipped"),
        Case("plain of magic 0 into gzip", 0, lambda now: inner(0, 3), 0, _rows(3, -1), GZIP,
             topic="gzipped"),
        Case("gzip into none", 2, lambda now: wrapper(1, GZIP, inner(1, 3), offset=2), 0, _rows(3),
             0, topic="unpacked"),
        Case("gzip into zstd", 2, lambda now: wrapper(1, GZIP, inner(1, 3), offset=2), 0, _rows(3),
             ZSTD, topic="zstd"),
        Case("mixed plain into gzip", 2, lambda now: inner(1, 1) + inner(0, 1), 87,
             topic="gzipped"),
        Case("bad key in plain into gzip", 2,
             lambda now: inner(1, 1) + message(1, b"v", crc=3), 2, topic="gzipped"),
    ]  # fmt: skip


TOPICS_WITH_CODEC = {
    "gzipped": ({"compression.type": "gzip"}, {"codec": GZIP}),
    "unpacked": ({"compression.type": "uncompressed"}, {"codec": 0}),
    "zstd": ({"compression.type": "zstd"}, {"codec": ZSTD}),
}

CASES = _plain_cases() + _wrapped_cases() + _time_cases() + _frame_cases() + _topic_codec_cases()


def main() -> None:
    """Asks the broker at an address, and prints each case whose answer is not Kafka's."""
    address = sys.argv[1]
    for number, case in enumerate(CASES):
        if case.name == "null":
            continue  # Kafka never answers
        told, batches = _asked(address, f"old-{number}-{int(time.time())}", case)
        rows = [
            (None if batch.timestamp_type else record.timestamp, record.key, record.value)
            for batch in batches
            for record in batch.records
        ]
        found = told.errorCode, rows, {batch.codec for batch in batches}
        stored = (case.stored or []) if case.kafka == 0 else []
        if case.stored is None and case.kafka == 0:
            stored = rows  # not compared
        if found != (case.kafka, stored, {case.codec} if stored and case.stored else found[2]):
            print(f"{case.name}: {found}, not {case.kafka}")


def _asked(address: str, topic: str, case: Case) -> tuple:
    """The answer of the partition, and the batches that it then has."""
    from compat.support import Wire, create_topic
    from oracle.produce import TOPICS

    from barnabas.wire import request

    create_topic(address, topic, 1, (TOPICS | TOPICS_WITH_CODEC)[case.topic][0])
    asks = request(0)
    row = asks.struct("topicData.partitionData")(
        index=case.index, records=case.records(int(time.time() * 1000))
    )
    named = asks.struct("topicData")(name=topic, partitionData=[row])
    body = asks.cls(acks=case.acks, timeoutMs=9000, topicData=[named])
    with Wire(address) as wire:
        told = wire.call(0, case.version, body).responses[0].partitionResponses[0]
        asks = request(1)
        part = asks.struct("topics.partitions")(partitionMaxBytes=1 << 20)
        named = asks.struct("topics")(topic=topic, partitions=[part])
        body = asks.cls(replicaId=-1, maxBytes=1 << 20, topics=[named])
        found = wire.call(1, 11, body).responses[0].partitions[0].records or b""
    return told, list(decode_batches(found, size_max=1 << 20))


if __name__ == "__main__":
    main()
