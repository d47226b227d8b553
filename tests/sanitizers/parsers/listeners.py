"""Bytes that a client sends to a listener: frames before and during a login, and TLS records."""

import contextlib
import logging
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from sanitizers.parsers import Parse, Parser
from security.json_tokens import oauth_settings
from security.login_broker import MECHANISMS, frame, header, login_broker

CLOSE_S = 10
ALL_MECHANISMS = (*MECHANISMS.split(","), "OAUTHBEARER")
UNTRUE = b"\0alice\0a password that alice does not have"


class Faults(logging.Handler):
    """Collects the tracebacks that are logged."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, line: logging.LogRecord) -> None:
        if line.exc_info:
            self.found.append(logging.Formatter().format(line))


def conversation(folder: Path, stack: contextlib.ExitStack) -> Parse:
    """Sends the bytes to a listener with SASL, and no more: the broker closes the connection."""
    (folder / "login").mkdir()
    settings = oauth_settings(folder) | {"sasl.enabled.mechanisms": ",".join(ALL_MECHANISMS)}
    login = stack.enter_context(login_broker(folder / "login", **settings))
    return _sender(login.safe, stack)


def tls_conversation(folder: Path, stack: contextlib.ExitStack) -> Parse:
    """The same with a listener of TLS."""
    from tls.tls_broker import tls_broker

    return _sender(stack.enter_context(tls_broker(folder)).safe, stack)


def _sender(place: str, stack: contextlib.ExitStack) -> Parse:
    faults = Faults()
    logging.getLogger().addHandler(faults)
    stack.callback(logging.getLogger().removeHandler, faults)
    host, port = place.split(":")
    address = (host, int(port))

    def parse(data: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            with socket.create_connection(address, timeout=CLOSE_S) as connection:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass
        assert not faults.found, faults.found

    return parse


def conversations() -> Iterator[bytes]:
    for version in range(5):
        flexible = version > 2
        body = b"\0\2a\2b\0" if flexible else b""
        yield frame(header(18, version, body))
    for version, name in ((0, b"PLAIN"), (1, b"SCRAM-SHA-256"), (1, b"OAUTHBEARER"), (1, b"NONE")):
        chosen = frame(header(17, version, struct.pack(">h", len(name)) + name))
        yield chosen
        if version == 0:
            yield chosen + frame(UNTRUE)
        for number in (0, 1):
            token = struct.pack(">i", len(UNTRUE)) + UNTRUE
            yield chosen + frame(header(36, number, token))
        flexible = b"\0" + bytes([len(UNTRUE) + 1]) + UNTRUE + b"\0"
        yield chosen + frame(header(36, 2, flexible))
    yield b"\x16\x03\x01\x02\0" + bytes(40)
    yield b"GET / HTTP/1.1\r\n\r\n"


def hellos() -> Iterator[bytes]:
    from tls.test_transport import client_context, client_hello

    for version in ("TLSv1.2", "TLSv1.3"):
        hello = client_hello(client_context(version))
        yield hello
        yield hello + b"\x14\x03\x03\0\1\1" + b"\x17\x03\x03\0\x20" + bytes(32)
        yield hello + b"\x15\x03\x03\0\2\2\x28"
    yield b"GET / HTTP/1.1\r\n\r\n"


PARSERS = {
    "conversation": Parser(conversation, conversations),
    "tls_conversation": Parser(tls_conversation, hellos),
}
