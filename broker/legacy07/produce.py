"""Converts what producers of Kafka 0.7 send into a Produce request of version 3, with batches of
format 2.

The native handler of Produce then does the rest, as for every producer: access rules, quotas,
interceptors, limits and compression. With acks=0 it answers nothing, and closes the connection
after an error, as 0.7 does. Version 3 is the lowest one that every api.versions.of serves.

A request has one batch for each partition: message sets of the same partition are joined. If a
wrapper is among the messages, the batch has the codec of the first one; a topic with
compression.type=producer keeps it. The records have no key and no timestamp. `size_max` limits the
decompressed content of a request.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from barnabas.cext.record.conversion import CannotConvert, up_convert
from barnabas.cext.record.messages07 import BadMessages, split_messages, to_message_set
from barnabas.cext.record.records import parse_header, seal_batch
from barnabas.legacy07.frames import BadRequest, ProduceAsked
from barnabas.wire import compression
from barnabas.wire.batches import BATCH_OVERHEAD_BYTES, NO_TIMESTAMP

ACKS_NONE = 0
TIMEOUT_MS = 30_000
HEADER = struct.pack(">hhih", 0, 3, 0, -1)  # Produce 3, correlation id 0, no client id
NO_TRANSACTION = struct.pack(">h", -1)


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
            batch, used = _batch(parts, left)
            left -= used
            if batch:
                rows.append(struct.pack(">ii", partition, len(batch)) + batch)
        if rows:
            name = topic.encode()
            head = struct.pack(f">h{len(name)}si", len(name), name, len(rows))
            topics.append(head + b"".join(rows))
    if not topics:
        return None
    body = struct.pack(">hii", ACKS_NONE, TIMEOUT_MS, len(topics))
    return HEADER + NO_TRANSACTION + body + b"".join(topics)


def _batch(parts: Sequence[bytes], size_max: int) -> tuple[bytes, int]:
    """Returns the messages as a batch, empty for none, and how many bytes were decompressed. Raises
    BadRequest."""
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
        entries = b"".join(pieces)
        plain = up_convert(entries) if entries else b""
    except (
        BadMessages,
        CannotConvert,
        compression.CorruptCompressedData,
        compression.DecompressedTooLarge,
    ) as error:
        raise BadRequest(str(error)) from error
    if codec == compression.NONE or not plain:
        return plain, used
    header = parse_header(plain)
    batch = seal_batch(
        compression.compress(codec, plain[BATCH_OVERHEAD_BYTES:]),
        count=header.record_count,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP,
        attributes=codec,
    )
    return batch, used
