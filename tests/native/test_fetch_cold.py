"""A separate thread reads what is not in memory: records before they are sent, and what the lookup
of an offset needs."""

import time
from collections.abc import Iterator
from errno import EAGAIN
from pathlib import Path

import pytest
from native.fetch_broker import FetchBroker, decoded
from native.test_fetch_committed import data, marker
from oracle.fetch_scenarios import batch, part, step

from barnabas.cext.fetch.fetch import ParkedFetch
from barnabas.cext.log.log_handle import LogSettings

BATCH = batch(1000)
LOOKUPS_MAX, COLD_WAIT_MS = 8, 30_000  # of fetch.pyx
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


def whole(answer: bytes | ParkedFetch) -> bytes:
    """A thread may have read before the request could wait."""
    return answer.wait() if isinstance(answer, ParkedFetch) else answer


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


def test_a_lookup_of_records_that_are_not_in_memory_is_made_on_another_thread(
    broker: FetchBroker,
) -> None:
    broker.native.start(1)
    cold = broker.system.fault("pread_cached", "error", errno=EAGAIN, count=2)
    read = broker.system.fault("pread", "hold")
    waiting = broker.start(WANTED)[1]  # the calling thread does not meet the rule `hold`
    assert isinstance(waiting, ParkedFetch)
    assert waiting.resume() is None
    broker.system.release(read)
    assert sizes(waiting.wait()) == [len(BATCH)] * 2
    assert broker.system.fired(cold) == 2 and broker.system.fired(read) == 1
    assert broker.native.counters["cold_waits"] == 1


def test_a_lookup_is_made_where_no_thread_can_read(broker: FetchBroker) -> None:
    broker.system.fault("pread_cached", "error", errno=EAGAIN, count=2)
    frame = broker.start(WANTED)[1]
    assert isinstance(frame, bytes) and sizes(frame) == [len(BATCH)] * 2


def test_records_that_memory_never_keeps_are_found_all_the_same(broker: FetchBroker) -> None:
    broker.native.start(1)
    cold = broker.system.fault("pread_cached", "error", errno=EAGAIN, count=1000)
    assert sizes(whole(broker.start(WANTED)[1])) == [len(BATCH)] * 2
    assert broker.system.fired(cold) == 2 * LOOKUPS_MAX


def test_a_lookup_that_takes_too_long_leaves_its_records_out(broker: FetchBroker) -> None:
    broker.native.start(1)
    broker.system.fault("pread_cached", "error", errno=EAGAIN, count=1000, path_contains="t-0")
    read = broker.system.fault("pread", "hold", path_contains="t-0")
    waiting = broker.start(WANTED)[1]
    assert isinstance(waiting, ParkedFetch)
    broker.system.move_monotonic(COLD_WAIT_MS)
    assert sizes(waiting.resume(expired=True)) == [0, len(BATCH)]
    broker.system.release(read)


def test_a_lookup_for_which_the_queue_is_full_is_tried_again(tmp_path: Path) -> None:
    broker = FetchBroker(tmp_path, {"t": 8}, cold_depth_max=2)
    for index in range(8):
        broker.append("t", index, BATCH)
    broker.native.start(1)
    broker.system.fault("pread_cached", "error", errno=EAGAIN, count=8)
    broker.system.fault("pread", "delay", delay_ms=20, count=100)
    waiting = broker.start(step("s", topics=[("t", [part(index, 0) for index in range(8)])]))[1]
    assert isinstance(waiting, ParkedFetch)
    assert broker.native.counters["cold_refused"] >= 5
    assert sizes(waiting.wait()) == [len(BATCH)] * 8
    broker.close()


def test_a_lookup_waits_while_the_queue_is_full_of_others(tmp_path: Path) -> None:
    broker = FetchBroker(tmp_path, {"t": 4}, cold_depth_max=1)
    for index in range(4):
        broker.append("t", index, BATCH)
    broker.native.start(1)
    broker.system.fault("pread_cached", "error", errno=EAGAIN, count=4)
    read = broker.system.fault("pread", "hold")
    others = broker.start(step("s", topics=[("t", [part(index, 0) for index in range(3)])]))[1]
    waiting = broker.start(step("s", topics=[("t", [part(3, 0)])]))[1]
    assert isinstance(others, ParkedFetch) and isinstance(waiting, ParkedFetch)
    assert waiting.resume() is None
    broker.system.release(read)
    assert sizes(waiting.wait()) == [len(BATCH)]
    assert sizes(others.wait()) == [len(BATCH)] * 3
    broker.close()


def test_a_request_waits_for_records_after_it_waited_for_a_lookup(broker: FetchBroker) -> None:
    broker.native.start(1)
    cold = broker.system.fault("pread_cached", "error", errno=EAGAIN, count=1)
    wanted = step("s", max_wait_ms=60_000, min_bytes=2 * len(BATCH), topics=[("t", [part(0, 0)])])
    waiting = broker.start(wanted)[1]
    assert isinstance(waiting, ParkedFetch)
    assert broker.system.fired(cold) == 1
    for _ in range(50):  # long enough for the lookup
        assert waiting.resume() is None
        time.sleep(0.001)
    broker.append("t", 0, BATCH)
    began = time.monotonic()
    assert sizes(waiting.wait()) == [2 * len(BATCH)]
    assert time.monotonic() - began < 30


def test_an_abandoned_lookup_ends(broker: FetchBroker) -> None:
    broker.native.start(1)
    broker.system.fault("pread_cached", "error", errno=EAGAIN, count=2)
    read = broker.system.fault("pread", "hold")
    waiting = broker.start(WANTED)[1]
    assert isinstance(waiting, ParkedFetch)
    waiting.abandon()
    broker.system.release(read)
    broker.native.stop()


def test_a_list_of_aborted_transactions_is_read_on_another_thread(broker: FetchBroker) -> None:
    broker.append("t", 0, data(1, 0))
    broker.append("t", 0, marker(1, commit=False))
    broker.native.start(1)
    cold = broker.system.fault(
        "pread_cached", "error", errno=EAGAIN, count=1, path_contains=".txnindex"
    )
    read = broker.system.fault("pread", "hold", path_contains=".txnindex")
    wanted = step("s", version=11, isolation=1, topics=[("t", [part(0, 0)])])
    waiting = broker.start(wanted)[1]
    assert isinstance(waiting, ParkedFetch)
    assert waiting.resume() is None
    broker.system.release(read)
    frame = waiting.wait()
    [row] = decoded(frame, 11).responses[0].partitions
    assert [(one.producerId, one.firstOffset) for one in row.abortedTransactions] == [(1, 1)]
    assert broker.system.fired(cold) == broker.system.fired(read) == 1


def test_a_sealed_segment_whose_index_is_not_in_memory_is_opened_on_another_thread(
    tmp_path: Path,
) -> None:
    broker = FetchBroker(tmp_path, {"t": 1}, open_segments_max=1)
    broker.logs["t", 0].set_config(LogSettings(segment_bytes=2 * len(BATCH)))
    for _ in range(6):
        broker.append("t", 0, BATCH)
    assert broker.logs["t", 0].flush() is None
    for offset in (3, 3):  # closes the first segment, also if the flush held it
        assert sizes(broker.start(step("s", topics=[("t", [part(0, offset)])]))[1]) == [len(BATCH)]
    broker.native.start(1)
    cold = broker.system.fault("is_cached", "error", errno=EAGAIN, path_contains=".index")
    answer = broker.start(step("s", topics=[("t", [part(0, 1)])]))[1]
    assert sizes(whole(answer)) == [len(BATCH)]
    assert broker.system.fired(cold) == broker.native.counters["cold_waits"] == 1
    broker.close()
