"""Frames, and a reactor whose requests a Python handler answers, for the tests of this folder."""

import contextlib
import socket
import struct
import threading
import time

from barnabas.cext.memory.sys import SystemCalls
from barnabas.cext.network.reactor import Reactor
from barnabas.cext.network.request_queue import CERTIFICATE, OPEN, PendingRequest

FLEXIBLE_FROM = [-1] * 18 + [3]  # ApiVersions has a tagged section from version 3 on
PING = 18


def request(correlation_id, body=b"", key=PING, version=0, client_id=b"test", tags=b""):
    head = struct.pack(">hhi", key, version, correlation_id)
    if (key, version) != (7, 0):
        head += struct.pack(">h", -1) if client_id is None else _short(client_id)
    data = head + tags + body
    return struct.pack(">i", len(data)) + data


def _short(text):
    return struct.pack(">h", len(text)) + text


def answer_to(pending: PendingRequest) -> bytes:
    """The correlation id and the request's own body."""
    data = struct.pack(">i", pending.correlation_id) + pending.data[pending.body_at :]
    return struct.pack(">i", len(data)) + data


def echo(pending: PendingRequest) -> None:
    """Also lets every client in that shows a certificate."""
    if pending.login == CERTIFICATE:
        pending.set_login(OPEN, b"")
        pending.silent()
    else:
        pending.reply(answer_to(pending))


class Served:
    """A reactor with one listener and handler threads that call `handle`."""

    def __init__(
        self, handle=echo, *, native=(), threads=1, handlers=1, start=True, transport=None, **limits
    ):
        self.system = SystemCalls()
        self.reactor = Reactor(
            self.system,
            list(native),
            network_threads=threads,
            flexible_from=FLEXIBLE_FROM,
            limits={name.replace("_", "."): value for name, value in limits.items()},
        )
        self.port = self.reactor.listen("PLAINTEXT", "127.0.0.1", 0, transport=transport)
        self.handle = handle
        self.handlers = [threading.Thread(target=self._serve) for _ in range(handlers)]
        if start:
            self.reactor.start()
            for handler in self.handlers:
                handler.start()

    def _serve(self):
        while (pending := self.reactor.next_request()) is not None:
            self.handle(pending)
            del pending  # so that the next wait does not keep it alive

    def __enter__(self):
        return self

    def __exit__(self, *_raised):
        self.reactor.stop(2000)
        for handler in self.handlers:
            if handler.ident is not None:
                handler.join(10)
                assert not handler.is_alive()

    def connect(self):
        made = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def eventually(self, holds, seconds=60.0):
        """Waits until holds(counters) is true. Returns the counters."""
        end = time.monotonic() + seconds
        while True:
            counters = self.reactor.counters()
            if holds(counters):
                return counters
            assert time.monotonic() < end, counters
            time.sleep(0.005)

    def closed(self, reason, count=1):
        return self.eventually(lambda c: c["closed"][reason] >= count)

    def quiet(self):
        """Waits until the reactor holds no connection, no byte and no request."""
        return self.eventually(
            lambda c: (
                not (
                    c["connection_count"]
                    or c["held_bytes"]
                    or c["python_queue"]
                    or c["parked"]
                    or sum(c["connections"].values())
                )
            )
        )


def receive(connection, size_bytes):
    data = bytearray()
    while len(data) < size_bytes:
        got = connection.recv(size_bytes - len(data))
        if not got:
            raise EOFError(f"closed after {len(data)} of {size_bytes} bytes")
        data += got
    return bytes(data)


def response(connection):
    """(correlation id, body) of the next answer."""
    (size,) = struct.unpack(">i", receive(connection, 4))
    data = receive(connection, size)
    return struct.unpack(">i", data[:4])[0], data[4:]


def is_closed(connection, seconds=60.0):
    """Returns whether the reactor closes the connection without a response."""
    connection.settimeout(seconds)
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        return connection.recv(1) == b""
    return True
