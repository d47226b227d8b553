"""Counts logins that succeeded and failed, by listener, under the names of Kafka's Selector, and
the times of re-authentications (KIP-368)."""

from __future__ import annotations

import threading
from collections import Counter, deque
from typing import NamedTuple

SUCCESS, FAILURE = "successful-authentication", "failed-authentication"
REAUTH_SUCCESS, REAUTH_FAILURE = "successful-reauthentication", "failed-reauthentication"
# Beside SUCCESS: of a client that cannot log in again, so that its connection closes at the end.
SUCCESS_NO_REAUTH = "successful-authentication-no-reauth"
WINDOW_NS, WINDOWS = 30_000_000_000, 2  # Kafka's defaults of metrics.sample.window.ms and .num


class _Times(NamedTuple):
    """The re-authentications of one window."""

    began_ns: int
    login_count: int
    sum_ms: float
    most_ms: float


class LoginCounts:
    """The counts of one broker. Any thread may call the methods."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._times: dict[str, deque[_Times]] = {}  # by listener

    def add(self, listener: str, name: str) -> None:
        """Adds one to the count `name` (SUCCESS, ...) of a listener."""
        with self._lock:
            self._counts[listener, name] += 1

    def of(self, listener: str, name: str) -> int:
        """Returns the count `name` (SUCCESS, ...) of a listener since the start."""
        with self._lock:
            return self._counts[listener, name]

    def add_reauth(self, listener: str, began_ns: int, now_ns: int) -> None:
        """Counts a re-authentication. `began_ns`: when its SaslHandshake arrived, `now_ns`: when it
        succeeded, both on the monotonic clock."""
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

    def reauth_times_ms(self, listener: str, now_ns: int) -> tuple[float, float]:
        """Returns the average and the longest re-authentication of the last windows in ms; NaN when
        there was none. `now_ns`: the monotonic clock."""
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
