"""How long a fetch waits, what wakes it, and which resources it holds meanwhile."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from native.fetch_broker import FetchBroker, decoded
from oracle.fetch_scenarios import batch, part, step

from barnabas.cext.fetch.fetch import ParkedFetch

pytestmark = pytest.mark.alone(
    reason="measures waits of 0.1 s with bounds that a busy neighbour exceeds"
)

LONG_MS = 20_000
BATCH = batch(100)


@pytest.fixture(params=["os", "fsync"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FetchBroker]:
    made = FetchBroker(tmp_path, {"t": 3}, durability=request.param)
    yield made
    made.close()


def parked(broker: FetchBroker, **fields: Any) -> ParkedFetch:
    waiting = broker.start(step("s", **{"max_wait_ms": LONG_MS, **fields}))[1]
    assert isinstance(waiting, ParkedFetch)
    return waiting


def record_bytes(frame: bytes) -> list[int]:
    answer = decoded(frame, 16)
    return [len(p.records) for topic in answer.responses for p in topic.partitions]


def ended(waiting: ParkedFetch) -> tuple[float, bytes]:
    began = time.monotonic()
    frame = waiting.wait()
    return time.monotonic() - began, frame


def test_wait_ends_when_records_become_visible(broker: FetchBroker) -> None:
    waiting = parked(broker, topics=[("t", [part(0, 0), part(1, 0), part(2, 0)])])
    assert waiting.resume() is None  # woken without new records: it continues to wait
    threading.Timer(0.1, lambda: broker.append("t", 1, BATCH)).start()
    seconds, frame = ended(waiting)
    assert 0.05 < seconds < 5
    assert record_bytes(frame) == [0, len(BATCH), 0]
    with pytest.raises(ValueError):
        waiting.resume()


def test_wait_for_min_bytes_survives_wakes_that_bring_too_little(broker: FetchBroker) -> None:
    wanted = [("t", [part(0, 0), part(1, 0)])]
    waiting = parked(broker, topics=wanted, min_bytes=3 * len(BATCH))
    for index in (0, 1):
        broker.append("t", index, BATCH)
        assert waiting.resume() is None
    broker.append("t", 1, BATCH)  # its watch was set again
    seconds, frame = ended(waiting)
    assert seconds < 5
    assert record_bytes(frame) == [len(BATCH), 2 * len(BATCH)]


def test_wait_ends_at_its_deadline_with_what_there_is(broker: FetchBroker) -> None:
    broker.append("t", 0, BATCH)
    wanted = [("t", [part(0, 0)])]
    began = time.monotonic()
    waiting = parked(broker, topics=wanted, min_bytes=10_000, max_wait_ms=150)
    _, frame = ended(waiting)
    assert 0.14 < time.monotonic() - began < 5
    assert record_bytes(frame) == [len(BATCH)]
    assert broker.native.counters["expired"] == 1


def test_wait_ends_when_the_partition_is_removed(broker: FetchBroker) -> None:
    waiting = parked(broker, topics=[("t", [part(0, 0)])])
    threading.Timer(0.1, lambda: broker.table.remove_topic("t")).start()
    seconds, frame = ended(waiting)
    assert seconds < 5
    assert decoded(frame, 16).responses[0].partitions[0].errorCode in (3, 100)


def test_wait_ends_when_the_leader_changes(broker: FetchBroker) -> None:
    """A consumer that knows no epoch of the leader, and may read from a follower, still waits."""
    old = parked(broker, version=10, topics=[("t", [part(0, 0)])])
    by_epoch = parked(broker, topics=[("t", [part(0, 0, epoch=0)])])
    anywhere = parked(broker, topics=[("t", [part(0, 0)])])
    broker.table.set_leader("t", 0, leader_id=9, leader_epoch=5)
    frame = old.resume()
    assert frame is not None
    assert decoded(frame, 10).responses[0].partitions[0].errorCode == 6  # NOT_LEADER_OR_FOLLOWER
    frame = by_epoch.resume()
    assert frame is not None
    answered = decoded(frame, 16).responses[0].partitions[0]
    assert answered.errorCode == 74  # FENCED_LEADER_EPOCH
    assert (answered.currentLeader.leaderId, answered.currentLeader.leaderEpoch) == (9, 5)
    assert anywhere.resume() is None


def test_abandoned_wait_releases_everything(broker: FetchBroker) -> None:
    waiting = parked(broker, topics=[("t", [part(0, 0)])], session="new", epoch=0)
    waiting.abandon()
    waiting.abandon()
    broker.append("t", 0, BATCH)  # its watches are removed: nothing is woken
    del waiting
    left = parked(broker, topics=[("t", [part(1, 0)])])
    del left  # abandoned by its end
    broker.append("t", 1, BATCH)
    assert broker.sessions.counters["sessions"] == 0


def test_two_requests_of_one_session_the_older_gets_71(broker: FetchBroker) -> None:
    new = broker.start(step("s", session="new", epoch=0, topics=[("t", [part(0, 0)])]))[1]
    assert isinstance(new, bytes)
    broker.runner.form(decoded(new, 16), 0)
    older = parked(broker, session="last", epoch=1)
    newer = parked(broker, session="last", epoch=2)
    broker.append("t", 0, BATCH)
    assert decoded(older.wait(), 16).errorCode == 71
    assert record_bytes(newer.wait()) == [len(BATCH)]


def test_session_closed_during_a_wait_leaves_the_wait_whole(broker: FetchBroker) -> None:
    new = broker.start(step("s", session="new", epoch=0, topics=[("t", [part(0, 0)])]))[1]
    assert isinstance(new, bytes)
    broker.runner.form(decoded(new, 16), 0)
    waiting = parked(broker, session="last", epoch=1)
    broker.sessions.slots_max = 0
    broker.append("t", 0, BATCH)
    assert record_bytes(waiting.wait()) == [len(BATCH)]
    assert broker.sessions.counters["memory_bytes"] == 0


def test_many_waits_and_appends_at_once_lose_nothing(broker: FetchBroker) -> None:
    """Readers on threads follow three partitions while batches are appended."""
    rounds = 40
    seen: list[int] = []

    def follow() -> None:
        offsets = [0, 0, 0]
        while sum(offsets) < 3 * rounds:
            wanted = [("t", [part(index, offset) for index, offset in enumerate(offsets)])]
            answer = broker.start(step("s", max_wait_ms=LONG_MS, topics=wanted))[1]
            frame = answer.wait() if isinstance(answer, ParkedFetch) else answer
            for index, size in enumerate(record_bytes(frame)):
                offsets[index] += size // len(BATCH)
        seen.append(sum(offsets))

    readers = [threading.Thread(target=follow) for _ in range(4)]
    began = time.monotonic()
    for reader in readers:
        reader.start()
    for _ in range(rounds):
        for index in range(3):
            broker.append("t", index, BATCH)
    for reader in readers:
        reader.join()
    assert seen == [3 * rounds] * 4
    assert time.monotonic() - began < LONG_MS / 1000


def test_unflushed_records_are_waited_for_and_then_seen(tmp_path: Path) -> None:
    """acks=1 records are appended and not yet on disk, and no other request asks for a flush."""
    broker = FetchBroker(tmp_path, {"t": 1}, durability="fsync")
    broker.append_unseen("t", 0, BATCH)
    slow = broker.system.fault("fdatasync", "delay", delay_ms=100)
    waiting = parked(broker, topics=[("t", [part(0, 0)])])
    seconds, frame = ended(waiting)
    assert broker.system.fired(slow) == 1
    assert 0.05 < seconds < 5
    assert record_bytes(frame) == [len(BATCH)]
    broker.close()


def test_unflushed_records_without_time_to_wait_are_seen_by_the_next(tmp_path: Path) -> None:
    broker = FetchBroker(tmp_path, {"t": 1}, durability="fsync")
    broker.append_unseen("t", 0, BATCH)
    slow = broker.system.fault("fdatasync", "delay", delay_ms=300)
    began = time.monotonic()
    first = broker.start(step("s", topics=[("t", [part(0, 0)])]))[1]
    assert isinstance(first, bytes) and time.monotonic() - began < 0.25
    assert decoded(first, 16).responses[0].partitions[0].errorCode == 0
    assert record_bytes(first) == [0]
    deadline = time.monotonic() + 5
    while broker.parts["t", 0].high_watermark < 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    second = broker.start(step("s", topics=[("t", [part(0, 0)])]))[1]
    assert isinstance(second, bytes) and record_bytes(second) == [len(BATCH)]
    assert broker.system.fired(slow) == 1
    broker.close()


def test_failed_flush_ends_the_wait_with_a_storage_error(tmp_path: Path) -> None:
    broker = FetchBroker(tmp_path, {"t": 1}, durability="fsync")
    broker.append_unseen("t", 0, BATCH)
    failing = broker.system.fault("fdatasync", "error", errno=5)
    began = time.monotonic()
    answer = broker.start(step("s", max_wait_ms=LONG_MS, topics=[("t", [part(0, 0)])]))[1]
    frame = answer.wait() if isinstance(answer, ParkedFetch) else answer  # it may have failed
    assert broker.system.fired(failing) == 1 and time.monotonic() - began < 5
    assert decoded(frame, 16).responses[0].partitions[0].errorCode == 56
    broker.close()
