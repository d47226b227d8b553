"""Hostile requests, cut or mutated: MalformedProduce or an answer, never anything else."""

import random
import struct

import pytest
from oracle.produce import batch, compressed, produce_answer, produce_frame, record

from barnabas.cext.produce.produce import MalformedProduce


def answered(broker, frame: bytes) -> bool:
    try:
        answer = broker.native.handle_frame(frame)
        while answer is not None and not isinstance(answer, bytes):
            job = broker.native.decodes.next(0)
            if job is not None:
                job.failed(87)
            answer = answer.resume(5)
    except MalformedProduce:
        return False
    return True


@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_cut_at_every_byte_appends_nothing(broker, version):
    handle = broker.topic("orders", partitions=2)
    topic = broker.ids["orders"] if version == 13 else "orders"
    frame = produce_frame([(topic, 0, batch()), (topic, 1, batch())], version, acks=1)
    for size in range(len(frame)):
        assert not answered(broker, frame[:size]), size
    assert not answered(broker, frame + b"\0")
    assert handle.log.end_offset == 0
    assert answered(broker, frame)
    assert handle.log.end_offset == 3


@pytest.mark.parametrize("version", [3, 9])
def test_mutations(broker, version):
    broker.topic("orders", partitions=2)
    rng = random.Random(version)
    now = broker.system.wall_ms()
    parts = [
        ("orders", 0, batch()),
        ("orders", 1, compressed(3, [record(b"z" * 200, timestamp=now)])),
    ]
    source = produce_frame(parts, version, acks=1)
    outcomes = {True: 0, False: 0}
    for _ in range(3000):
        frame = bytearray(source)
        for _ in range(rng.randint(1, 4)):
            frame[rng.randrange(8, len(frame))] = rng.choice(
                (0, 1, 127, 128, 255, rng.randrange(256))
            )
        outcomes[answered(broker, bytes(frame))] += 1
    assert min(outcomes.values()) > 100


def test_counts_beyond_the_bytes(broker):
    broker.topic("orders")
    head = struct.pack(">hhih", 0, 8, 7, -1) + struct.pack(">hhi", -1, 1, 1000)
    for count in (2**31 - 1, 1000, -1, -5):
        assert not answered(broker, head + struct.pack(">i", count))
        topic = struct.pack(">ih", 1, 6) + b"orders"
        assert not answered(broker, head + topic + struct.pack(">i", count))


def test_a_million_empty_partitions(broker):
    broker.topic("orders")
    count = 1_000_000
    body = struct.pack(">hhihhhi", 0, 8, 7, -1, -1, 1, 1000) + struct.pack(">ih", 1, 6) + b"orders"
    frame = body + struct.pack(">i", count) + struct.pack(">ii", 0, 0) * count
    answer = broker.native.handle_frame(frame)
    assert len(answer) < 6 * len(frame)
    codes = produce_answer(answer, 8).responses[0].partitionResponses
    assert len(codes) == count
    assert codes[-1].errorCode == 87


def test_unknown_tags_are_skipped(broker):
    broker.topic("orders")
    frame = produce_frame([("orders", 0, batch())], 9, acks=1)
    assert frame.endswith(b"\0\0\0")
    tagged = frame[:-3] + b"\x01\x05\x03abc" + b"\x02\x00\x00\x09\x01x" + b"\x01\x7f\x00"
    assert answered(broker, tagged)
    assert broker.table.partition("orders", 0).log.end_offset == 3
