"""Request headers, and the messages of every API key and version, as the codec reads them."""

import contextlib
from collections.abc import Iterator

from oracle.vectors import message_vectors
from sanitizers.parsers import Parser, of

from barnabas.errors import UnsupportedVersion
from barnabas.wire import MalformedMessage, by_name
from barnabas.wire.headers import decode_request_header, encode_request

VECTORS = [v for v in message_vectors() if v["kind"] in ("request", "response")]
VERSIONS = sorted({(v["api"], v["version"]) for v in VECTORS})
PROGRAMS = [by_name(name).program(version) for name, version in VERSIONS]


def request_header(data: bytes) -> None:
    with contextlib.suppress(MalformedMessage, UnsupportedVersion):  # no such key
        _, end = decode_request_header(data)
        assert end <= len(data)


def request_headers() -> Iterator[bytes]:
    for vector in VECTORS:
        if vector["kind"] == "request":
            key = int(vector["key"])
            try:
                yield encode_request(key, vector["version"], 7, "c", b"", framed=False)
            except UnsupportedVersion:
                continue


def message(data: bytes) -> None:
    """Two bytes choose the message. What is read is written and read again as the same."""
    choice, body = int.from_bytes(data[:2], "big"), data[2:]
    program = PROGRAMS[choice % len(PROGRAMS)]
    with contextlib.suppress(MalformedMessage):
        value, end = program.decode(body)
        assert end <= len(body)
        again = program.encode(value)
        assert program.encode(program.decode_whole(again)) == again


def messages() -> Iterator[bytes]:
    for vector in VECTORS:
        index = VERSIONS.index((vector["api"], vector["version"]))
        yield index.to_bytes(2, "big") + vector["bytes"]


PARSERS = {
    "request_header": Parser(of(request_header), request_headers),
    "message": Parser(of(message), messages),
}
