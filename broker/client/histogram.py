"""Counts latencies in buckets: 32 for each power of two, so a percentile is wrong by 3 % at most.

Memory and the time of an addition do not grow with the number of values; 64-bit times need 1,900
buckets.
"""

from collections.abc import Iterator

STEP_BITS = 5
STEPS = 1 << STEP_BITS


class Histogram:
    """A histogram of times in nanoseconds, or of any numbers from 0 on."""

    def __init__(self) -> None:
        self.count, self.largest, self.smallest, self.total = 0, 0, 0, 0
        self._buckets: dict[int, int] = {}

    def add(self, value: int) -> None:
        """Counts one value; a negative one counts as 0."""
        value = max(value, 0)
        self.smallest = min(self.smallest, value) if self.count else value
        self.largest = max(self.largest, value)
        self.count += 1
        self.total += value
        bucket = _bucket(value)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    @property
    def mean(self) -> float:
        """Returns the mean of the values; 0.0 without values."""
        return self.total / self.count if self.count else 0.0

    def percentile(self, part: float) -> int:
        """Returns an upper bound of a percentile: the largest value of its bucket, and at most the
        largest value that was added. `part`: from 0 to 1, so 0.99 for p99."""
        wanted, passed = part * self.count, 0
        for bucket in sorted(self._buckets):
            passed += self._buckets[bucket]
            if passed >= wanted:
                return min(_end(bucket) - 1, self.largest)
        return self.largest

    def doublings(self) -> Iterator[tuple[int, int, int]]:
        """Yields (from, to, count) of each power of two between the smallest and the largest
        value."""
        counts: dict[int, int] = {}
        for bucket, count in self._buckets.items():
            power = max(_end(bucket) - 1, 1).bit_length() - 1
            counts[power] = counts.get(power, 0) + count
        for power in range(min(counts, default=0), max(counts, default=-1) + 1):
            yield 1 << power, 1 << (power + 1), counts.get(power, 0)


def _bucket(value: int) -> int:
    shift = max(value.bit_length() - STEP_BITS - 1, 0)
    return (shift << STEP_BITS) + (value >> shift)


def _end(bucket: int) -> int:
    """Returns the first value after a bucket."""
    if bucket < 2 * STEPS:
        return bucket + 1
    shift = (bucket >> STEP_BITS) - 1
    return (bucket - (shift << STEP_BITS) + 1) << shift
