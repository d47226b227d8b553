"""Rates and quantiles of the last minutes, from counters that only grow.

Kafka's quantiles and rates drop old values; counters in cext only grow. Some reads of the page keep
a snapshot, and later reads subtract the snapshot of some minutes ago.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import Generic, TypeVar

from barnabas.cext.memory.histogram import bucket_bounds_ns
from barnabas.telemetry.registry import QUANTILES, Summary

T = TypeVar("T")

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
MINUTE_NS = 60 * NS_PER_S
QUANTILES_SPAN_NS = 5 * MINUTE_NS  # about as far back as Kafka's samples reach
SHARES = tuple(float(quantile) for quantile in QUANTILES)


class Recent(Generic[T]):
    """Snapshots of the last `span_ns`, one for each tenth of it."""

    def __init__(self, span_ns: int, began_ns: int, first: T) -> None:
        self._span_ns = span_ns
        self._lock = threading.Lock()
        self._seen: deque[tuple[int, T]] = deque([(began_ns, first)])

    def before(self, now_ns: int, value: T) -> tuple[int, T]:
        """Returns (time, snapshot) of the snapshot that is `span_ns` old, or of the oldest one."""
        with self._lock:
            while len(self._seen) > 1 and self._seen[1][0] <= now_ns - self._span_ns:
                self._seen.popleft()
            found = self._seen[0]
            if now_ns - self._seen[-1][0] >= self._span_ns // 10:
                self._seen.append((now_ns, value))
            return found


class RecentRate:
    """The rate at which a count grew in the last minute. For a count of ns it is the share of that
    time."""

    def __init__(self, began_ns: int, first: float = 0) -> None:
        self._recent: Recent[float] = Recent(MINUTE_NS, began_ns, first)

    def per_ns(self, now_ns: int, value: float) -> float:
        """Returns the growth per ns in the last minute, for a count that is `value` now."""
        then_ns, before = self._recent.before(now_ns, value)
        return (value - before) / (now_ns - then_ns) if now_ns > then_ns else 0.0


Buckets = Mapping[int, int]


def quantiles_ms(buckets: Buckets) -> tuple[float, ...]:
    """Returns the QUANTILES of a histogram of cext, in ms; NaN for an empty histogram."""
    total = sum(buckets.values())
    if total <= 0:
        return (float("nan"),) * len(SHARES)
    found: list[float] = []
    passed = 0
    for bucket in sorted(buckets):
        count = buckets[bucket]
        while len(found) < len(SHARES) and passed + count >= SHARES[len(found)] * total:
            low, high = bucket_bounds_ns(bucket)
            inside = (SHARES[len(found)] * total - passed) / count
            # The first bucket holds times that are too short for this clock: they count as 0.
            found.append(round((low + (high - low) * inside) / NS_PER_MS, 6) if bucket else 0.0)
        passed += count
    return tuple(found)


class RecentTimes:
    """Makes a summary, in ms, from a histogram of cext whose counts grow."""

    def __init__(self, began_ns: int) -> None:
        self._recent: Recent[Buckets] = Recent(QUANTILES_SPAN_NS, began_ns, {})

    def summary(self, now_ns: int, sum_ns: int, buckets: Buckets) -> Summary:
        """Returns the summary. `sum_ns`, `buckets`: the sum and the histogram since the start."""
        _, before = self._recent.before(now_ns, buckets)
        lately = {
            bucket: count - before.get(bucket, 0)
            for bucket, count in buckets.items()
            if count > before.get(bucket, 0)
        }
        return Summary(quantiles_ms(lately), sum(buckets.values()), sum_ns / NS_PER_MS)
