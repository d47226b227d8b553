"""The /metrics page of one broker: when its port is open, and which collectors write it.

The port opens before anything else, so that a probe learns why a broker that recovers its logs is
not ready yet, and closes when the network has stopped. The first read of the page makes the
collectors: their modules would delay a start. A package with metrics of its own adds a collector to
`registry`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from barnabas.config import BrokerConfig, ConfigError
from barnabas.config.listeners import is_loopback
from barnabas.telemetry.registry import (
    GAUGE,
    Collector,
    Family,
    Page,
    Registry,
    Summary,
    of_mbean,
)

if TYPE_CHECKING:
    from barnabas.telemetry.endpoint import Endpoint
    from barnabas.telemetry.page_protection import Credentials, PageTls

log = logging.getLogger("barnabas.metrics")

CREDENTIALS = "metrics.credentials.file"
# Kafka's numbers of a broker's states.
NOT_RUNNING = 0
STARTING = 1
RECOVERY = 2
RUNNING = 3
SHUTTING_DOWN = 7
PROBLEMS = {
    NOT_RUNNING: "not running",
    STARTING: "starting",
    RECOVERY: "recovering logs after an unclean stop",
    SHUTTING_DOWN: "shutting down",
}
BROKER_STATE = of_mbean(
    "kafka.server:type=KafkaServer,name=BrokerState",
    GAUGE,
    "0 not running, 1 starting, 2 recovering logs, 3 running, 7 shutting down",
)
METRICS = (BROKER_STATE,)


class NoMetricsPage(Exception):
    """A setting asks for the page, and it cannot be served. The message is one line for the
    operator."""


class MetricsPage:
    """The page, its port and the broker's state that it shows."""

    def __init__(
        self,
        config: BrokerConfig,
        default_port: int,
        monotonic_ns: Callable[[], int],
        collectors: Callable[[], Iterable[Collector]],
    ) -> None:
        """`collectors` is called once, at the first read of the page while the broker runs."""
        self.state = NOT_RUNNING
        self.offline_partitions: Callable[[], int] = lambda: 0  # set by the node
        self.progress: Callable[[], str] = lambda: ""  # of a recovery; set by the node
        self.status: Callable[[], tuple[str, bytes]] | None = None  # set by the node
        self.registry = Registry()
        self.registry.add(self._broker_state)
        self._config = config
        self._default_port = default_port
        self._monotonic_ns = monotonic_ns
        self._collectors = collectors
        self._lock = threading.Lock()
        self._is_complete = False
        self._endpoint: Endpoint | None = None
        self._missing = ""

    @property
    def is_open(self) -> bool:
        return self._endpoint is not None

    @property
    def address(self) -> str | None:
        """http://host:port, or None when the broker serves no page."""
        return self._endpoint.address if self._endpoint is not None else None

    def open(self) -> None:
        """Opens the port. When the default port is taken (perhaps by a second broker), `ready` only
        logs it, because no setting asked for the port. Raises NoMetricsPage."""
        self.state = STARTING
        asked = self._config.is_set("metrics.port")
        port = self._config.integer("metrics.port") if asked else self._default_port
        host = self._config.text("metrics.host") or "127.0.0.1"
        if port < 0:
            return
        from barnabas.telemetry.endpoint import Endpoint

        tls, credentials = self._protection(host)
        try:
            self._endpoint = Endpoint(
                host,
                port,
                self._page,
                self.problem,
                self.warning,
                status=self._status,
                tls=tls,
                credentials=credentials,
            )
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            line = (
                f"no /metrics page on {host}:{port}: {reason}. Stop the process that uses the port,"
                " or use another port: --set metrics.port=PORT (-1: no page)"
            )
            if asked:
                raise NoMetricsPage(line) from error
            self._missing = line
            return
        self._endpoint.start()

    def _protection(self, host: str) -> tuple[PageTls | None, Credentials | None]:
        """Returns the page's TLS and credentials, None where a setting names none. Raises
        NoMetricsPage when other hosts could read the page, or a password on the network."""
        pem, file = self._config.get("metrics.ssl.location"), self._config.get(CREDENTIALS)
        is_open = self._config.boolean("allow.unauthenticated.remote") or is_loopback(host)
        if not is_open and not (pem and file):
            raise NoMetricsPage(
                f"metrics.host={host}: other hosts could read topic names and metrics without"
                f" authentication. Set metrics.ssl.location and {CREDENTIALS}, bind 127.0.0.1, or"
                " set allow.unauthenticated.remote=true."
            )
        if not pem and not file:
            return None, None
        from barnabas.telemetry.page_protection import Credentials, PageTls

        try:
            return (
                PageTls(str(pem)) if pem else None,
                Credentials(str(file)) if file else None,
            )
        except ConfigError as error:
            raise NoMetricsPage(" ".join(error.problems)) from None

    def ready(self) -> None:
        """Marks the broker as running, and logs why there is no page, if there is none. `open` does
        not log it, because a start that fails logs one line only."""
        self.state = RUNNING
        if self._missing:
            log.warning("%s", self._missing)

    def close(self) -> None:
        if self._endpoint is not None:
            self._endpoint.stop()
            self._endpoint = None

    def problem(self) -> str:
        """Returns why the broker does not serve clients, or "" when it does."""
        text = PROBLEMS.get(self.state, "")
        progress = self.progress() if self.state == RECOVERY else ""
        return f"{text}: {progress}" if progress else text

    def warning(self) -> str:
        """Returns what is wrong although the broker serves clients, or ""."""
        if self.state != RUNNING:
            return ""
        count = self.offline_partitions()
        if not count:
            return ""
        what = "1 partition is" if count == 1 else f"{count} partitions are"
        return f"{what} offline; the broker's log says why"

    def _status(self) -> tuple[str, bytes]:
        if self.state != RUNNING or self.status is None:
            return "text/plain; charset=utf-8", f"{self.problem()}\n".encode()
        return self.status()

    def _page(self) -> tuple[str, Iterator[bytes]]:
        from barnabas.telemetry.exposition import CONTENT_TYPE, write_page

        page = Page(self._config.text("metrics.dialect"), self._monotonic_ns())
        return CONTENT_TYPE, write_page(self.families(page), page)

    def _complete(self) -> None:
        with self._lock:
            if self.state == RUNNING and not self._is_complete:
                for collector in self._collectors():
                    self.registry.add(collector)
                self._is_complete = True

    def families(self, page: Page) -> Iterator[Family]:
        """Returns the metrics and samples of all collectors for a page."""
        self._complete()
        return self.registry.families(page)

    def values(self) -> dict[str, float]:
        """Returns the values of all metrics by name and labels, as the page shows them; of a
        summary, its sum and count."""
        page = Page(self._config.text("metrics.dialect"), self._monotonic_ns())
        found: dict[str, float] = {}
        for metric, samples in self.families(page):
            name = metric.names(page.dialect)[0]
            for labels, value in samples:
                if isinstance(value, Summary):
                    found[f"{name}_sum{labels}"] = value.total
                    found[f"{name}_count{labels}"] = value.observations
                else:
                    found[f"{name}{labels}"] = value
        return found

    def _broker_state(self, _page: Page) -> Iterator[Family]:
        yield BROKER_STATE, [("", self.state)]
