"""The protocol metadata of consumers, of which a coordinator reads only the topics.

| field    | bytes                                                                   |
|----------|-------------------------------------------------------------------------|
| version  | int16                                                                   |
| topics   | int32 count, then strings (int16 length, UTF-8)                         |
| the rest | user data and, by version, owned partitions, generation, rack: not read |

Clients write it and the coordinator passes it on unchanged. For other bytes the result is None.
"""

from __future__ import annotations

import struct
from functools import lru_cache

KEPT = 256  # cached subscriptions: members of a group mostly have the same one
KEPT_BYTES_MAX = 1024  # the limit of one subscription

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Returns the topics of a subscription, or None for bytes that are not one."""
    return _kept(metadata) if len(metadata) <= KEPT_BYTES_MAX else _read(metadata)


@lru_cache(maxsize=KEPT)
def _kept(metadata: bytes) -> frozenset[str] | None:
    return _read(metadata)


def _read(metadata: bytes) -> frozenset[str] | None:
    try:
        version, count = _INT16.unpack_from(metadata)[0], _INT32.unpack_from(metadata, 2)[0]
        if version < 0 or count < 0 or count * 2 > len(metadata):
            return None
        found = set()
        at = 6
        for _ in range(count):
            size = _INT16.unpack_from(metadata, at)[0]
            at += 2
            if size < 0 or at + size > len(metadata):
                return None
            found.add(metadata[at : at + size].decode())
            at += size
        return frozenset(found)
    except (struct.error, UnicodeDecodeError):
        return None
