"""Requests with names that no topic, group or broker can have get a response, and cause no
traceback.

Every string of a request is such a name, alone and in arrays with two elements, in each version
that is served. UNKNOWN_SERVER_ERROR would mean that a handler did not expect the input.
"""

import itertools
import logging
import time
from contextlib import closing

import pytest
from compat.support import Wire

from barnabas import Broker
from barnabas.api.table import api_table
from barnabas.cext.codec.wire_struct import Struct
from barnabas.wire import Message, request
from barnabas.wire.schema import Field, within

UNKNOWN_SERVER_ERROR = -1
SHORT_MAX = 0x7FFF  # the largest size of a string in versions that are not flexible
NAMES = {
    "empty": "",
    "dots": "..",
    "slashes": "/../a//b",
    "zero byte": "a\0b",
    "not ASCII": "\u00e9",
    "beyond 16 bits": "\U0001f40c" * 20,
    "longer than a topic's": "a" * 250,
    "longer than a directory's": "\u00e9" * 200,
    "longer than a node's path": "a" * 5000,
    "as long as can be sent": "\u00e9" * (SHORT_MAX // 2),
    "longer than a short string": "a" * (SHORT_MAX + 1),
    "a number": "1",
    "with a pattern": "%s{}$(x)*",
}
NUMBERS = (0, -1, -2, 1, 2**31 - 1, -(2**31))
BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}
PRODUCE, FETCH = 0, 1  # answered by native handlers, which have tests of their own


class Filled:
    """Requests of one message and version, full of one name and one number."""

    def __init__(self, message: Message, version: int, name: str, number: int, rows: int) -> None:
        self.message, self.version = message, version
        self.name, self.number, self.rows = name, number, rows
        self.steps = itertools.count()  # all different, so that two elements name two partitions

    def struct(self, path: str = "") -> Struct:
        made = self.message.struct(path)()
        for field in self.message.fields_at(path):
            if within(field.versions, self.version):
                here = f"{path}.{field.name}" if path else field.name
                setattr(made, field.name, self.value(field, here))
        return made

    def value(self, field: Field, path: str) -> object:
        if field.array:
            return [self.one(field, path) for _ in range(self.rows)]
        return self.one(field, path)

    def one(self, field: Field, path: str) -> object:
        if field.base == "{}":
            return self.struct(path)
        if field.base == "string":
            return self.name
        if field.base in BITS:
            signed = not field.base.startswith("u")
            bits = BITS[field.base] - signed
            low = -(2**bits) if signed else 0
            step = next(self.steps) if self.number == 1 else 0
            return max(low, min(2**bits - 1, self.number + step))
        if field.base == "bool":
            return False
        if field.base == "uuid":
            return b"\1" * 16
        if field.base == "float64":
            return 1.0
        return b"\xff\xfe"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    data = tmp_path_factory.mktemp("odd") / "data"
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(data),
        "group.initial.rebalance.delay.ms": "0",
    }
    with Broker(settings) as made:
        with closing(Wire(made.bootstrap_servers)) as wire:
            for key_type in (0, 1, 2):
                find_coordinator(wire, key_type)
        yield made


def find_coordinator(wire: Wire, key_type: int) -> None:
    """Creates the coordinator's topic and waits until all of it is loaded."""
    key = "g:AAECAwQFBgcICQoLDA0ODw:0" if key_type == 2 else "g"
    deadline = time.monotonic() + 20
    while True:
        asked = request(10).cls(keyType=key_type, coordinatorKeys=[key])
        if wire.call(10, 6, asked).coordinators[0].errorCode == 0:
            return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def codes(value: object) -> set[int]:
    """All error codes of an answer."""
    found: set[int] = set()
    if isinstance(value, list):
        for one in value:
            found |= codes(one)
    elif isinstance(value, Struct):
        for name in type(value).__slots__:
            inner = getattr(value, name)
            found |= {inner} if name == "errorCode" else codes(inner)
    return found


SERVED = [
    (key, version)
    for key, row in api_table().items()
    for version in range(row.version_min, row.version_max + 1)
    if key not in (PRODUCE, FETCH)
]


@pytest.mark.parametrize("key, version", SERVED)
def test_an_odd_name_gets_an_answer_and_never_a_traceback(broker, caplog, key, version):
    """F50: KeyError in AlterShareGroupOffsets, ValueError in ListOffsets."""
    message = request(key)
    strange = []
    with caplog.at_level(logging.ERROR), closing(Connections(broker.bootstrap_servers)) as wires:
        for what, name in NAMES.items():
            for number in NUMBERS:
                for rows in (1, 2):
                    caplog.clear()
                    filled = Filled(message, version, name, number, rows).struct()
                    answer = wires.call(key, version, filled)
                    traced = [str(row.exc_info[1]) for row in caplog.records if row.exc_info]
                    if traced or UNKNOWN_SERVER_ERROR in codes(answer):
                        strange.append((what, number, rows, traced))
    assert strange == []


class Connections:
    """A connection that is opened again when the broker has closed it. `call` returns a response,
    or None when the broker closed the connection."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._wire = Wire(address)

    def call(self, key: int, version: int, body: Struct) -> Struct | None:
        try:
            return self._wire.call(key, version, body)
        except (ConnectionError, ValueError):
            self._wire.close()
            self._wire = Wire(self._address)
            return None

    def close(self) -> None:
        self._wire.close()
