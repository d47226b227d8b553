"""Compares how long the calls of a client take without and with other load, in alternate rounds.

The load passes when the median call takes at most TIMES_MAX times as long as in the round before
it, by the median of all rounds, and when the p99 of the best round with the load is at most
TIMES_MAX times the usual one without it. On a busy machine most p99s are the time slices of other
programs, a few ms, which come more often after the work of opening a crowd; so the best round
counts, and a p99 below `floor_s` passes: choose less than a request waits that has to wait for the
load. Rounds are added until they pass, up to ROUNDS_MAX.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from statistics import median
from typing import NamedTuple

CALLS = 1_000
ROUNDS_MIN, ROUNDS_MAX = 3, 12
TIMES_MAX = 2.0
P99_FLOOR_S = 0.002  # hostile peers stay for seconds


class Times(NamedTuple):
    median_s: float
    p99_s: float


def timed(call: Callable[[], object], calls: int = CALLS, at_least_s: float = 0.0) -> Times:
    """The times of so many calls, or of more, for `at_least_s`."""
    took: list[float] = []
    until = time.monotonic() + at_least_s
    while len(took) < calls or time.monotonic() < until:
        began = time.monotonic()
        call()
        took.append(time.monotonic() - began)
    return Times(median(took), sorted(took)[len(took) * 99 // 100])


def passes(rounds: Sequence[tuple[Times, Times]], floor_s: float) -> bool:
    """Whether the load passes in these rounds (without it, with it)."""
    medians = median(beside.median_s / alone.median_s for alone, beside in rounds)
    usual_s = median(alone.p99_s for alone, _ in rounds)
    best_s = min(beside.p99_s for _, beside in rounds)
    return medians <= TIMES_MAX and best_s <= max(TIMES_MAX * usual_s, floor_s)


def compare(
    call: Callable[[], object],
    load: Callable[[], AbstractContextManager[object]],
    *,
    calls: int = CALLS,
    round_s: float = 0.0,
    floor_s: float = P99_FLOOR_S,
) -> int:
    """Fails when the calls take longer beside the load. Returns the number of its rounds."""
    timed(call, calls)  # warm
    rounds: list[tuple[Times, Times]] = []
    while len(rounds) < ROUNDS_MIN or not passes(rounds, floor_s):
        shown = [tuple(f"{1000 * s:.2f}" for s in (*one, *two)) for one, two in rounds]
        assert len(rounds) < ROUNDS_MAX, f"ms, median and p99, alone and beside others: {shown}"
        alone = timed(call, calls, round_s)
        with load():
            rounds.append((alone, timed(call, calls, round_s)))
    return len(rounds)
