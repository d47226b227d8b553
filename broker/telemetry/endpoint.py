"""Serves the /metrics page: a small HTTP server on one port, for Prometheus and for probes.

    GET /metrics                       the metrics
    GET /health/live, /livez           200 while the broker runs
    GET /health/ready, /readyz,        200 when clients are served, 503 with the reason when not
        /healthz
    GET /status                        the brokers of the cluster, for people (status_page.py)

Python's `http.server` costs 60 ms and 80 modules at import and has no limits; this server limits
the length of a request, the time for it to arrive, the time for the client to read the page, and
the number of clients at once (one more gets 503). A request is one GET or HEAD without a body; the
connection is closed after the answer. Threads end at `stop`, whatever their clients do.

page_protection.py decides who may read the page, and adds TLS."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from barnabas.cext.memory.threads import NamedThread

if TYPE_CHECKING:
    from barnabas.telemetry.page_protection import Credentials, PageTls

log = logging.getLogger("barnabas.metrics")

REQUEST_BYTES_MAX = 8192
REQUEST_S_MAX = 5.0
ANSWER_S_MAX = 30.0
CLIENTS_MAX = 8
PLAIN = "text/plain; charset=utf-8"
REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
CHALLENGE = 'WWW-Authenticate: Basic realm="barnabas", charset="UTF-8"'
LIVE = ("/health/live", "/livez")
READY = ("/health/ready", "/readyz", "/healthz")

Answer = tuple[int, str, Iterable[bytes]]


class Refused(Exception):
    """A request that the endpoint answers with an error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Endpoint:
    """The HTTP server of one port. `page` returns the content type and the pieces of the page;
    `problem` returns why the broker is not ready, or "" when it is ready."""

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
        self._tls, self._credentials = tls, credentials
        self._page = page
        self._status = status
        self._problem = problem
        self._lock = threading.Lock()
        self._clients: dict[socket.socket, threading.Thread] = {}
        self._stopping = False
        self._logged_s = float("-inf")  # when a failed connection was logged last
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
            self._socket.listen(CLIENTS_MAX)
        except BaseException:
            self._socket.close()
            raise
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        self._acceptor = NamedThread(target=self._accept, name="metrics", daemon=True)

    @property
    def address(self) -> str:
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def start(self) -> None:
        """Starts to accept clients."""
        self._acceptor.start()

    def stop(self) -> None:
        """Ends every thread. A client whose response is not complete loses its connection."""
        with self._lock:
            self._stopping = True
            clients = list(self._clients.items())
        for one in (self._socket, *(client for client, _ in clients)):
            _shut(one)
        if self._acceptor.ident is not None:
            self._acceptor.join()
        for _, thread in clients:
            thread.join()
        self._socket.close()

    def _accept(self) -> None:
        while not self._stopping:
            try:
                client, _ = self._socket.accept()
            except OSError as error:
                if not self._stopping:  # no free descriptors: the next accept may succeed
                    log.warning("cannot accept a connection to /metrics: %s", error)
                    time.sleep(0.1)
                continue
            client.settimeout(REQUEST_S_MAX)
            thread = NamedThread(
                target=self._serve, args=(client,), name="metrics-client", daemon=True
            )
            with self._lock:
                is_welcome = len(self._clients) < CLIENTS_MAX and not self._stopping
                if is_welcome:
                    self._clients[client] = thread
            if is_welcome:
                thread.start()
            else:
                _say(client, 503, "too many clients at once\n")
                client.close()

    def _serve(self, client: socket.socket) -> None:
        exchanged = client
        try:
            if self._tls is not None:
                exchanged = self._protected(self._tls, client)
            self._exchange(exchanged)
            if self._tls is not None:
                self._tls.end(exchanged)
        except OSError:
            pass  # the client closed its connection or reads too slowly: no response is possible
        except Exception:
            log.exception("the /metrics page failed")
        finally:
            with self._lock:
                self._clients.pop(exchanged, None)
            exchanged.close()
            client.close()

    def _protected(self, tls: PageTls, client: socket.socket) -> socket.socket:
        """Returns the TLS socket, which `stop` shuts down in place of the TCP socket. Raises
        OSError."""
        with self._lock:
            if self._stopping:
                raise OSError("the page is closed")
            wrapped = tls.wrapped(client)
            self._clients[wrapped] = self._clients.pop(client)
        return wrapped

    def _exchange(self, client: socket.socket) -> None:
        try:
            method, path, chunked, authorization = _request(client)
            if self._credentials is not None and not self._credentials.allow(authorization):
                self._log_stranger(client)
                raise Refused(401, "give a user or a token of metrics.credentials.file")
            status, kind, pieces = self._answer(path)
        except Refused as refused:
            _say(client, refused.status, f"{refused}\n")
            return
        deadline_s = time.monotonic() + ANSWER_S_MAX
        head = _head(status, kind, chunked)
        if method == "HEAD":
            _send(client, head, deadline_s)
            return
        for piece in pieces:
            if piece:
                _send(client, head + (_chunk(piece) if chunked else piece), deadline_s)
                head = b""
        _send(client, head + (b"0\r\n\r\n" if chunked else b""), deadline_s)

    def _log_stranger(self, client: socket.socket) -> None:
        """Logs a failed connection, at most one line a second, because any client can cause it."""
        now_s = time.monotonic()
        with self._lock:
            if now_s - self._logged_s < 1:
                return
            self._logged_s = now_s
        host = client.getpeername()[0]
        log.warning("/metrics refused %s: no user or token of metrics.credentials.file", host)

    def _answer(self, path: str) -> Answer:
        if path == "/metrics":
            try:
                kind, pieces = self._page()
            except Exception as error:
                log.exception("the /metrics page failed")
                raise Refused(500, "the metrics cannot be read; see the broker's log") from error
            return 200, kind, pieces
        if path in LIVE:
            return 200, PLAIN, [b"live\n"]
        if path in READY:
            problem = self._problem()
            if problem:
                return 503, PLAIN, [f"{problem}\n".encode()]
            warning = self._warning()
            return 200, PLAIN, [f"ready\n{warning}\n".encode() if warning else b"ready\n"]
        if path == "/status":
            kind, text = self._status()
            return 200, kind, [text]
        if path == "/":
            return 200, PLAIN, [b"/metrics\n/status\n/health/live\n/health/ready\n"]
        raise Refused(
            404, "unknown path; the paths are /metrics, /status, /health/live and /health/ready"
        )


def _request(client: socket.socket) -> tuple[str, str, bool, str]:
    """Reads a request; returns (method, path, whether the client accepts a chunked body, the value
    of Authorization). Raises Refused and OSError."""
    deadline_s = time.monotonic() + REQUEST_S_MAX
    data = b""
    while b"\r\n\r\n" not in data and b"\n\n" not in data:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise Refused(408, "the request did not arrive in time")
        client.settimeout(left_s)
        try:
            got = client.recv(REQUEST_BYTES_MAX)
        except TimeoutError:
            continue
        if not got:
            raise OSError("the client closed the connection before its request was complete")
        data += got
        if len(data) > REQUEST_BYTES_MAX:
            raise Refused(431, f"a request may have at most {REQUEST_BYTES_MAX} bytes")
    first, *headers = data.decode("latin-1").replace("\r\n", "\n").split("\n\n")[0].split("\n")
    words = first.split()
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise Refused(400, "this is not an HTTP/1 request")
    if words[0] not in ("GET", "HEAD"):
        raise Refused(405, "the methods are GET and HEAD")
    authorization = ""
    for header in headers:
        name, _, value = header.partition(":")
        if name.strip().lower() == "authorization":
            authorization = value
    return words[0], words[1].partition("?")[0], words[2] != "HTTP/1.0", authorization


def _head(status: int, kind: str, chunked: bool, size_bytes: int | None = None) -> bytes:
    rows = [f"HTTP/1.1 {status} {REASONS[status]}", f"Content-Type: {kind}", "Connection: close"]
    if status == 401:
        rows.append(CHALLENGE)
    if size_bytes is not None:
        rows.append(f"Content-Length: {size_bytes}")
    elif chunked:
        rows.append("Transfer-Encoding: chunked")
    return ("\r\n".join(rows) + "\r\n\r\n").encode()


def _chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def _send(client: socket.socket, data: bytes, deadline_s: float) -> None:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("the client did not read the page in time")
    client.settimeout(left_s)
    client.sendall(data)


def _say(client: socket.socket, status: int, text: str) -> None:
    body = text.encode()
    try:
        _send(
            client,
            _head(status, PLAIN, False, len(body)) + body,
            time.monotonic() + REQUEST_S_MAX,
        )
        # Unread bytes of the client would make the kernel drop the response: this reads some of
        # them.
        client.shutdown(socket.SHUT_WR)
        client.settimeout(0.2)
        client.recv(REQUEST_BYTES_MAX)
    except OSError:
        pass


def _shut(one: socket.socket) -> None:
    try:
        # SSLSocket.shutdown would remove TLS while another thread reads from the socket.
        socket.socket.shutdown(one, socket.SHUT_RDWR)
    except OSError:
        pass  # no longer connected
