"""One of two log directories is on a slow disk: clients of partitions in the other one do not wait
for it, producers beside slow writes and flushes and consumers beside fetches of records that are
not in the page cache. Their requests take at most twice as long as without load on the slow disk,
in alternate rounds (tests/hostile/beside_others.py).

The delays are rules of the system-call table for files below the slow directory.
"""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compat.support import Wire
from durability.armed_broker import ArmedBroker
from durability.evicted import evict
from hostile.beside_others import compare
from node.test_settings import create, fetch, produce

pytestmark = pytest.mark.takes(seconds=5)

CALLS_MIN, ROUND_S = 20, 0.5
CLIENTS = 8
FLUSH_MS = 100
READ_MS = 20
WRITE_MS = 100
COLD_BATCHES = 40  # of 1 KiB: the lookup of one in the middle reads headers


@pytest.fixture
def broker(tmp_path):
    for name in ("fast", "slow"):
        (tmp_path / name).mkdir()
    settings = {"log.dirs": f"{tmp_path / 'fast'},{tmp_path / 'slow'}", "log.durability": "fsync"}
    made = ArmedBroker(tmp_path / "fast", settings)
    yield made
    made.end()


def partitions(folder: Path) -> list[int]:
    return [int(path.name[2:]) for path in folder.glob("t-*")]


@contextlib.contextmanager
def slow_clients(
    broker: ArmedBroker, call: str, delay_ms: int, ask: Callable[[Wire, int], None], times: int = 1
) -> Iterator[None]:
    """Clients of slow partitions, each of which has waited for the disk so many times."""
    rule = broker.fault(
        call=call, action="delay", delay_ms=delay_ms, count=1 << 40, path_contains="/slow/"
    )
    stop, waited = threading.Event(), [threading.Event() for _ in range(CLIENTS)]
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            with Wire(broker.address) as wire:
                for asked in itertools.count(1):
                    ask(wire, number)
                    if asked == times:
                        waited[number].set()
                    if stop.is_set():
                        break
        except (OSError, AssertionError) as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        for event in waited:
            assert event.wait(20), failures
        struck = broker.fired(rule)
        yield
        assert broker.fired(rule) > struck, "the disk was not slow"
    finally:
        stop.set()
        broker.clear_faults()
        for thread in threads:
            thread.join()
    assert not failures


def waits_s(delay_ms: int) -> float:
    """A request that waits for the slow disk takes longer."""
    return delay_ms / 1000 / 4


@pytest.mark.alone(reason="compares p99s")
def test_the_p99_of_partitions_on_another_disk_stays_within_twice(tmp_path, broker):
    with Wire(broker.address) as wire:
        create(wire, "t", {}, 4)
        [fast, *_], [slow, *_] = (partitions(tmp_path / name) for name in ("fast", "slow"))

        def call() -> None:
            assert produce(wire, "t", b"v", partition=fast).errorCode == 0

        def ask(wire: Wire, _: int) -> None:
            assert produce(wire, "t", b"v", partition=slow).errorCode == 0

        compare(
            call,
            lambda: slow_clients(broker, "fdatasync", FLUSH_MS, ask),
            calls=CALLS_MIN,
            round_s=ROUND_S,
            floor_s=waits_s(FLUSH_MS),
        )


@pytest.mark.alone(reason="compares p99s")
def test_writes_that_block_leave_the_p99_of_another_disk_within_twice(tmp_path, broker):
    """The kernel lets a thread sleep in pwritev when a disk takes less than is written. Each
    connection holds up its network thread so once or twice, before it moves to another one."""
    with Wire(broker.address) as wire:
        create(wire, "t", {}, 4)
        [fast, *_], [slow, *_] = (partitions(tmp_path / name) for name in ("fast", "slow"))

        def call() -> None:
            assert produce(wire, "t", b"v", partition=fast, acks=1).errorCode == 0

        def ask(wire: Wire, _: int) -> None:
            assert produce(wire, "t", b"v", partition=slow, acks=1).errorCode == 0

        compare(
            call,
            lambda: slow_clients(broker, "pwritev", WRITE_MS, ask, times=3),
            calls=CALLS_MIN,
            round_s=ROUND_S,
            floor_s=waits_s(WRITE_MS),
        )


@pytest.mark.alone(reason="compares p99s")
def test_fetches_of_cold_records_leave_the_p99_of_another_disk_within_twice(tmp_path, broker):
    """The lookup of an offset reads headers of batches. Once it did so on the network thread."""
    topics = [f"t{number}" for number in range(2 * CLIENTS)]
    with Wire(broker.address) as wire:
        for name in topics:
            create(wire, name)
            for _ in range(COLD_BATCHES):
                assert produce(wire, name, bytes(1024)).errorCode == 0
        places = {path.name[:-2]: path for path in tmp_path.glob("*/t*-0")}
        slow = [name for name in topics if places[name].parent.name == "slow"]
        [fast, *_] = [name for name in topics if name not in slow]
        assert len(slow) == CLIENTS
        if not evict(places[slow[0]] / f"{0:020d}.log"):
            pytest.skip("this file system keeps its pages in memory")

        def call() -> None:
            records_of(wire, fast)

        def ask(wire: Wire, number: int) -> None:
            name = slow[number]
            evict(places[name] / f"{0:020d}.log")
            records_of(wire, name)

        compare(
            call,
            lambda: slow_clients(broker, "pread", READ_MS, ask),
            calls=CALLS_MIN,
            round_s=ROUND_S,
            floor_s=waits_s(READ_MS),
        )


def records_of(wire: Wire, topic: str) -> None:
    [row] = fetch(wire, topic, offset=COLD_BATCHES // 2, size_max=4096).responses[0].partitions
    assert row.errorCode == 0 and len(row.records) > 1024
