"""A separate thread reads records that are not in memory before they are sent."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from native.fetch_broker import FetchBroker, decoded
from oracle.fetch_scenarios import batch, part, step

from barnabas.cext.fetch.fetch import ParkedFetch

BATCH = batch(1000)
WANTED = step("s", topics=[("t", [part(0, 0), part(1, 0)])])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[FetchBroker]:
    made = FetchBroker(tmp_path, {"t": 2})
    for index in range(2):
        made.append("t", index, BATCH)
    yield made
    made.close()


def sizes(frame: bytes | None) -> list[int]:
    assert frame is not None
    return [len(p.records) for p in decoded(frame, 16).responses[0].partitions]


def test_cold_records_are_read_first_and_then_answered(broker: FetchBroker) -> None:
    broker.native.start(1)
    cold = broker.system.fault("is_cached", "error", errno=11, count=2)
    broker.system.fault("pread", "delay", delay_ms=100, count=20)
    waiting = broker.start(WANTED)[1]
    assert isinstance(waiting, ParkedFetch)
    began = time.monotonic()
    assert waiting.resume() is None  # woken although nothing has changed
    assert sizes(waiting.wait()) == [len(BATCH)] * 2
    assert time.monotonic() - began >= 0.15  # both ranges, one after the other
    assert broker.system.fired(cold) == 2
    assert broker.native.counters["cold_waits"] == 1
    assert broker.native.counters["cold_bytes_read"] == 2 * len(BATCH)


def test_cold_records_are_sent_as_they_are_when_no_thread_can_read_them(
    broker: FetchBroker,
) -> None:
    broker.system.fault("is_cached", "error", errno=11, count=2)
    frame = broker.start(WANTED)[1]
    assert isinstance(frame, bytes) and sizes(frame) == [len(BATCH)] * 2
    assert broker.native.counters["cold_refused"] == 2


def test_cold_wait_at_its_deadline_is_answered_all_the_same(broker: FetchBroker) -> None:
    broker.native.start(1)
    broker.system.fault("is_cached", "error", errno=11, count=2)
    broker.system.fault("pread", "delay", delay_ms=100, count=20)
    waiting = broker.start(WANTED)[1]
    assert isinstance(waiting, ParkedFetch)
    assert sizes(waiting.resume(expired=True)) == [len(BATCH)] * 2


def test_an_abandoned_cold_wait_is_not_read(broker: FetchBroker) -> None:
    broker.native.start(1)
    broker.system.fault("is_cached", "error", errno=11, count=2)
    broker.system.fault("pread", "delay", delay_ms=50, count=20)
    waiting = broker.start(WANTED)[1]
    assert isinstance(waiting, ParkedFetch)
    waiting.abandon()
    broker.native.stop()
    assert broker.native.counters["cold_bytes_read"] == 2 * len(BATCH)


def test_cold_queue_has_an_end(tmp_path: Path) -> None:
    broker = FetchBroker(tmp_path, {"t": 8}, cold_depth_max=3)
    for index in range(8):
        broker.append("t", index, BATCH)
    broker.native.start(1)
    broker.system.fault("is_cached", "error", errno=11, count=8)
    broker.system.fault("pread", "delay", delay_ms=50, count=100)
    waiting = broker.start(step("s", topics=[("t", [part(index, 0) for index in range(8)])]))[1]
    assert isinstance(waiting, ParkedFetch)
    assert broker.native.counters["cold_refused"] >= 4
    assert sizes(waiting.wait()) == [len(BATCH)] * 8
    broker.close()


def test_a_slow_log_directory_keeps_no_thread_from_another(tmp_path: Path) -> None:
    broker = FetchBroker(tmp_path, {"t": 2, "s": 8}, directories={"s": tmp_path / "slow"})
    for topic, index in broker.logs:
        broker.append(topic, index, BATCH)
    broker.native.start(2, directory_count=2)
    broker.system.fault("is_cached", "error", errno=11, count=1000)
    slow_reads = broker.system.fault(
        "pread", "delay", delay_ms=100, count=1000, path_contains="/slow/"
    )
    slow = broker.start(step("s", topics=[("s", [part(index, 0) for index in range(8)])]))[1]
    assert isinstance(slow, ParkedFetch)
    fast = broker.start(WANTED)[1]
    assert sizes(fast.wait() if isinstance(fast, ParkedFetch) else fast) == [len(BATCH)] * 2
    assert slow.resume() is None, "both were read one after the other"
    assert sizes(slow.wait()) == [len(BATCH)] * 8
    assert broker.system.fired(slow_reads) >= 16
    broker.close()
