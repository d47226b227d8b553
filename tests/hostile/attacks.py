"""Attacks handshakes and logins at a steady pace, in a process of its own, until its input ends.

    python attacks.py PORT-OF-SASL PORT-OF-TLS ATTACKS-A-SECOND

Slow, cut, changed, huge, repeated, random and failed ones in turn. It prints a line when it has
made one of each, and at the end how many it made. It needs only the standard library.
"""

import contextlib
import itertools
import random
import select
import socket
import ssl
import struct
import sys
import time
from collections import deque

SLOW_MAX = 100  # connections that stay open with half a message
MECHANISMS = (b"PLAIN", b"SCRAM-SHA-256", b"SCRAM-SHA-512")
TOKEN_BYTES_MAX = 524_288  # sasl.server.max.receive.size


def frame(key: int, version: int, body: bytes) -> bytes:
    data = struct.pack(">hhihc", key, version, 7, 1, b"c") + body
    return struct.pack(">i", len(data)) + data


def handshake(mechanism: bytes) -> bytes:
    return frame(17, 1, struct.pack(">h", len(mechanism)) + mechanism)


def token(data: bytes) -> bytes:
    return frame(36, 1, struct.pack(">i", len(data)) + data)


def client_hello(context: ssl.SSLContext) -> bytes:
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


class Attacks:
    def __init__(self, sasl_port: int, tls_port: int) -> None:
        self._ports = sasl_port, tls_port
        self._rng = random.Random(37)
        self._slow: deque[tuple[socket.socket, bytes]] = deque()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.check_hostname, self._context.verify_mode = False, ssl.CERT_NONE
        self._hello = client_hello(self._context)

    def _valid(self, is_tls: bool) -> bytes:
        if is_tls:
            return self._hello
        return handshake(self._rng.choice(MECHANISMS)) + token(b"n,,n=bob,r=abc")

    def _send(self, is_tls: bool, data: bytes) -> None:
        with self._connect(is_tls) as connection, contextlib.suppress(OSError):
            connection.sendall(data)

    def _connect(self, is_tls: bool) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._ports[is_tls]), timeout=5)

    def slow(self, is_tls: bool) -> None:
        """One byte more on a connection that is open, and a new connection."""
        if len(self._slow) == SLOW_MAX:
            self._slow.popleft()[0].close()
        self._slow.append((self._connect(is_tls), self._valid(is_tls)))
        connection, rest = self._slow.popleft()
        with contextlib.suppress(OSError):
            connection.sendall(rest[:1])
        if len(rest) > 1:
            self._slow.append((connection, rest[1:]))
        else:
            connection.close()

    def cut(self, is_tls: bool) -> None:
        data = self._valid(is_tls)
        self._send(is_tls, data[: self._rng.randrange(len(data))])

    def changed(self, is_tls: bool) -> None:
        data = bytearray(self._valid(is_tls))
        data[self._rng.randrange(len(data))] ^= 1 << self._rng.randrange(8)
        self._send(is_tls, bytes(data))

    def huge(self, is_tls: bool) -> None:
        if is_tls:
            self._send(is_tls, (b"\x16\x03\x01\x40\x00" + bytes(0x4000)) * 20)
        else:
            size = self._rng.choice([TOKEN_BYTES_MAX - 100, TOKEN_BYTES_MAX + 1])
            self._send(is_tls, handshake(b"PLAIN") + token(bytes(size)))

    def repeated(self, is_tls: bool) -> None:
        self._send(is_tls, self._valid(is_tls) * 30)

    def random(self, is_tls: bool) -> None:
        self._send(is_tls, self._rng.randbytes(self._rng.randrange(1, 3000)))

    def failed(self, is_tls: bool) -> None:
        """A whole handshake and nothing behind it, or a wrong password whose answer is read."""
        with self._connect(is_tls) as plain, contextlib.suppress(OSError):
            if is_tls:
                self._context.wrap_socket(plain).close()
            else:
                plain.sendall(handshake(b"PLAIN") + token(b"\0alice\0wrong"))
                plain.recv(100)


def main(sasl_port: int, tls_port: int, pace: float) -> None:
    attacks = Attacks(sasl_port, tls_port)
    kinds = [getattr(attacks, name) for name in vars(Attacks) if not name.startswith("_")]
    due, count = time.monotonic(), 0
    for is_tls, kind in itertools.cycle(itertools.product((False, True), kinds)):
        due += 1 / pace
        if select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
            break
        with contextlib.suppress(OSError):
            kind(is_tls)
        count += 1
        if count == 2 * len(kinds):
            print("begun", flush=True)
    print(count)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
