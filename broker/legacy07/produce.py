"""Converts what producers of Kafka 0.7 send into a Produce request of version 0.

The native handler of Produce then does the rest, as for every producer: access rules, quotas,
interceptors, limits, the conversion to format 2 and compression. With acks=0 it answers nothing,
and closes the connection after an error, as 0.7 does.

A request has one message set for each partition: sets of the same partition are joined. If a
wrapper is among the messages, they become one wrapper with the codec of the first; a topic with
compression.type=producer keeps it. `size_max` limits the decompressed content of a request.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from barnabas.cext.record.messages07 import BadMessages, split_messages, to_message_set
from barnabas.cext.record.messageset import encode_wrapper
from barnabas.legacy07.frames import BadRequest, ProduceAsked
from barnabas.wire import compression

ACKS_NONE = 0
TIMEOUT_MS = 30_000
HEADER = struct.pack(">hhih", 0, 0, 0, -1)  # Produce 0, correlation id 0, no client id


def produce_request(asked: Iterable[ProduceAsked], size_max: int) -> bytes | None:
    """Returns the frame, without its size, of a Produce request with the messages; None when there
    are none. Raises BadRequest."""
    sets: dict[str, dict[int, list[bytes]]] = {}
    for row in asked:
        sets.setdefault(row.topic, {}).setdefault(row.partition, []).append(row.messages)
    topics = []
    left = size_max
    for topic, partitions in sets.items():
        rows = []
        for partition, parts in partitions.items():
            entries, used = _message_set(parts, left)
            left -= used
            if entries:
                rows.append(struct.pack(">ii", partition, len(entries)) + entries)
        if rows:
            name = topic.encode()
            head = struct.pack(f">h{len(name)}si", len(name), name, len(rows))
            topics.append(head + b"".join(rows))
    if not topics:
        return None
    body = struct.pack(">hii", ACKS_NONE, TIMEOUT_MS, len(topics))
    return HEADER + body + b"".join(topics)


def _message_set(parts: Sequence[bytes], size_max: int) -> tuple[bytes, int]:
    """Returns the messages as a message set of format 0, and how many bytes were decompressed.
    Raises BadRequest."""
    codec = compression.NONE
    pieces = []
    used = 0
    try:
        for part in parts:
            for found, start, end in split_messages(part):
                content = part[start:end]
                if found != compression.NONE:
                    codec = codec or found
                    content = compression.decompress(
                        found, content, size_max=size_max - used, magic=0
                    )
                    used += len(content)
                pieces.append(to_message_set(content))
    except (
        BadMessages,
        compression.CorruptCompressedData,
        compression.DecompressedTooLarge,
    ) as error:
        raise BadRequest(str(error)) from error
    entries = b"".join(pieces)
    if codec == compression.NONE or not entries:
        return entries, used
    packed = compression.compress(codec, entries, magic=0)
    return encode_wrapper(packed, magic=0, codec=codec, offset=0), used
