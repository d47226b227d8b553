"""log.durability=fsync: records are acknowledged and visible after fdatasync, never after a failed
one."""

import threading
import time

import pytest
from oracle.produce import batch, partitions_of, produce_answer

pytestmark = pytest.mark.alone(
    reason="measures waits of 0.1 s with bounds that a busy neighbour exceeds"
)


def answer_of(frame):
    return partitions_of(produce_answer(frame))[0]


def test_acks_all_waits_for_fdatasync(broker):
    handle = broker.topic("orders")
    rule = broker.system.fault("fdatasync", "delay", delay_ms=300)
    began = time.monotonic()
    parked = broker.send([("orders", 0, batch())], wait=False)
    assert parked.resume(100) is parked
    assert handle.log.end_offset == 3
    assert handle.high_watermark == 0
    frame = parked.resume()
    assert time.monotonic() - began >= 0.3
    assert broker.system.fired(rule) == 1
    assert (answer_of(frame).errorCode, handle.high_watermark) == (0, 3)


def test_acks_1_is_answered_before_it_and_seen_after_a_commit(broker):
    handle = broker.topic("orders")
    assert broker.one("orders", 0, batch(), acks=1).errorCode == 0
    assert handle.high_watermark == 0
    assert handle.commit(2000)
    assert handle.high_watermark == 3


def test_failed_fdatasync_is_an_error_and_no_later_success(broker):
    handle = broker.topic("orders")
    broker.topic("bystander")
    rule = broker.system.fault("fdatasync", "error", errno=5, path_contains="orders")
    got = broker.one("orders", 0, batch())
    assert broker.system.fired(rule) == 1
    assert got.errorCode == 56
    assert handle.offline
    assert handle.high_watermark == 0
    for acks in (-1, 1):
        assert broker.one("orders", 0, batch(), acks=acks).errorCode == 56
    assert not handle.commit(200)
    assert handle.high_watermark == 0
    assert broker.one("bystander", 0, batch()).errorCode == 0


def test_timeout_of_a_slow_disk(broker):
    broker.topic("orders")
    broker.system.fault("fdatasync", "delay", delay_ms=400)
    began = time.monotonic()
    got = broker.one("orders", 0, batch(), timeout_ms=80)
    assert (got.errorCode, got.baseOffset) == (7, 0)
    assert time.monotonic() - began < 0.39


def test_many_appends_share_a_flush(make_broker):
    broker = make_broker()
    broker.topic("orders")
    broker.system.count_calls()
    broker.system.fault("fdatasync", "delay", delay_ms=20, count=1000)
    parked = [broker.send([("orders", 0, batch(1))], wait=False) for _ in range(200)]
    frames = [one.resume() for one in parked]
    assert sorted(answer_of(frame).baseOffset for frame in frames) == list(range(200))
    assert all(answer_of(frame).errorCode == 0 for frame in frames)
    assert 1 <= broker.system.calls("fdatasync") <= 20


def test_flush_threads_work_side_by_side(make_broker):
    broker = make_broker(flush_threads=4)
    broker.topic("orders", partitions=4)
    broker.system.fault("fdatasync", "delay", delay_ms=200, count=100)
    began = time.monotonic()
    answer = broker.send([("orders", index, batch()) for index in range(4)])
    assert [p.errorCode for p in partitions_of(answer)] == [0] * 4
    assert 0.2 <= time.monotonic() - began < 0.7


def flush_threads():
    return sum(thread.name.startswith("flush-") for thread in threading.enumerate())


def test_f25_flush_threads_start_when_logs_wait_for_them(make_broker):
    before = flush_threads()
    broker = make_broker(flush_threads=4)
    broker.topic("orders", partitions=8)
    broker.system.fault("fdatasync", "delay", delay_ms=50, count=100)
    assert flush_threads() == before + 1
    for index in range(3):
        assert broker.one("orders", index, batch()).errorCode == 0
    assert flush_threads() == before + 1
    answer = broker.send([("orders", index, batch()) for index in range(8)])
    assert [p.errorCode for p in partitions_of(answer)] == [0] * 8
    assert flush_threads() == before + 4
    broker.table.close()
    assert flush_threads() == before


def test_os_durability_needs_no_fdatasync(make_broker):
    broker = make_broker("os")
    handle = broker.topic("orders")
    broker.system.count_calls()
    assert isinstance(broker.native.handle_frame(frame_of("orders")), bytes)
    assert handle.high_watermark == 3
    assert handle.commit(0)
    assert broker.system.calls("fdatasync") == 0


def frame_of(topic):
    from oracle.produce import produce_frame

    return produce_frame([(topic, 0, batch())])


def test_a_removed_partition_wakes_waiting_requests(broker):
    handle = broker.topic("orders")
    broker.system.fault("fdatasync", "delay", delay_ms=250)
    parked = broker.send([("orders", 0, batch())], wait=False)
    remover = threading.Thread(target=broker.table.remove_topic, args=("orders",))
    remover.start()
    code = answer_of(parked.resume()).errorCode
    remover.join()
    assert code == 3
    assert not handle.alive
    assert handle.log is None
    assert not handle.commit(50)


def test_a_new_leader_wakes_waiting_requests(broker):
    broker.topic("orders")
    broker.system.fault("fdatasync", "delay", delay_ms=400)
    parked = broker.send([("orders", 0, batch())], wait=False)
    threading.Timer(
        0.05,
        lambda: broker.table.set_leader("orders", 0, leader_id=2, leader_epoch=1),
    ).start()
    began = time.monotonic()
    assert answer_of(parked.resume()).errorCode == 6
    assert time.monotonic() - began < 0.39


def test_closed_group_commit_flushes_what_was_asked_for(broker):
    broker.topic("orders")
    broker.system.fault("fdatasync", "delay", delay_ms=50)
    parked = broker.send([("orders", 0, batch())], wait=False)
    broker.table.close()
    assert answer_of(parked.resume()).errorCode == 0
    assert broker.one("orders", 0, batch(), timeout_ms=50).errorCode == 7


def test_flush_thread_counts_are_checked(broker, tmp_path):
    with pytest.raises(ValueError, match="thread_count is"):
        broker.table.add_directory(str(tmp_path / "other"), flush_threads=0)
