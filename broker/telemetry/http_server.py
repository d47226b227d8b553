"""A small HTTP server on one port, for the /metrics page (endpoint.py) and the console
(barnabas.console).

Python's `http.server` costs 60 ms and 80 modules at import and has no limits; this server limits
the length of a request, the time for it to arrive, the time for the client to read the answer, and
the number of clients at once (one more gets 503). A request is one GET or HEAD without a body, or a
POST where the caller permits bodies; the connection is closed after the answer. Threads end at
`stop`, whatever their clients do.

| limit | value |
|---|---|
| REQUEST_BYTES_MAX | bytes of the request line and the headers |
| body_bytes_max | bytes of a body; 0: no POST |
| REQUEST_S_MAX, ANSWER_S_MAX | seconds for a request to arrive, and for its answer to be read |
| clients_max | connections at once |
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from barnabas.cext.memory.threads import NamedThread, NoThread

REQUEST_BYTES_MAX = 8192
REQUEST_S_MAX = 5.0
ANSWER_S_MAX = 30.0
CLIENTS_MAX = 8
PLAIN = "text/plain; charset=utf-8"
REASONS = {
    200: "OK",
    303: "See Other",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    421: "Misdirected Request",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
}

Headers = tuple[tuple[str, str], ...]


class ServerTls(Protocol):
    """TLS of the server (page_protection.PageTls)."""

    def wrapped(self, client: socket.socket) -> socket.socket:
        """Returns the TLS socket of a connection. Raises OSError."""

    def end(self, client: socket.socket) -> None:
        """Says that the answer is complete."""


class Request(NamedTuple):
    """One request. `path` and `query`: as sent; `headers`: by name in lower case; `host`: the
    address of the client."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    host: str
    is_chunked: bool  # whether the client accepts a chunked answer


class Answer(NamedTuple):
    """One answer: `pieces` of the body, and headers beside Content-Type."""

    status: int
    kind: str
    pieces: Iterable[bytes]
    headers: Headers = ()


class Refused(Exception):
    """A request that the server answers with an error."""

    def __init__(self, status: int, text: str, headers: Headers = ()) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


class HttpServer:
    """The server of one port. `answer` returns the answer to a request, or raises Refused."""

    def __init__(
        self,
        host: str,
        port: int,
        answer: Callable[[Request], Answer],
        *,
        name: str,
        log: logging.Logger,
        page: str,
        tls: ServerTls | None = None,
        clients_max: int = CLIENTS_MAX,
        body_bytes_max: int = 0,
    ) -> None:
        """Binds the port. `name`: of its threads; `page`: its name in `log`. Raises OSError."""
        self._answer = answer
        self._name, self._log, self._page = name, log, page
        self._tls = tls
        self._clients_max, self._body_bytes_max = clients_max, body_bytes_max
        self._lock = threading.Lock()
        self._clients: dict[socket.socket, threading.Thread] = {}
        self._stopping = False
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
            self._socket.listen(clients_max)
        except BaseException:
            self._socket.close()
            raise
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        self._acceptor = NamedThread(target=self._accept, name=name, daemon=True)

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
                    self._log.warning("cannot accept a connection to %s: %s", self._page, error)
                    time.sleep(0.1)
                continue
            client.settimeout(REQUEST_S_MAX)
            thread = NamedThread(
                target=self._serve, args=(client,), name=f"{self._name}-client", daemon=True
            )
            with self._lock:
                is_welcome = len(self._clients) < self._clients_max and not self._stopping
                if is_welcome:
                    self._clients[client] = thread
            if is_welcome:
                is_welcome = self._started(client, thread)
            if not is_welcome:
                _say(client, 503, "too many clients at once\n")
                client.close()

    def _started(self, client: socket.socket, thread: NamedThread) -> bool:
        """Starts the thread of a client; returns whether the system allowed it."""
        try:
            thread.start()
        except NoThread:
            with self._lock:
                self._clients.pop(client, None)
            return False
        return True

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
            self._log.exception("%s failed", self._page)
        finally:
            with self._lock:
                self._clients.pop(exchanged, None)
            exchanged.close()
            client.close()

    def _protected(self, tls: ServerTls, client: socket.socket) -> socket.socket:
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
            request = _request(client, self._body_bytes_max)
            answer = self._answer(request)
        except Refused as refused:
            _say(client, refused.status, f"{refused}\n", refused.headers)
            return
        deadline_s = time.monotonic() + ANSWER_S_MAX
        is_chunked = request.is_chunked
        head = _head(answer.status, answer.kind, is_chunked, headers=answer.headers)
        if request.method == "HEAD":
            _send(client, head, deadline_s)
            return
        for piece in answer.pieces:
            if piece:
                _send(client, head + (_chunk(piece) if is_chunked else piece), deadline_s)
                head = b""
        _send(client, head + (b"0\r\n\r\n" if is_chunked else b""), deadline_s)


def _request(client: socket.socket, body_bytes_max: int) -> Request:
    """Reads a request. Raises Refused and OSError."""
    deadline_s = time.monotonic() + REQUEST_S_MAX
    data = b""
    while b"\r\n\r\n" not in data and b"\n\n" not in data:
        data += _more(client, deadline_s)
        if len(data) > REQUEST_BYTES_MAX + body_bytes_max:
            raise Refused(431, f"a request may have at most {REQUEST_BYTES_MAX} bytes")
    ends = [(data.find(end), len(end)) for end in (b"\r\n\r\n", b"\n\n")]
    at, length = min(pair for pair in ends if pair[0] >= 0)
    if at > REQUEST_BYTES_MAX:
        raise Refused(431, f"a request may have at most {REQUEST_BYTES_MAX} bytes")
    first, *lines = data[:at].decode("latin-1").replace("\r\n", "\n").split("\n")
    words = first.split()
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise Refused(400, "this is not an HTTP/1 request")
    methods = ("GET", "HEAD", "POST") if body_bytes_max else ("GET", "HEAD")
    if words[0] not in methods:
        raise Refused(405, f"the methods are {', '.join(methods[:-1])} and {methods[-1]}")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    body = b""
    if words[0] == "POST":
        body = _body(client, data[at + length :], headers, body_bytes_max, deadline_s)
    path, _, query = words[1].partition("?")
    host = client.getpeername()[0]
    return Request(words[0], path, query, headers, body, host, words[2] != "HTTP/1.0")


def _body(
    client: socket.socket,
    data: bytes,
    headers: Mapping[str, str],
    bytes_max: int,
    deadline_s: float,
) -> bytes:
    """Reads the body of a POST, of which `data` has arrived. Raises Refused and OSError."""
    text = headers.get("content-length", "")
    if not (text.isascii() and text.isdigit()) or "transfer-encoding" in headers:
        raise Refused(400, "a POST needs Content-Length and no Transfer-Encoding")
    if len(text) > len(str(bytes_max)) or int(text) > bytes_max:
        raise Refused(413, f"a body may have at most {bytes_max} bytes")
    while len(data) < int(text):
        data += _more(client, deadline_s)
    return data[: int(text)]


def _more(client: socket.socket, deadline_s: float) -> bytes:
    """Returns the next bytes of a request. Raises Refused and OSError."""
    while True:
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
        return got


def _head(
    status: int,
    kind: str,
    chunked: bool,
    size_bytes: int | None = None,
    headers: Headers = (),
) -> bytes:
    rows = [f"HTTP/1.1 {status} {REASONS[status]}", f"Content-Type: {kind}", "Connection: close"]
    rows += [f"{name}: {value}" for name, value in headers]
    if size_bytes is not None:
        rows.append(f"Content-Length: {size_bytes}")
    elif chunked:
        rows.append("Transfer-Encoding: chunked")
    assert not any("\r" in row or "\n" in row for row in rows), "a header with a line break"
    return ("\r\n".join(rows) + "\r\n\r\n").encode("latin-1")


def _chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def _send(client: socket.socket, data: bytes, deadline_s: float) -> None:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("the client did not read the page in time")
    client.settimeout(left_s)
    client.sendall(data)


def _say(client: socket.socket, status: int, text: str, headers: Headers = ()) -> None:
    body = text.encode()
    try:
        _send(
            client,
            _head(status, PLAIN, False, len(body), headers) + body,
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
