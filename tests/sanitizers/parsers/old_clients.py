"""Requests of Kafka 0.7, and the file that keeps the addresses of its consumers."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from oracle import kafka07
from sanitizers.parsers import Parser, of
from sanitizers.parsers.sealed import SIZE_MAX

from barnabas.legacy07.frames import BadRequest, ProduceAsked, parse_request
from barnabas.legacy07.produce import produce_request
from barnabas.storage.address_index import (
    ENTRY,
    HEADER,
    AddressIndex,
    DamagedIndex,
    _entry,
    _header,
)


def request07(data: bytes) -> None:
    """The first byte is the type of the request."""
    with contextlib.suppress(BadRequest):
        for row in parse_request(data[0] % 6 if data else 0, data, 1):
            if isinstance(row, ProduceAsked):
                made = produce_request([row], SIZE_MAX)
                assert made is None or len(made) <= 3 * SIZE_MAX + 4 * len(data)


def requests07() -> Iterator[bytes]:
    plain, packed = kafka07.messages([b"one", b""]), kafka07.wrapped([b"two"] * 9)
    for data in (plain, packed, plain + packed, kafka07.message(packed, codec=1)):
        yield b"\0" + kafka07.produce_body("t", 0, data)
        two = kafka07.produce_body("t", 0, data) + kafka07.produce_body("u", -1, data)
        yield b"\3\0\2" + two
    fetch = kafka07.fetch_body("t", 0, 5, 100)
    yield b"\1" + fetch
    yield b"\2\0\2" + fetch * 2
    yield b"\4" + kafka07.place("t", 0) + bytes(12)


def addresses07(data: bytes) -> None:
    """The first byte says whether the entries get the checksums that they must have."""
    content = data[1:]
    if data and data[0]:
        rows = range(0, len(content) - ENTRY.size + 1, ENTRY.size)
        content = _header(data[0]) + b"".join(
            _entry(*ENTRY.unpack_from(content, at)[:3]) for at in rows
        )
    with contextlib.suppress(DamagedIndex):
        found, whole = AddressIndex.parse(Path("addresses07"), content)
        assert HEADER.size < whole <= len(content) and len(found.offsets) == len(found.addresses)
        for wanted in (-1, 0, 5, 2**63 - 1):
            found.at_address(wanted)
            found.at_offset(wanted)


def address_files() -> Iterator[bytes]:
    rows = [(0, 0, -1), (5, 100, 0), (9, 300, 2)]
    yield b"\0" + _header(1) + b"".join(_entry(*row) for row in rows)
    yield b"\1" + b"".join(_entry(*row) for row in rows)
    yield b"\0" + _header(0) + b"".join(_entry(*row) for row in rows)[:-3]


PARSERS = {
    "request07": Parser(of(request07), requests07),
    "addresses07": Parser(of(addresses07), address_files),
}
