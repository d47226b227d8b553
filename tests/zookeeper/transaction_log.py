"""What was written to a ZooKeeper server, from its transaction log: every creation and change of a
znode, also of those that were deleted soon after.

| part          | bytes                                                                        |
|---------------|------------------------------------------------------------------------------|
| file header   | "ZKLG", int32 version, int64 database id                                     |
| transaction   | int64 checksum, int32 length, so many bytes, "B"; zeros end the file         |
| its header    | int64 session, int32 cxid, int64 zxid, int64 time, int32 type                |
| its body      | by type; a buffer or text is int32 length and so many bytes, -1 without data |

A multi has an int32 count, and for each operation its type and its body as a buffer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CREATE, SET_DATA, MULTI, CREATE_2 = 1, 5, 14, 15
ACL_TEXTS = 2  # scheme and id, after an int32 of permissions


class Written(NamedTuple):
    path: str
    data: bytes
    is_ephemeral: bool
    is_creation: bool


class _Body:
    def __init__(self, data: bytes):
        self._data, self._at = data, 0

    def number(self, code: str) -> int:
        (found,) = struct.unpack_from(f">{code}", self._data, self._at)
        self._at += struct.calcsize(code)
        return int(found)

    def buffer(self) -> bytes:
        length = max(self.number("i"), 0)
        self._at += length
        return self._data[self._at - length : self._at]


def written(data_dir: Path) -> Iterator[Written]:
    """Yields all creations and changes in their order. `data_dir`: of the server (zoo.cfg)."""
    for path in sorted((data_dir / "version-2").glob("log.*")):
        data, at = path.read_bytes(), 16
        while at + 12 <= len(data):
            (length,) = struct.unpack_from(">i", data, at + 8)
            if length <= 0:
                break
            body = _Body(data[at + 12 : at + 12 + length])
            for code in "qiqq":
                body.number(code)
            yield from _operation(body.number("i"), body)
            at += 12 + length + 1


def _operation(kind: int, body: _Body) -> Iterator[Written]:
    if kind == MULTI:
        for _ in range(body.number("i")):
            kind = body.number("i")
            yield from _operation(kind, _Body(body.buffer()))
    elif kind == SET_DATA:
        yield Written(body.buffer().decode(), body.buffer(), False, False)
    elif kind in (CREATE, CREATE_2):
        path, data = body.buffer().decode(), body.buffer()
        for _ in range(body.number("i")):
            body.number("i")
            for _text in range(ACL_TEXTS):
                body.buffer()
        yield Written(path, data, bool(body.number("b")), True)
