"""Counts logins by listener, as Kafka does; a listener without authentication has no samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from barnabas.security.login_counts import (
    FAILURE,
    REAUTH_FAILURE,
    REAUTH_SUCCESS,
    SUCCESS,
    SUCCESS_NO_REAUTH,
)
from barnabas.security.logins import Logins
from barnabas.telemetry.registry import COUNTER, GAUGE, Family, Metric, Page, of_mbean

MEANINGS = {
    SUCCESS: "First logins of connections",
    FAILURE: "Logins that failed",
    REAUTH_SUCCESS: "Logins of clients that had logged in before on their connection (KIP-368)",
    REAUTH_FAILURE: "Such logins that failed",
    SUCCESS_NO_REAUTH: "First logins of clients too old to log in again on their connection",
}


def _metric(name: str, meaning: str, kind: str = COUNTER) -> Metric:
    bean = f"kafka.server:type=socket-server-metrics,attribute={name}"
    return of_mbean(bean, kind, meaning, ("listener",))


METRICS_BY_NAME = {name: _metric(f"{name}-total", meaning) for name, meaning in MEANINGS.items()}
AVERAGE = _metric(
    "reauthentication-latency-avg",
    "Time that a client took to log in again, from SaslHandshake on, in ms: average of the last"
    " minute, NaN without such a login",
    GAUGE,
)
LONGEST = _metric(
    "reauthentication-latency-max", "The longest of these times, in the last minute, in ms", GAUGE
)
METRICS = (*METRICS_BY_NAME.values(), AVERAGE, LONGEST)


class LoginCollector:
    """The collector of one broker's logins. `monotonic_ns`: the clock of the broker."""

    def __init__(self, logins: Callable[[], Logins], monotonic_ns: Callable[[], int]) -> None:
        self._logins = logins
        self._monotonic_ns = monotonic_ns

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
        now_ns = self._monotonic_ns()
        times = {name: logins.counts.reauth_times_ms(name, now_ns) for name in logins.listeners}
        for place, metric in enumerate((AVERAGE, LONGEST)):
            yield metric, [(page.labels(listener=name), times[name][place]) for name in times]
