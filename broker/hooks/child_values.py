"""Encodes arguments and answers for a plugin in its own process.

    frame    int32 BE size of the rest, int32 BE size of the JSON, JSON, blobs one after another

The JSON is one value. In it, bytes are {"b": size} and refer to the next blob, tuples and lists are
lists, dictionaries {"d": [[key, value], ...]}, sets {"s": [...]}, the classes of VIEWS {"c": name,
"f": [fields]}, a RecordBatch {"c": "RecordBatch", "f": [topic, partition, bytes, size_max]}, a
Record {"r": [value, key, timestamp, headers, offset]}, Replace {"p": [...]}. Neither side trusts
the other: a frame larger than FRAME_BYTES_MAX, or one that cannot be parsed, raises ValueError."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any

from barnabas.cext.record.records import CorruptRecords, Record
from barnabas.hooks import views

FRAME_BYTES_MAX = 256 << 20
VIEWS: dict[str, type[Any]] = {
    name: getattr(views, name)
    for name in (
        "SegmentView",
        "LogView",
        "UnflushedLog",
        "DirtyLog",
        "DirectoryView",
        "NewTopicView",
        "ConfigChange",
        "GroupMemberView",
        "GroupTopicView",
        "GroupView",
        "KeyedMessage",
        "MirroredMessage",
        "Reject",
    )
}


def encode(value: Any) -> bytes:
    """Returns a value as a whole frame with its size. Raises ValueError for a value of an unknown
    class, or a frame of more than FRAME_BYTES_MAX bytes."""
    blobs: list[bytes] = []
    text = json.dumps(_put(value, blobs), separators=(",", ":")).encode()
    size_bytes = 4 + len(text) + sum(len(blob) for blob in blobs)
    if size_bytes > FRAME_BYTES_MAX:
        raise ValueError(f"the arguments have {size_bytes} bytes; the limit is {FRAME_BYTES_MAX}")
    head = size_bytes.to_bytes(4, "big") + len(text).to_bytes(4, "big")
    return b"".join((head, text, *blobs))


def decode(frame: bytes) -> Any:
    """Returns the value of a frame, given without its size. Raises ValueError for bytes that
    `encode` cannot have made."""
    if len(frame) < 4:
        raise ValueError("the frame has fewer than 4 bytes")
    end = 4 + int.from_bytes(frame[:4], "big")
    if end > len(frame):
        raise ValueError("the frame ends within its JSON")
    reader = _Reader(memoryview(frame)[end:])
    try:
        value = reader.get(json.loads(frame[4:end]))
    except (
        AttributeError,
        CorruptRecords,
        IndexError,
        KeyError,
        OverflowError,
        RecursionError,
        TypeError,
    ) as error:
        raise ValueError(f"cannot parse a frame: {error}") from error
    return value


def received(line: socket.socket) -> Any:
    """Reads the next frame of `line` and returns its value; None when the peer has closed it.
    Raises ValueError for a bad frame, OSError for a broken connection."""
    head = _exactly(line, 4)
    if head is None:
        return None
    size_bytes = int.from_bytes(head, "big")
    if size_bytes > FRAME_BYTES_MAX:
        raise ValueError(f"the frame has {size_bytes} bytes; the limit is {FRAME_BYTES_MAX}")
    frame = _exactly(line, size_bytes)
    return None if frame is None else decode(frame)


def _exactly(line: socket.socket, size_bytes: int) -> bytes | None:
    found = bytearray()
    while len(found) < size_bytes:
        piece = line.recv(min(size_bytes - len(found), 1 << 20))
        if not piece:
            return None
        found += piece
    return bytes(found)


def _put(value: Any, blobs: list[bytes]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        blobs.append(value)
        return {"b": len(value)}
    if isinstance(value, Record):
        fields = (value.value, value.key, value.timestamp, value.headers, value.offset)
        return {"r": [_put(field, blobs) for field in fields]}
    if isinstance(value, views.RecordBatch):
        frame = (value.topic, value.partition, value.data, value.size_max)
        return {"c": "RecordBatch", "f": [_put(field, blobs) for field in frame]}
    if isinstance(value, views.Replace):
        return {"p": [_put(record, blobs) for record in value.records]}
    if type(value).__name__ in VIEWS and type(value) is VIEWS[type(value).__name__]:
        return {"c": type(value).__name__, "f": [_put(field, blobs) for field in value]}
    if isinstance(value, tuple | list):
        return [_put(item, blobs) for item in value]
    if isinstance(value, range):
        return list(value)
    if isinstance(value, set | frozenset):
        return {"s": [_put(item, blobs) for item in value]}
    if isinstance(value, Mapping):
        return {"d": [[_put(key, blobs), _put(item, blobs)] for key, item in value.items()]}
    raise ValueError(f"a {type(value).__name__} cannot go to another process")


class _Reader:
    def __init__(self, blobs: memoryview) -> None:
        self._blobs = blobs
        self._at = 0

    def get(self, found: Any) -> Any:
        if isinstance(found, list):
            return tuple(self.get(item) for item in found)
        if not isinstance(found, dict):
            return found
        if "b" in found:
            return self._blob(found["b"])
        if "d" in found:
            return {self.get(key): self.get(item) for key, item in found["d"]}
        if "s" in found:
            return frozenset(self.get(item) for item in found["s"])
        if "r" in found:
            value, key, timestamp, headers, offset = (self.get(item) for item in found["r"])
            return Record(value, key, timestamp=timestamp, headers=headers, offset=offset)
        if "p" in found:
            return views.Replace([self.get(item) for item in found["p"]])
        fields = [self.get(item) for item in found["f"]]
        if found["c"] == "RecordBatch":
            return views.RecordBatch(*fields)
        return VIEWS[found["c"]](*fields)

    def _blob(self, size_bytes: int) -> bytes:
        if not 0 <= size_bytes <= len(self._blobs) - self._at:
            raise ValueError("a value refers to bytes beyond the frame")
        self._at += size_bytes
        return bytes(self._blobs[self._at - size_bytes : self._at])
