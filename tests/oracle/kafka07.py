"""A client of Kafka 0.7 and its messages, in plain Python, by the description of the protocol."""

import gzip
import socket
import struct
import zlib
from collections.abc import Iterable, Sequence

LATEST, EARLIEST = -1, -2
GZIP, SNAPPY = 1, 2
LISTENERS = "PLAINTEXT://127.0.0.1:0,LEGACY07://127.0.0.1:0"


def message(payload: bytes, *, magic: int = 1, codec: int = 0, crc: int | None = None) -> bytes:
    check = zlib.crc32(payload) if crc is None else crc
    body = bytes([magic, codec][: magic + 1]) + struct.pack(">I", check) + payload
    return struct.pack(">i", len(body)) + body


def messages(payloads: Iterable[bytes], magic: int = 1) -> bytes:
    return b"".join(message(payload, magic=magic) for payload in payloads)


def wrapped(payloads: Iterable[bytes], codec: int = GZIP) -> bytes:
    content = messages(payloads)
    if codec == GZIP:
        return message(gzip.compress(content, mtime=0), codec=codec)
    import snappy

    return message(snappy.compress(content), codec=codec)


def payloads_of(data: bytes) -> list[bytes]:
    """Returns the payloads of whole messages of magic 1 or 0; checks their CRCs."""
    found = []
    while data:
        size, magic = struct.unpack(">ib", data[:5])
        header = 6 if magic else 5
        assert magic in (0, 1) and len(data) >= 4 + size
        assert magic == 0 or data[5] == 0  # plain
        payload = data[4 + header : 4 + size]
        assert zlib.crc32(payload) == struct.unpack(">I", data[header : header + 4])[0]
        found.append(payload)
        data = data[4 + size :]
    return found


def place(topic: str, partition: int) -> bytes:
    name = topic.encode()
    return struct.pack(f">h{len(name)}si", len(name), name, partition)


def frame(kind: int, body: bytes) -> bytes:
    return struct.pack(">ih", 2 + len(body), kind) + body


def fetch_body(topic: str, partition: int, address: int, size_max: int) -> bytes:
    return place(topic, partition) + struct.pack(">qi", address, size_max)


def produce_body(topic: str, partition: int, data: bytes) -> bytes:
    return place(topic, partition) + struct.pack(">i", len(data)) + data


class Closed(Exception):
    """The broker has closed the connection."""


class Client07:
    """One connection to the listener LEGACY07."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)

    def __enter__(self) -> "Client07":
        return self

    def __exit__(self, *_error: object) -> None:
        self.socket.close()

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                more = self.socket.recv(size - len(data))
            except ConnectionError:
                more = b""
            if not more:
                raise Closed
            data += more
        return data

    def answer(self) -> tuple[int, bytes]:
        """Returns the error code and the rest of an answer."""
        data = self._receive(struct.unpack(">i", self._receive(4))[0])
        return struct.unpack(">h", data[:2])[0], data[2:]

    def send(self, kind: int, body: bytes) -> None:
        self.socket.sendall(frame(kind, body))

    def produce(self, topic: str, data: bytes, partition: int = 0) -> None:
        self.send(0, produce_body(topic, partition, data))

    def produce_many(self, parts: Sequence[tuple[str, int, bytes]]) -> None:
        self.send(3, struct.pack(">h", len(parts)) + b"".join(produce_body(*p) for p in parts))

    def fetch(
        self, topic: str, address: int, size_max: int = 1 << 20, partition: int = 0
    ) -> tuple[int, bytes]:
        self.send(1, fetch_body(topic, partition, address, size_max))
        return self.answer()

    def fetch_many(self, parts: Sequence[tuple[str, int, int, int]]) -> list[tuple[int, bytes]]:
        self.send(2, struct.pack(">h", len(parts)) + b"".join(fetch_body(*p) for p in parts))
        error, data = self.answer()
        assert error == 0
        found = []
        while data:
            size, code = struct.unpack(">ih", data[:6])
            found.append((code, data[6 : 4 + size]))
            data = data[4 + size :]
        return found

    def offsets(
        self, topic: str, time: int, count_max: int = 1, partition: int = 0
    ) -> tuple[int, list[int]]:
        self.send(4, place(topic, partition) + struct.pack(">qi", time, count_max))
        error, data = self.answer()
        count = struct.unpack(">i", data[:4])[0]
        assert len(data) == 4 + 8 * count
        return error, list(struct.unpack(f">{count}q", data[4:]))

    def consume(self, topic: str, address: int, size_max: int = 1 << 20) -> tuple[list[bytes], int]:
        """Fetches until nothing is left, as a consumer of 0.7 does: it adds the bytes that it read
        to its address. Returns the payloads and the last address."""
        found: list[bytes] = []
        while True:
            error, data = self.fetch(topic, address, size_max)
            assert error == 0, error
            if not data:
                return found, address
            found += payloads_of(data)
            address += len(data)
