"""Produce 0 to 2: the native handler's answers, and what it then stores, compared with Apache Kafka
3.9.2's (oracle/old_produce.py)."""

import zlib

import pytest
from oracle.old_produce import (
    CASES,
    GZIP,
    LZ4,
    NOW_MS,
    SNAPPY,
    TOPICS_WITH_CODEC,
    Case,
    inner,
    message,
    wrapper,
)
from oracle.produce import TOPICS, batch, partitions_of, produce_frame

from barnabas.cext.produce.produce import MalformedProduce
from barnabas.server.decode_pool import answer_job
from barnabas.wire import compression
from barnabas.wire.batches import decode_batches


def stored(broker, topic: str) -> list:
    return list(decode_batches(broker.stored(topic), size_max=1 << 20))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_answers_as_kafka(case: Case, broker) -> None:
    broker.topic(case.topic, **(TOPICS | TOPICS_WITH_CODEC)[case.topic][1])
    now = broker.system.wall_ms()
    answer = broker.send(
        [(case.topic, case.index, case.records(now))], version=case.version, acks=case.acks
    )
    told = partitions_of(answer)[0]
    expected = case.kafka if case.ours is None else case.ours
    assert told.errorCode == expected
    batches = stored(broker, case.topic)
    rows = (case.stored or []) if expected == 0 else []
    assert told.baseOffset == (0 if rows else -1)
    got = [
        (None if batch.timestamp_type else record.timestamp, record.key, record.value)
        for batch in batches
        for record in batch.records
    ]
    assert got == rows
    assert {(batch.magic, batch.codec) for batch in batches} == (
        {(2, case.codec)} if rows else set()
    )
    assert [r.offset for batch in batches for r in batch.records] == list(range(len(rows)))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_append_time_is_told_from_version_2_on(broker, version: int) -> None:
    broker.topic("t", append_time=True)
    told = broker.one("t", 0, inner(1, 2), version=version)
    assert told.errorCode == 0
    now = broker.system.wall_ms()
    assert told.logAppendTimeMs == -1 if version < 2 else now - 60_000 < told.logAppendTimeMs <= now
    (batch,) = stored(broker, "t")
    assert {record.timestamp for record in batch.records} == {batch.max_timestamp}


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4])
def test_many_messages_become_one_batch(broker, magic: int, codec: int) -> None:
    broker.topic("t")
    content = inner(magic, 500)
    records = wrapper(magic, codec, content, offset=499) if codec else content
    assert broker.one("t", 0, records, version=magic).errorCode == 0
    assert broker.one("t", 0, records, version=2).baseOffset == 500
    first, second = stored(broker, "t")
    assert (first.magic, first.codec, first.count, second.base_offset) == (2, codec, 500, 500)
    assert [r.value for r in second.records] == [b"value %d" % i for i in range(500)]


def test_several_partitions_of_every_kind_in_one_request(broker) -> None:
    broker.topic("t", partitions=4)
    parts = [
        ("t", 0, inner(0, 2)),
        ("t", 1, wrapper(1, GZIP, inner(1, 3), offset=2)),
        ("t", 2, message(1, b"v", crc=1)),
        ("t", 3, b""),
    ]
    told = partitions_of(broker.send(parts, version=2))
    assert [(row.errorCode, row.baseOffset) for row in told] == [(0, 0), (0, 0), (2, -1), (0, -1)]


def test_a_bomb_is_refused_before_it_is_whole_in_memory(broker) -> None:
    broker.topic("t", decompressed_bytes_max=100_000)
    for codec in (GZIP, SNAPPY, LZ4):
        records = wrapper(1, codec, message(1, bytes(200_000)))
        assert broker.one("t", 0, records, version=2).errorCode == 10


def test_converted_records_are_counted(broker) -> None:
    broker.topic("t")
    broker.one("t", 0, inner(1, 3), version=2)
    broker.one("t", 0, wrapper(0, LZ4, inner(0, 4)), version=0)
    broker.one("t", 0, inner(1, 1), version=2)
    broker.one("t", 0, batch(5), version=9)
    broker.one("t", 0, batch(5), version=2)
    assert broker.table.partition("t", 0).counters()["produce_conversions"] == 8
    assert broker.table.partition("t", 0).counters()["messages"] == 18


def test_a_full_queue_of_jobs_is_a_retriable_error(broker) -> None:
    broker.topic("t")
    broker.native.decodes.close()
    assert broker.one("t", 0, wrapper(1, GZIP, inner(1, 2)), version=2).errorCode == 7
    assert broker.one("t", 0, inner(1, 2), version=2).errorCode == 0


def test_acks_0_gets_no_answer_and_an_error_closes_the_connection(broker) -> None:
    broker.topic("t")
    assert broker.send([("t", 0, inner(0, 2))], version=0, acks=0) is None
    assert len(stored(broker, "t")) == 1
    with pytest.raises(MalformedProduce):
        broker.send([("t", 0, message(0, b"v", crc=1))], version=0, acks=0)


def test_an_abandoned_request_frees_its_job(broker) -> None:
    """The decode thread has the job while its request goes away."""
    broker.topic("t")
    waiting = broker.send([("t", 0, wrapper(1, GZIP, inner(1, 2)))], version=2, wait=False)
    job = broker.native.decodes.next(0)
    del waiting
    answer_job(job)
    assert stored(broker, "t") == []


def test_frames_that_are_cut_off_close_the_connection(broker) -> None:
    broker.topic("t")
    frame = produce_frame([("t", 0, inner(0, 2))], version=1)
    for size in range(14, len(frame)):
        with pytest.raises(MalformedProduce):
            broker.native.handle_frame(frame[:size])
    assert stored(broker, "t") == []


def test_every_cut_and_every_changed_byte_of_a_set_is_an_error_or_a_shorter_set(broker) -> None:
    """Cut anywhere, a set loses its last messages; a changed byte inside fails its checksum."""
    broker.topic("t")
    for magic in (0, 1):
        records = inner(magic, 3)
        one = len(records) // 3
        for size in range(len(records)):
            told = broker.one("t", 0, records[:size], version=magic)
            assert told.errorCode == 0
            assert (told.baseOffset == -1) == (size < one)
        for at in range(12, one):
            wrong = bytearray(records)
            wrong[at] ^= 0x55
            assert broker.one("t", 0, bytes(wrong), version=magic).errorCode in (2, 87), at


def test_crc_32_is_that_of_zlib() -> None:
    """What the table of cases is made with."""
    assert message(0, b"v", b"k")[12:16] == zlib.crc32(message(0, b"v", b"k")[16:]).to_bytes(
        4, "big"
    )
    assert NOW_MS > 0 and compression.LZ4 == LZ4
