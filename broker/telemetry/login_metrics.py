"""Logins by listener, as Kafka counts them; a listener that asks for no login has no samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from barnabas.security.login_counts import (
    AGAIN_FAILURE,
    AGAIN_SUCCESS,
    FAILURE,
    NO_AGAIN,
    SUCCESS,
)
from barnabas.security.logins import Logins
from barnabas.telemetry.registry import COUNTER, Family, Metric, Page, of_mbean

MEANINGS = {
    SUCCESS: "First logins of connections",
    FAILURE: "Logins that failed",
    AGAIN_SUCCESS: "Logins of clients that had logged in before on their connection (KIP-368)",
    AGAIN_FAILURE: "Such logins that failed",
    NO_AGAIN: "First logins of clients that are too old to log in again on their connection",
}


def _metric(name: str, meaning: str) -> Metric:
    bean = f"kafka.server:type=socket-server-metrics,attribute={name}-total"
    return of_mbean(bean, COUNTER, meaning, ("listener",))


METRICS_BY_NAME = {name: _metric(name, meaning) for name, meaning in MEANINGS.items()}
METRICS = tuple(METRICS_BY_NAME.values())


class LoginCollector:
    """The collector of one broker's logins."""

    def __init__(self, logins: Callable[[], Logins]) -> None:
        self._logins = logins

    def __call__(self, page: Page) -> Iterator[Family]:
        logins = self._logins()
        for name, metric in METRICS_BY_NAME.items():
            yield (
                metric,
                [
                    (page.labels(listener=listener), logins.counts.of(listener, name))
                    for listener in logins.listeners
                ],
            )
