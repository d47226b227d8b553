"""One connection to one broker: sends a request and waits for its answer.

The first request is ApiVersions. A broker that does not support its version answers error 35 in
version 0; the client then sends version 0. Each later request uses the newest version that both
sides know.

A broker may limit the lifetime of a login (KIP-368). The client logs in again on its connection
before its next request, when 85 to 95 % of that time have passed, as Kafka's
SaslClientAuthenticator does.

Limits: an answer is read in pieces as it arrives, up to answer_bytes_max bytes; connecting and
waiting for each answer have their own timeouts. After any failure the connection is closed for
good.
"""

import math
import random
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from barnabas.cext.codec.wire import MalformedMessage
from barnabas.client.failures import (
    AnswerTooLarge,
    CannotConnect,
    ConnectionLost,
    NoTls,
    NotSpokenByBroker,
    ProtocolViolation,
    raise_for,
)
from barnabas.errors import UnsupportedVersion, name_of
from barnabas.wire import Struct, request, response
from barnabas.wire.api_keys import API_VERSIONS, api_key
from barnabas.wire.headers import (
    decode_response_header,
    encode_request,
    encode_request_header,
)

if TYPE_CHECKING:  # ssl is imported only for connections with TLS
    from barnabas.client.security import Security

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
CONNECT_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 40.0  # longer than the 30 s of requests that have their own timeout
ANSWER_BYTES_MAX = 256 * 1024 * 1024
LOGIN_USED = (0.85, 0.95)  # of a login's lifetime, before the next login; not all at once
PIECE_BYTES = 1024 * 1024  # memory grows by at most this ahead of the bytes received
API_VERSIONS_FIRST = 3
CORRELATION_ID_MAX = 2**31 - 1

# Newer versions name topics only by id; these use names, and every broker supports them.
NEWEST_BY_NAME = {0: 12, 1: 12}


class Connection:
    """An open connection, with its login. The constructor raises CannotConnect and what `log_in`
    raises; `call` raises ConnectionLost, ProtocolViolation."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str = "barnabas",
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
        security: "Security | None" = None,
        receive_buffer_bytes: int = 0,
        send_buffer_bytes: int = -1,
    ) -> None:
        self.host, self.port = host, port
        self.client_id = client_id
        self.answer_timeout_s = answer_timeout_s
        self.answer_bytes_max = answer_bytes_max
        self._correlation_id = 0
        # getaddrinfo takes bytes unchanged; for a str, Python imports IDNA's tables, which takes 4
        # ms.
        name = host.encode() if host.isascii() else host
        try:
            self._socket = socket.create_connection((name, port), timeout=connect_timeout_s)  # type: ignore[arg-type]
        except (OSError, UnicodeError) as error:
            reason = "no answer in time" if isinstance(error, TimeoutError) else _reason(error)
            raise CannotConnect(f"cannot connect to {self.address}: {reason}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._is_tls = security is not None and security.tls is not None
        if security is not None and security.tls is not None:
            self._socket = security.tls.wrapped(self._socket, host)
        if receive_buffer_bytes > 0:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        if send_buffer_bytes > 0:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        self.is_open = True
        self._login = security.sasl if security is not None else None
        self._login_due_s = math.inf
        self.features: dict[str, int] = {}  # of the cluster, with their levels
        self.versions = self._ask_versions()
        self.log_in()

    def log_in(self) -> None:
        """Logs in, for the first time or again, if the connection has a login. Raises
        CannotConnect, ConnectionLost, AuthenticationFailed, SaslAuthenticationFailed,
        UnsupportedSaslMechanism."""
        login = self._login
        if login is None:
            return
        user, lifetime_ms = f"{login.who} at {self.address}", 0

        def exchange(token: bytes) -> bytes:
            nonlocal lifetime_ms
            answer = self.call(SASL_AUTHENTICATE, request(SASL_AUTHENTICATE).cls(authBytes=token))
            raise_for(answer.errorCode, user, answer.errorMessage)
            lifetime_ms = answer.sessionLifetimeMs
            return bytes(answer.authBytes)

        self._login_due_s = math.inf  # the requests of the login itself need none
        try:
            hello = self.call(
                SASL_HANDSHAKE, request(SASL_HANDSHAKE).cls(mechanism=login.mechanism)
            )
            known = ", ".join(hello.mechanisms)
            raise_for(hello.errorCode, f"{login.mechanism} for {user} (it knows {known})")
            login.authenticate(exchange, self.host)
        except BaseException:
            self.close()
            raise
        if lifetime_ms > 0:
            lasts_s = random.uniform(*LOGIN_USED) * lifetime_ms / 1000
            self._login_due_s = time.monotonic() + lasts_s

    @property
    def is_login_due(self) -> bool:
        """Returns whether the client must log in before the next request."""
        return time.monotonic() >= self._login_due_s

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def close(self) -> None:
        self.is_open = False
        self._socket.close()

    def interrupt(self) -> None:
        """Shuts the socket down, from another thread. The thread that uses the connection then sees
        that it is lost and closes it. This method does not close it, because that thread might then
        use a descriptor that already belongs to another socket."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    @property
    def would_block(self) -> tuple[type[OSError], ...]:
        """Returns the exceptions of a non-blocking socket that has no data, or takes none, now."""
        if not self._is_tls:
            return (BlockingIOError,)
        import ssl

        return ssl.SSLWantReadError, ssl.SSLWantWriteError

    @property
    def has_decrypted_bytes(self) -> bool:
        """Returns whether TLS holds decrypted bytes, which a selector does not see."""
        return self._is_tls and self._socket.pending() > 0  # type: ignore[attr-defined]

    def hand_over(self) -> socket.socket:
        """Gives the socket, now non-blocking, to a pipeline; from now on only the pipeline uses
        it."""
        self.is_open = False
        self._socket.setblocking(False)
        return self._socket

    def take_back(self) -> None:
        """Undoes hand_over while no answer is awaited: the connection sends and waits again."""
        self.is_open = True

    def version_of(self, key: int, low: int = 0, high: int | None = None) -> int:
        """Returns the newest version of a request that both sides support, from `low` to `high`.
        Raises NotSpokenByBroker."""
        row = api_key(key)
        known = self.versions.get(key)
        limit = min(row.version_max, NEWEST_BY_NAME.get(key, row.version_max))
        high = limit if high is None else min(high, limit)
        if known is None:
            raise NotSpokenByBroker(f"the broker at {self.address} does not serve {row.name}")
        lowest, newest = max(known[0], low, row.version_min), min(known[1], high)
        if lowest > newest:
            raise NotSpokenByBroker(
                f"the broker at {self.address} serves {row.name} in versions {known[0]} to"
                f" {known[1]}; versions {max(low, row.version_min)} to {high} are needed"
            )
        return newest

    def call(
        self,
        key: int,
        body: Struct | Callable[[int], Struct | bytes],
        low: int = 0,
        high: int | None = None,
    ) -> Struct:
        """Sends one request and returns its answer. A callable `body` gets the version and returns
        the request, or its bytes."""
        version = self.version_of(key, low, high)
        message = body if isinstance(body, Struct) else body(version)
        return self._decode(key, version, self._exchange(key, version, message))

    def exchange(self, key: int, version: int, body: bytes, into: bytearray) -> memoryview:
        """Sends a request whose body is already encoded, and receives the answer into `into`, which
        grows with the bytes received. Returns a view of the answer's body there: the caller
        releases the view before the next call. Raises ConnectionLost, ProtocolViolation, and what a
        login raises."""
        if self.is_login_due:
            self.log_in()
        self._correlation_id = self._correlation_id % CORRELATION_ID_MAX + 1
        head = encode_request_header(key, version, self._correlation_id, self.client_id)
        self._send_frame((len(head) + len(body)).to_bytes(4, "big") + head + body)
        deadline = time.monotonic() + self.answer_timeout_s
        try:
            size_bytes = self._receive_size(deadline)
            received = 0
            while received < size_bytes:
                if received == len(into):
                    into += bytes(min(size_bytes - received, max(received, PIECE_BYTES)))
                self._wait_at_most(deadline)
                with memoryview(into) as whole, whole[received:size_bytes] as free:
                    count = self._socket.recv_into(free)
                if count == 0:
                    raise ConnectionResetError(0, "the broker closed it")
                received += count
        except OSError as error:
            raise self._lost(error) from error
        answer = memoryview(into)[:size_bytes]
        self._check_correlation(answer[:4], self._correlation_id)
        try:
            _, offset = decode_response_header(answer, key, version)
        except MalformedMessage as error:
            self.close()
            raise ProtocolViolation(f"{self.address}: {error}") from error
        return answer[offset:]

    def tell(self, key: int, body: Struct, low: int = 0) -> None:
        """Sends a request that has no answer (Produce with acks 0). `key`: the API key; `low`: the
        lowest version that this client can use. Raises NotSpokenByBroker, ConnectionLost."""
        self._send(key, self.version_of(key, low), body)

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        ask = request(API_VERSIONS).cls(
            clientSoftwareName="barnabas", clientSoftwareVersion="client"
        )
        version = API_VERSIONS_FIRST
        frame = self._exchange(API_VERSIONS, version, ask)
        if frame[4:6] == UnsupportedVersion.code.to_bytes(2, "big"):
            version = 0
            frame = self._exchange(API_VERSIONS, version, ask)
        answer = self._decode(API_VERSIONS, version, frame)
        if answer.errorCode:
            self.close()
            raise ProtocolViolation(
                f"the broker at {self.address} answered ApiVersions with error"
                f" {name_of(answer.errorCode)}"
            )
        if version >= API_VERSIONS_FIRST:
            self.features = {row.name: row.maxVersionLevel for row in answer.finalizedFeatures}
        return {row.apiKey: (row.minVersion, row.maxVersion) for row in answer.apiKeys}

    def _send(self, key: int, version: int, body: Struct | bytes) -> int:
        if self.is_login_due:
            self.log_in()
        self._correlation_id = self._correlation_id % CORRELATION_ID_MAX + 1
        self._send_frame(encode_request(key, version, self._correlation_id, self.client_id, body))
        return self._correlation_id

    def _send_frame(self, frame: bytes) -> None:
        if not self.is_open:
            raise ConnectionLost(f"the connection to {self.address} is closed")
        self._socket.settimeout(self.answer_timeout_s)
        try:
            self._socket.sendall(frame)
        except OSError as error:
            raise self._lost(error) from error

    def _exchange(self, key: int, version: int, body: Struct | bytes) -> bytes:
        correlation_id = self._send(key, version, body)
        deadline = time.monotonic() + self.answer_timeout_s
        try:
            frame = self._receive(self._receive_size(deadline), deadline)
        except OSError as error:
            raise self._lost(error) from error
        self._check_correlation(frame[:4], correlation_id)
        return frame

    def _receive_size(self, deadline: float) -> int:
        size_bytes = int.from_bytes(self._receive(4, deadline), "big", signed=True)
        if not 4 <= size_bytes <= self.answer_bytes_max:
            self.close()
            kind = AnswerTooLarge if size_bytes > 4 else ProtocolViolation
            raise kind(
                f"{self.address} announces an answer of {size_bytes} bytes (at most"
                f" {self.answer_bytes_max} are taken): is it a Kafka broker's plain port?"
            )
        return size_bytes

    def _check_correlation(self, answered: bytes | memoryview, correlation_id: int) -> None:
        if int.from_bytes(answered, "big", signed=True) != correlation_id:
            self.close()
            raise ProtocolViolation(f"{self.address} answers a request that was not sent")

    def _receive(self, size_bytes: int, deadline: float) -> bytes:
        parts = bytearray()
        while len(parts) < size_bytes:
            self._wait_at_most(deadline)
            piece = self._socket.recv(min(size_bytes - len(parts), PIECE_BYTES))
            if not piece:
                raise ConnectionResetError(0, "the broker closed it")
            parts += piece
        return bytes(parts)

    def _wait_at_most(self, deadline: float) -> None:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._socket.settimeout(left_s)

    def _decode(self, key: int, version: int, frame: bytes) -> Struct:
        try:
            _, offset = decode_response_header(frame, key, version)
            return response(key).decode(frame, version, offset)
        except MalformedMessage as error:
            self.close()
            raise ProtocolViolation(f"{self.address}: {error}") from error

    def _lost(self, error: OSError) -> ConnectionLost | NoTls:
        self.close()
        # With TLS 1.3 a client learns only after the handshake that the broker does not know its
        # certificate.
        alert = getattr(error, "reason", None) or ""  # of an SSLError
        if "CERTIFICATE" in alert or "UNKNOWN_CA" in alert:
            return NoTls(
                f"cannot open a TLS connection to {self.address}: the broker refused the client's"
                f" certificate: {_reason(error)}"
            )
        if isinstance(error, TimeoutError):
            return ConnectionLost(
                f"no answer from {self.address} within {self.answer_timeout_s:g} s"
            )
        return ConnectionLost(f"lost the connection to {self.address}: {_reason(error)}")


def _reason(error: OSError | UnicodeError) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()
