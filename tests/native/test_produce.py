"""The responses to valid batches in every version, and the bytes that are stored."""

import uuid

import pytest
from oracle.produce import (
    NOW_MS,
    batch,
    compressed,
    partitions_of,
    patched,
    produce_answer,
    produce_frame,
    record,
)

from barnabas.cext.produce.produce import MalformedProduce, ProduceHandler
from barnabas.cext.record.records import decode_records, encode_batch, parse_header
from barnabas.wire import compression

VERSIONS = range(3, 14)


@pytest.fixture
def now(broker) -> int:
    broker.system.move_wall_clock(NOW_MS - broker.system.wall_ms())
    return NOW_MS


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_answered(broker, now, version):
    broker.topic("orders", partitions=2)
    topic = broker.ids["orders"] if version >= 13 else "orders"
    answer = broker.send([(topic, 0, batch(3)), (topic, 1, batch(2))], version=version)
    assert len(answer.responses) == 1
    if version >= 13:
        assert answer.responses[0].topicId == topic
    else:
        assert answer.responses[0].name == "orders"
    assert [(p.index, p.errorCode, p.baseOffset) for p in partitions_of(answer)] == [
        (0, 0, 0),
        (1, 0, 0),
    ]
    again = broker.send([(topic, 0, batch(1))], version=version)
    assert partitions_of(again)[0].baseOffset == 3
    assert partitions_of(again)[0].logStartOffset == (0 if version >= 5 else -1)
    assert broker.table.partition("orders", 0).high_watermark == 4


def test_topic_id_unknown(broker):
    broker.topic("orders")
    got = broker.one(uuid.uuid4().bytes, 0, batch(), version=13)
    assert (got.errorCode, got.baseOffset) == (100, -1)
    known = broker.ids["orders"]
    assert broker.one(known, 5, batch(), version=13).errorCode == 3


def test_stored_bytes_are_the_producers_but_for_offset_and_epoch(broker, now):
    broker.topic("orders")
    broker.table.set_leader("orders", 0, leader_id=1, leader_epoch=7)
    sent = batch(3)
    broker.one("orders", 0, sent)
    broker.one("orders", 0, sent)
    stored = broker.stored("orders")
    assert stored[12 + 4 : len(sent)] == sent[16:]
    first, second = parse_header(stored), parse_header(stored, len(sent))
    assert (first.base_offset, first.leader_epoch) == (0, 7)
    assert (second.base_offset, second.leader_epoch) == (3, 7)


def test_append_time_is_stamped_and_returned(broker, now):
    broker.topic("orders", append_time=True)
    got = broker.one("orders", 0, encode_batch([record(timestamp=5)]))
    assert got.errorCode == 0
    assert now <= got.logAppendTimeMs < now + 5000
    header = parse_header(broker.stored("orders"))
    assert header.append_time
    assert header.max_timestamp == got.logAppendTimeMs


def test_largest_timestamp_of_a_header_is_corrected(broker, now):
    broker.topic("orders")
    wrong = patched(encode_batch([record(timestamp=now - 9)]), 35, ">q", now + 999)
    wrong = patched(wrong, 21, ">h", 0x08)
    assert broker.one("orders", 0, wrong).errorCode == 0
    header = parse_header(broker.stored("orders"))
    assert header.max_timestamp == now - 9
    assert not header.append_time


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_compressed_batches_are_stored_as_they_came(broker, now, codec):
    broker.topic("orders")
    sent = compressed(codec, [record(b"x" * 500, timestamp=now) for _ in range(9)])
    assert broker.one("orders", 0, sent).errorCode == 0
    assert broker.stored("orders")[16 : len(sent)] == sent[16:]
    assert broker.table.partition("orders", 0).counters()["messages"] == 9


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_bombs_are_refused(broker, now, codec):
    broker.topic("orders", decompressed_bytes_max=100_000)
    sent = compressed(codec, [record(bytes(200_000), timestamp=now)])
    assert broker.one("orders", 0, sent).errorCode == 10
    assert broker.table.partition("orders", 0).high_watermark == 0


@pytest.mark.parametrize("source", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("target", [0, 1, 4])
def test_topics_own_compression(broker, now, source, target):
    broker.topic("orders", codec=target)
    records = [record(b"y" * 300, timestamp=now + i) for i in range(5)]
    sent = compressed(source, records) if source else encode_batch(records)
    assert broker.one("orders", 0, sent).errorCode == 0
    stored = broker.stored("orders")
    header = parse_header(stored)
    assert header.codec == target
    body = compression.decompress(target, stored[61 : header.size_bytes], size_max=10**6)
    found = decode_records(body, count=5, base_timestamp=header.base_timestamp)
    assert [(r.value, r.timestamp) for r in found] == [(r.value, r.timestamp) for r in records]


def test_recompressed_beyond_the_limit(broker, now):
    broker.topic("orders", codec=0, message_bytes_max=1000)
    sent = compressed(1, [record(bytes(5000), timestamp=now)])
    assert len(sent) < 1000
    assert broker.one("orders", 0, sent).errorCode == 10


def test_not_leader_tells_the_leader(broker):
    broker.topic("orders")
    broker.table.set_leader("orders", 0, leader_id=4, leader_epoch=9)
    for version in VERSIONS:
        if version < 13:
            got = broker.one("orders", 0, batch(), version=version)
            assert got.errorCode == 6
            if version >= 10:
                assert (got.currentLeader.leaderId, got.currentLeader.leaderEpoch) == (4, 9)


def test_replicas_missing(broker, now):
    broker.topic("orders", min_insync_replicas=2)
    broker.partition("orders", 1, replicas=(1, 2, 3), isr=(1,))
    broker.partition("orders", 2, replicas=(1, 2, 3), isr=(1, 2))
    timed = [broker.one("orders", index, batch(), timeout_ms=50).errorCode for index in range(3)]
    assert timed == [0, 19, 7]  # broker 2 never fetches
    assert broker.one("orders", 1, batch(), acks=1).errorCode == 0


def test_acks_0_has_no_answer_and_an_error_closes(broker, now):
    handle = broker.topic("orders")
    assert broker.send([("orders", 0, batch())], acks=0) is None
    assert broker.send([("orders", 0, compressed(1, [record()]))], acks=0) is None
    assert handle.commit(1000)
    assert handle.high_watermark == 4
    with pytest.raises(MalformedProduce):
        broker.send([("nowhere", 0, batch())], acks=0)


def test_one_bad_partition_leaves_the_others(broker, now):
    broker.topic("orders", partitions=3)
    bad = patched(batch(), 17, ">I", 1, seal=False)
    answer = broker.send([("orders", 0, batch()), ("orders", 1, bad), ("orders", 2, batch())])
    assert [(p.errorCode, p.baseOffset) for p in partitions_of(answer)] == [
        (0, 0),
        (2, -1),
        (0, 0),
    ]


def test_transactional_records_without_id_refuse_the_whole_request(broker, now):
    broker.topic("orders", partitions=2)
    mine = patched(batch(), 21, ">h", 0x10)
    answer = broker.send([("orders", 0, batch()), ("orders", 1, mine)])
    assert [p.errorCode for p in partitions_of(answer)] == [53, 53]
    assert broker.table.partition("orders", 0).high_watermark == 0


def test_counters(broker, now):
    handle = broker.topic("orders", requires_keys=True)
    sent = batch(3)
    broker.one("orders", 0, sent)
    broker.one("orders", 0, patched(sent, 17, ">I", 1, seal=False))
    broker.one("orders", 0, encode_batch([record(key=None)]))
    broker.one("orders", 0, encode_batch([record(timestamp=now + 10**9)]))
    counters = handle.counters()
    assert counters["batches"] == 1
    assert counters["messages"] == 3
    assert counters["bytes"] == len(sent)
    assert counters["rejected_corrupt"] == 1
    assert counters["rejected_no_key"] == 1
    assert counters["rejected_timestamp"] == 1


def test_rejected_records_are_named_up_to_a_limit(broker, now):
    broker.topic("orders", requires_keys=True)
    got = broker.one("orders", 0, encode_batch([record(key=None)] * 500))
    assert [e.batchIndex for e in got.recordErrors] == list(range(100))


def test_decode_waits_and_times_out(broker, now):
    broker.topic("orders")
    parts = [("orders", 0, compressed(1, [record()]))]
    parked = broker.send(parts, wait=False, timeout_ms=60)
    job = broker.native.decodes.next(0)
    assert job.codec == 1
    frame = parked.resume()
    assert partitions_of(produce_answer(frame))[0].errorCode == 7
    job.done(b"too late")
    assert broker.table.partition("orders", 0).counters()["batches"] == 0
    assert broker.native.decodes.next(0) is None


def test_dropped_request_takes_its_jobs_with_it(broker, now):
    broker.topic("orders", partitions=2)
    sent = compressed(4, [record()])
    parked = broker.send([("orders", 0, sent), ("orders", 1, sent)], wait=False)
    job = broker.native.decodes.next(0)
    del parked
    assert broker.native.decodes.next(0) is None
    job.failed(87)
    with pytest.raises(RuntimeError):
        job.failed(87)


def test_job_dropped_by_python_fails_the_batch(broker, now):
    broker.topic("orders")
    parked = broker.send([("orders", 0, compressed(1, [record()]))], wait=False)
    job = broker.native.decodes.next(0)
    del job
    frame = parked.resume()
    assert partitions_of(produce_answer(frame))[0].errorCode == -1


def test_header_of_another_api_is_refused(broker):
    native = ProduceHandler(broker.table)
    for version in (2, 14):
        frame = bytearray(produce_frame([("orders", 0, batch())], 9))
        frame[2:4] = version.to_bytes(2, "big")
        with pytest.raises(MalformedProduce):
            native.handle_frame(bytes(frame))


def idempotent(sequence: int, count: int = 2, epoch: int = 0) -> bytes:
    return batch(count, producer_id=4000, producer_epoch=epoch, base_sequence=sequence)


def test_duplicates_have_the_first_offset_and_are_stored_once(broker, now):
    handle = broker.topic("orders")
    for sequence in (0, 2, 4):
        assert broker.one("orders", 0, idempotent(sequence)).baseOffset == sequence
    again = broker.one("orders", 0, idempotent(2))
    assert (again.errorCode, again.baseOffset) == (0, 2)
    assert handle.log.end_offset == 6
    assert handle.counters()["duplicates"] == 1
    assert handle.counters()["batches"] == 3


def test_duplicate_waits_for_the_flush_of_its_original(broker, now):
    broker.topic("orders")
    assert broker.one("orders", 0, idempotent(0), acks=1).errorCode == 0
    rule = broker.system.fault("fdatasync", "delay", delay_ms=100)
    parked = broker.send([("orders", 0, idempotent(0))], wait=False)
    got = partitions_of(produce_answer(parked.resume()))[0]
    assert (got.errorCode, got.baseOffset) == (0, 0)
    assert broker.system.fired(rule) == 1


def test_sequences_out_of_order_and_old_epochs(broker, now):
    handle = broker.topic("orders")
    assert broker.one("orders", 0, idempotent(0, epoch=1)).errorCode == 0
    assert broker.one("orders", 0, idempotent(7, epoch=1)).errorCode == 45
    assert broker.one("orders", 0, idempotent(2, epoch=0)).errorCode == 47
    assert handle.counters()["rejected_sequence"] == 2
    assert handle.log.end_offset == 2


def test_full_disk_refuses_and_goes_on_afterwards(broker, now):
    handle = broker.topic("orders")
    assert broker.one("orders", 0, batch()).errorCode == 0
    rule = broker.system.fault("pwritev", "error", errno=28)
    assert broker.one("orders", 0, batch()).errorCode == 56
    assert broker.system.fired(rule) == 1
    got = broker.one("orders", 0, batch())
    assert (got.errorCode, got.baseOffset) == (0, 3)
    assert handle.high_watermark == 6
