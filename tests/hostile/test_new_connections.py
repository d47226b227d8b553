"""1,000 new connections a second: the p99 of a client that produces all the time stays within twice
the value without them. Both are measured alternately in one run, and the median round of each
counts, as in test_slow_peers.py.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
from hostile.raw import error_of
from long_form import pick

from barnabas.cext.record.records import Record, encode_batch

TESTS = Path(__file__).resolve().parents[1]
RATE = 1000
CALLS_A_SECOND = 500
RATE_MIN = 0.9 * RATE
ROUND_S = pick(short=1.0, long=20.0)
ROUNDS_MIN, ROUNDS_MAX = 3, 12
TIMES_MAX = 2.0
BATCH = encode_batch([Record(b"v" * 100, timestamp=1)])
GROWTH_MAX = 16 << 20


@contextlib.contextmanager
def storm(broker, rates: list[float]) -> Iterator[None]:
    """Appends the rate that it reached to `rates`."""
    command = [sys.executable, "-m", "hostile.connection_storm", str(broker.port), str(RATE)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(TESTS)},
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            assert process.stdout.readline() == "open\n"
            yield
        finally:
            process.stdin.close()
            words = process.stdout.read().split()
        rates.append(float(words[0]) / float(words[1]))


def p99_s(call) -> float:
    """Of a client that sends CALLS_A_SECOND; a call that is late delays no later one."""
    took: list[float] = []
    start = time.monotonic()
    for number in range(int(ROUND_S * CALLS_A_SECOND)):
        time.sleep(max(0.0, start + number / CALLS_A_SECOND - time.monotonic()))
        began = time.monotonic()
        call()
        took.append(time.monotonic() - began)
    return sorted(took)[len(took) * 99 // 100]


@pytest.mark.timeout(pick(short=300, long=1200))
@pytest.mark.alone(reason="compares p99s of a fifth of a millisecond")
def test_the_p99_of_others_stays_within_twice(broker, neighbour):
    def call() -> None:
        assert error_of(neighbour, BATCH, acks=1) == 0

    p99_s(call)  # warm
    before, during, rates = [], [], []
    for _ in range(ROUNDS_MAX):
        before.append(p99_s(call))
        with storm(broker, rates):
            during.append(p99_s(call))
        if rates[-1] < RATE_MIN:  # the machine was too busy for the storm
            before.pop(), during.pop()
        elif len(during) >= ROUNDS_MIN and median(during) <= TIMES_MAX * median(before):
            break
    print([f"{1000 * row:.2f}" for row in before], [f"{1000 * row:.2f}" for row in during], "ms")
    print([f"{row:.0f}" for row in rates], "connections a second")
    assert len(during) >= ROUNDS_MIN
    assert median(during) <= TIMES_MAX * median(before), (before, during)
