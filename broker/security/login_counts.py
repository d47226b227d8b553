"""How many logins went well and failed, by listener, under the names of Kafka's Selector, and how
long clients took that logged in again."""

from __future__ import annotations

import threading
from collections import Counter, deque
from typing import NamedTuple

SUCCESS, FAILURE = "successful-authentication", "failed-authentication"
AGAIN_SUCCESS, AGAIN_FAILURE = "successful-reauthentication", "failed-reauthentication"
# Beside SUCCESS: of a client that cannot log in again, so that its connection closes at the end.
NO_AGAIN = "successful-authentication-no-reauth"
WINDOW_NS, WINDOWS = 30_000_000_000, 2  # Kafka's defaults of metrics.sample.window.ms and .num


class _Times(NamedTuple):
    """Of one window."""

    began_ns: int
    login_count: int
    sum_ms: float
    most_ms: float


class LoginCounts:
    """Any thread may count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._times: dict[str, deque[_Times]] = {}  # by listener

    def add(self, listener: str, name: str) -> None:
        with self._lock:
            self._counts[listener, name] += 1

    def of(self, listener: str, name: str) -> int:
        with self._lock:
            return self._counts[listener, name]

    def took_again(self, listener: str, began_ns: int, now_ns: int) -> None:
        """A client has logged in again: SaslHandshake came at `began_ns` (monotonic)."""
        ms = (now_ns - began_ns) / 1_000_000
        with self._lock:
            kept = self._times.setdefault(listener, deque(maxlen=WINDOWS))
            if kept and now_ns - kept[-1].began_ns < WINDOW_NS:
                window = kept.pop()
            else:
                window = _Times(now_ns, 0, 0.0, 0.0)
            kept.append(
                _Times(
                    window.began_ns,
                    window.login_count + 1,
                    window.sum_ms + ms,
                    max(window.most_ms, ms),
                )
            )

    def times_again_ms(self, listener: str, now_ns: int) -> tuple[float, float]:
        """The average and the longest of the last windows; NaN when nobody logged in again."""
        with self._lock:
            kept = [
                window
                for window in self._times.get(listener, ())
                if now_ns - window.began_ns < WINDOWS * WINDOW_NS
            ]
        if not kept:
            return float("nan"), float("nan")
        average = sum(window.sum_ms for window in kept) / sum(window.login_count for window in kept)
        return average, max(window.most_ms for window in kept)
