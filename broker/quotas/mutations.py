"""The quota of controller mutations (KIP-599): partitions created and deleted a second.

A token bucket, as Kafka's TokenBucket: its size is the quota of all windows together
(controller.quota.window.num times controller.quota.window.size.seconds). A request may take more
tokens than there are when the balance is not negative. Then requests are refused until the balance
is 0 again; requests of old versions are carried out, and their client is throttled.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.errors import ThrottlingQuotaExceeded

EXCEEDED = "The throttling quota has been exceeded."


class TokenBucket:
    """The bucket of the clients with equal tags. Its owner calls it on one thread at a time."""

    def __init__(self, burst_s: float, limit: float, now_ms: int) -> None:
        self.limit = limit  # tokens a second
        self._burst_s = burst_s
        self._tokens = burst_s * limit
        self._filled_ms = now_ms

    def tokens(self, now_ms: int) -> float:
        """Returns the balance in tokens; it may be negative."""
        gained = self.limit * (now_ms - self._filled_ms) / 1000
        self._tokens = min(self._burst_s * self.limit, self._tokens + gained)
        self._filled_ms = now_ms
        return self._tokens

    def is_full(self, now_ms: int) -> bool:
        return self.tokens(now_ms) >= self._burst_s * self.limit

    def take(self, count: float, now_ms: int) -> None:
        self._tokens = self.tokens(now_ms) - count

    def wait_ms(self, now_ms: int) -> int:
        """Returns the time in ms until the balance is 0."""
        return max(0, round(-self.tokens(now_ms) / self.limit * 1000))


def charge(
    bucket: TokenBucket, count: int, now_ms: int, is_strict: bool, throttle: Callable[[int], object]
) -> None:
    """Takes the tokens of a number of partitions. With a negative balance, calls `throttle` with
    the time to wait, and
    raises ThrottlingQuotaExceeded if `is_strict`, before it takes any."""
    if is_strict and bucket.wait_ms(now_ms):
        throttle(bucket.wait_ms(now_ms))
        raise ThrottlingQuotaExceeded(EXCEEDED)
    bucket.take(count, now_ms)
    if not is_strict and bucket.wait_ms(now_ms):
        throttle(bucket.wait_ms(now_ms))
