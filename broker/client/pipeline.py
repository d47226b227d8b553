"""Several requests in flight on one connection; the answers come in the order of the requests.

Nothing here waits: `send` keeps the bytes that the socket does not take, `pump` sends and receives
what the socket allows, and the owner waits for many pipelines at once (delivery.py, load.py).
Before a login expires, the pipeline sends no more requests until all are answered; then it logs in
again before the next request, and waits for the broker as a new connection does.
Limits: in_flight_max requests, and answers of answer_bytes_max bytes.
"""

import socket
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from barnabas.cext.codec.wire import MalformedMessage
from barnabas.client.connection import Connection
from barnabas.client.failures import (
    AnswerTooLarge,
    AuthenticationFailed,
    ConnectionLost,
    ProtocolViolation,
)
from barnabas.errors import KafkaError
from barnabas.wire import Struct, response
from barnabas.wire.headers import decode_response_header, encode_request

RECEIVE_BYTES = 1 << 20

Note = TypeVar("Note")


@dataclass(slots=True)
class Sent(Generic[Note]):
    key: int
    version: int
    correlation_id: int
    counted_from_ns: int
    note: Note


class Pipeline(Generic[Note]):
    """Sends requests on a connection that it takes over. Raises ConnectionLost, ProtocolViolation,
    AnswerTooLarge, and AuthenticationFailed when it cannot renew an expired login."""

    def __init__(self, connection: Connection, in_flight_max: int = 1) -> None:
        self.connection, self.in_flight_max = connection, in_flight_max
        self._would_block = connection.would_block
        self.sent: deque[Sent[Note]] = deque()
        self._socket: socket.socket = connection.hand_over()
        self._correlation_id = 0
        self._unsent = b""
        self._received = bytearray()

    def fileno(self) -> int:
        """Returns the descriptor of the socket, for a selector."""
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    @property
    def is_free(self) -> bool:
        """Returns whether one more request may be sent."""
        count_max = 1 if self.connection.is_login_due else self.in_flight_max
        return not self._unsent and len(self.sent) < count_max

    @property
    def wants_out(self) -> bool:
        """Returns whether bytes of a request wait until the socket can take them."""
        return bool(self._unsent)

    def send(
        self, key: int, version: int, body: Struct, note: Note, *, counted_from_ns: int,
        is_answered: bool = True,
    ) -> None:  # fmt: skip
        """Sends a request, or as much of it as the socket takes now. Allowed only while `is_free`.
        `note`: a value that `pump` returns with the answer; `counted_from_ns`: the monotonic time
        from which its latency counts. Logs in again first when the login is due. Raises
        ConnectionLost, AuthenticationFailed."""
        assert not self._unsent and len(self.sent) < self.in_flight_max
        if self.connection.is_login_due and not self.sent:
            self._log_in()
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        sent = Sent(key, version, self._correlation_id, counted_from_ns, note)
        client = self.connection.client_id
        self._unsent = encode_request(key, version, self._correlation_id, client, body)
        if is_answered:
            self.sent.append(sent)
        self._flush()

    def _log_in(self) -> None:
        """Logs in again. Raises ClientError."""
        self.connection.take_back()
        try:
            self.connection.log_in()
        except KafkaError as error:  # the owner must not confuse it with an answer to its request
            raise AuthenticationFailed(str(error)) from error
        self._socket = self.connection.hand_over()

    def _flush(self) -> None:
        try:
            size_bytes = self._socket.send(self._unsent)
        except self._would_block:
            return
        except OSError as error:
            raise self._lost(str(error)) from error
        self._unsent = self._unsent[size_bytes:] if size_bytes < len(self._unsent) else b""

    def pump(self) -> Iterator[tuple[Sent[Note], Struct, int]]:
        """Sends unsent bytes, then yields each complete answer: its request, the answer, and the
        time of its arrival in nanoseconds."""
        if self._unsent:
            self._flush()
        while piece := self._piece():
            now_ns = time.perf_counter_ns()
            self._received += piece
            while (frame := self._frame()) is not None:
                yield (*self._answer(frame), now_ns)
            if not self.connection.has_decrypted_bytes:
                return

    def _piece(self) -> bytes:
        """Returns the bytes that the socket has now; empty when it has none."""
        try:
            piece = self._socket.recv(RECEIVE_BYTES)
        except self._would_block:
            return b""
        except OSError as error:
            raise self._lost(str(error)) from error
        if not piece:
            raise self._lost("the broker closed it")
        return piece

    def _frame(self) -> bytes | None:
        have = self._received
        if len(have) < 4:
            return None
        size_bytes = int.from_bytes(have[:4], "big", signed=True)
        if not 4 <= size_bytes <= self.connection.answer_bytes_max:
            raise AnswerTooLarge(
                f"{self.connection.address} announces an answer of {size_bytes} bytes"
            )
        if len(have) < 4 + size_bytes:
            return None
        frame = bytes(memoryview(have)[4 : 4 + size_bytes])
        del have[: 4 + size_bytes]
        return frame

    def _answer(self, frame: bytes) -> tuple[Sent[Note], Struct]:
        address = self.connection.address
        if not self.sent or int.from_bytes(frame[:4], "big") != self.sent[0].correlation_id:
            raise ProtocolViolation(f"{address} answers a request that was not sent")
        sent = self.sent.popleft()
        try:
            _, body_at = decode_response_header(frame, sent.key, sent.version)
            return sent, response(sent.key).decode(frame, sent.version, body_at)
        except MalformedMessage as error:
            raise ProtocolViolation(f"{address}: {error}") from error

    def _lost(self, reason: str) -> ConnectionLost:
        self.close()
        return ConnectionLost(f"lost the connection to {self.connection.address}: {reason}")
