"""One of two log directories is on a disk with slow flushes: producers of partitions in the other
one do not wait for it. Their p99 stays within twice the value without the slow disk.

The delay is a rule of the system-call table for files below the slow directory. Both values are
measured alternately in one run, and the median round of each counts, as in
tests/hostile/test_slow_peers.py.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
from compat.support import Wire
from durability.armed_broker import ArmedBroker
from node.test_settings import create, produce

pytestmark = pytest.mark.takes(seconds=5)

CALLS_MIN, ROUND_S, ROUNDS_MIN, ROUNDS_MAX, TIMES_MAX = 20, 0.5, 3, 8, 2.0
CLIENTS = 8
FLUSH_MS = 100


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
def producers_of(broker: ArmedBroker, partition: int) -> Iterator[None]:
    """Producers of a slow partition, each of which has waited for the disk once."""
    rule = broker.fault(
        call="fdatasync",
        action="delay",
        delay_ms=FLUSH_MS,
        count=1 << 40,
        path_contains=f"/slow/t-{partition}/",
    )
    stop, waited = threading.Event(), [threading.Event() for _ in range(CLIENTS)]
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            with Wire(broker.address) as wire:
                while not stop.is_set():
                    assert produce(wire, "t", b"v", partition=partition).errorCode == 0
                    waited[number].set()
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


def p99_s(call) -> float:
    took: list[float] = []
    until = time.monotonic() + ROUND_S
    while len(took) < CALLS_MIN or time.monotonic() < until:
        began = time.monotonic()
        call()
        took.append(time.monotonic() - began)
    return sorted(took)[len(took) * 99 // 100]


@pytest.mark.alone(reason="compares p99s")
def test_the_p99_of_partitions_on_another_disk_stays_within_twice(tmp_path, broker):
    with Wire(broker.address) as wire:
        create(wire, "t", {}, 4)
        [fast, *_], [slow, *_] = (partitions(tmp_path / name) for name in ("fast", "slow"))

        def call() -> None:
            assert produce(wire, "t", b"v", partition=fast).errorCode == 0

        p99_s(call)  # warm
        before, during = [], []
        for number in range(ROUNDS_MAX):
            before.append(p99_s(call))
            with producers_of(broker, slow):
                during.append(p99_s(call))
            if number + 1 >= ROUNDS_MIN and median(during) <= TIMES_MAX * median(before):
                break
    print([f"{1000 * row:.2f}" for row in before], [f"{1000 * row:.2f}" for row in during], "ms")
    assert median(during) <= TIMES_MAX * median(before), (before, during)
