"""Batches and messages whose length and checksum are right, whatever else they are."""

import struct
from collections.abc import Iterator

from oracle.old_produce import inner, wrapper
from oracle.produce import batch

from barnabas.cext.codec.crc import crc32, crc32c

SIZE_MAX = 1 << 20  # of what is decompressed


def sealed(data: bytes) -> bytes:
    """The bytes as one batch, or one message of magic 0 or 1."""
    if len(data) < 21:
        return data
    made = bytearray(data)
    struct.pack_into(">i", made, 8, len(made) - 12)
    if made[16] == 2:
        struct.pack_into(">I", made, 17, crc32c(memoryview(made)[21:]))
    else:
        struct.pack_into(">I", made, 12, crc32(memoryview(made)[16:]))
    return bytes(made)


def old_messages() -> Iterator[bytes]:
    """Message sets of the formats 0 and 1, with each codec, and wrappers in wrappers."""
    for magic in (0, 1):
        content = inner(magic, 3)
        yield content
        for codec in (1, 2, 3):
            yield wrapper(magic, codec, content, offset=2)
        yield wrapper(magic, 1, wrapper(magic, 1, content))
        yield wrapper(magic, 1, inner(1 - magic, 2))
        yield wrapper(magic, 1, batch())
