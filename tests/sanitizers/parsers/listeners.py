"""Bytes that a client sends to a listener: frames before and during a login, and TLS records."""

import contextlib
import logging
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from sanitizers.parsers import Parse, Parser
from sanitizers.parsers.headers import VECTORS
from security.json_tokens import oauth_settings
from security.login_broker import MECHANISMS, Conversation, frame, header, login_broker

from barnabas import Broker
from barnabas.wire.headers import encode_request

CLOSE_S = 10
ALL_MECHANISMS = (*MECHANISMS.split(","), "OAUTHBEARER")
COORDINATORS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
# OffsetCommit, OffsetFetch, InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn,
# TxnOffsetCommit
COORDINATOR_KEYS = (8, 9, 22, 24, 25, 26, 28)
REQUESTS: dict[int, list[list[bytes]]] = {key: [] for key in COORDINATOR_KEYS}  # by version
for _vector in VECTORS:
    _key, _version = _vector["key"], _vector["version"]
    if _vector["kind"] == "request" and _key in REQUESTS:
        REQUESTS[_key] += [[] for _ in range(_version + 1 - len(REQUESTS[_key]))]
        REQUESTS[_key][_version].append(_vector["bytes"])
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


def coordinator_request(folder: Path, stack: contextlib.ExitStack) -> Parse:
    """Requests of groups and transactions, which network threads and request handlers answer. The
    first byte chooses the API key, the second its version; the connection stays open."""
    made = stack.enter_context(Broker({"log.dirs": str(folder / "data")} | COORDINATORS))
    faults = _faults(stack)
    address = ("127.0.0.1", made.node.listeners[0].port)

    def connect() -> Conversation:
        return Conversation(socket.create_connection(address, timeout=CLOSE_S))

    line = connect()
    stack.callback(lambda: line.socket.close())
    for kind in (0, 1):  # the coordinators of the group and of the transactional id "a"
        find = encode_request(10, 1, 7, "c", b"\0\1a" + bytes([kind]), framed=False)
        for _ in range(500):
            answer = line.ask(find)
            if answer is not None and answer[8:10] == b"\0\0":
                break
            time.sleep(0.02)
        else:
            raise AssertionError("no coordinator")

    def parse(data: bytes) -> None:
        nonlocal line
        choice, version = data[0] if data else 0, data[1] if len(data) > 1 else 0
        key = COORDINATOR_KEYS[choice % len(COORDINATOR_KEYS)]
        frame = encode_request(key, version % len(REQUESTS[key]), 7, "c", data[2:], framed=False)
        if line.ask(frame) is None:
            line.socket.close()
            line = connect()
        assert not faults.found, faults.found

    return parse


def coordinator_requests() -> Iterator[bytes]:
    for index, key in enumerate(COORDINATOR_KEYS):
        for version, bodies in enumerate(REQUESTS[key]):
            for body in bodies:
                yield bytes([index, version]) + body
    producer, topic = b"\0\1a" + bytes(10), b"\0\0\0\1\0\1t\0\0\0\1\0\0\0\0"
    for key, version, body in (
        (8, 2, b"\0\1a" + b"\xff" * 4 + b"\0\0" + b"\xff" * 8 + topic + bytes(7) + b"\5\0\1m"),
        (22, 1, b"\0\1a\0\0\xea\x60"),
        (24, 0, producer + topic),
        (25, 0, producer + b"\0\1a"),
        (26, 0, producer + b"\1"),
        (28, 0, b"\0\1a" + producer + topic + bytes(7) + b"\5\0\1m"),
    ):
        yield bytes([COORDINATOR_KEYS.index(key), version]) + body


def _faults(stack: contextlib.ExitStack) -> Faults:
    faults = Faults()
    logging.getLogger().addHandler(faults)
    stack.callback(logging.getLogger().removeHandler, faults)
    return faults


def _sender(place: str, stack: contextlib.ExitStack) -> Parse:
    faults = _faults(stack)
    host, port = place.split(":")
    address, answer = (host, int(port)), bytearray(65536)
    patience = struct.pack("ll", CLOSE_S, 0)

    def parse(data: bytes) -> None:
        with contextlib.suppress(ConnectionError), socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
            connection.connect(address)
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv_into(answer):
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
    "coordinator_request": Parser(coordinator_request, coordinator_requests),
    "tls_conversation": Parser(tls_conversation, hellos),
}
