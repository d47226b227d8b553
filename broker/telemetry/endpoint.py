"""Serves the /metrics page, for Prometheus and for probes.

    GET /metrics                       the metrics
    GET /health/live, /livez           200 while the broker runs
    GET /health/ready, /readyz,        200 when clients are served, 503 with the reason when not
        /healthz
    GET /status                        the brokers of the cluster, for people (status_page.py)

http_server.py has the limits of a request and of its answer. page_protection.py decides who may
read the page, and adds TLS."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from barnabas.telemetry.http_server import PLAIN, Answer, HttpServer, Refused, Request

if TYPE_CHECKING:
    from barnabas.telemetry.page_protection import Credentials, PageTls

log = logging.getLogger("barnabas.metrics")

CHALLENGE = ("WWW-Authenticate", 'Basic realm="barnabas", charset="UTF-8"')
LIVE = ("/health/live", "/livez")
READY = ("/health/ready", "/readyz", "/healthz")


class Endpoint:
    """The page of one port. `page` returns the content type and the pieces of the page; `problem`
    returns why the broker is not ready, or "" when it is ready."""

    def __init__(
        self,
        host: str,
        port: int,
        page: Callable[[], tuple[str, Iterable[bytes]]],
        problem: Callable[[], str],
        warning: Callable[[], str] = lambda: "",
        *,
        status: Callable[[], tuple[str, bytes]] = lambda: (PLAIN, b""),
        tls: PageTls | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """Binds the port. `warning` returns what is wrong although the broker serves clients;
        `status` returns content type and bytes of /status. Without `credentials` everyone may read
        the page. Raises OSError."""
        self._warning = warning
        self._credentials = credentials
        self._page = page
        self._status = status
        self._problem = problem
        self._lock = threading.Lock()
        self._logged_s = float("-inf")  # when a failed connection was logged last
        self._server = HttpServer(
            host, port, self._answer, name="metrics", log=log, page="the /metrics page", tls=tls
        )
        self.host, self.port, self.address = host, self._server.port, self._server.address

    def start(self) -> None:
        """Starts to accept clients."""
        self._server.start()

    def stop(self) -> None:
        """Ends every thread. A client whose response is not complete loses its connection."""
        self._server.stop()

    def _log_stranger(self, host: str) -> None:
        """Logs a failed connection, at most one line a second, because any client can cause it."""
        now_s = time.monotonic()
        with self._lock:
            if now_s - self._logged_s < 1:
                return
            self._logged_s = now_s
        log.warning("/metrics refused %s: no user or token of metrics.credentials.file", host)

    def _answer(self, request: Request) -> Answer:
        if self._credentials is not None:
            if not self._credentials.allow(request.headers.get("authorization", "")):
                self._log_stranger(request.host)
                text = "give a user or a token of metrics.credentials.file"
                raise Refused(401, text, (CHALLENGE,))
        path = request.path
        if path == "/metrics":
            try:
                kind, pieces = self._page()
            except Exception as error:
                log.exception("the /metrics page failed")
                raise Refused(500, "the metrics cannot be read; see the broker's log") from error
            return Answer(200, kind, pieces)
        if path in LIVE:
            return Answer(200, PLAIN, [b"live\n"])
        if path in READY:
            problem = self._problem()
            if problem:
                return Answer(503, PLAIN, [f"{problem}\n".encode()])
            warning = self._warning()
            return Answer(200, PLAIN, [f"ready\n{warning}\n".encode() if warning else b"ready\n"])
        if path == "/status":
            kind, status = self._status()
            return Answer(200, kind, [status])
        if path == "/":
            return Answer(200, PLAIN, [b"/metrics\n/status\n/health/live\n/health/ready\n"])
        raise Refused(
            404, "unknown path; the paths are /metrics, /status, /health/live and /health/ready"
        )
