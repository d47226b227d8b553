"""How many logins went well and failed, by listener, under the names of Kafka's Selector."""

from __future__ import annotations

import threading
from collections import Counter

SUCCESS, FAILURE = "successful-authentication", "failed-authentication"
AGAIN_SUCCESS, AGAIN_FAILURE = "successful-reauthentication", "failed-reauthentication"
# Beside SUCCESS: of a client that cannot log in again, so that its connection closes at the end.
NO_AGAIN = "successful-authentication-no-reauth"


class LoginCounts:
    """Any thread may count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, listener: str, name: str) -> None:
        with self._lock:
            self._counts[listener, name] += 1

    def of(self, listener: str, name: str) -> int:
        with self._lock:
            return self._counts[listener, name]
