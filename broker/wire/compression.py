"""The codecs of a batch's content: compression for writers, limited decompression for readers.

| codec  | bytes                                                                              |
|--------|------------------------------------------------------------------------------------|
| gzip   | RFC 1952 members; written as Kafka does: one member, mtime 0, OS 0xff              |
| snappy | xerial framing: 16 bytes `82 SNAPPY 00`, int32 1, int32 1, then chunks of int32     |
|        | size + raw block, each of at most 32 KiB of input; a bare raw block is read too    |
| lz4    | one frame, independent blocks of 64 KiB, no checksums; with magic 0 its header     |
|        | checksum covers the frame's magic number too (a fault that old clients check)      |
| zstd   | frames, magic 2 only; the size of the content may be missing                       |

Decompression stops after size_max (plus one chunk of CHUNK_BYTES), whatever size the data
announces. All given bytes must belong to the compressed data: bytes after its end are an error. The
packages are imported on first use, because a broker that does not decompress needs none of them.

These functions run on Python threads; the packages release the GIL while they work. The network
threads have their own decoders for lz4 and snappy: cext/codec/inflate.
"""

import struct
import zlib
from collections.abc import Callable
from typing import TypeAlias

from barnabas.cext.codec.inflate import hash32

Buffer: TypeAlias = bytes | bytearray | memoryview

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS: dict[str, int] = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
CODEC_NAMES: dict[int, str] = {number: name for name, number in CODECS.items()}

CHUNK_BYTES = 256 * 1024  # one step of decompression: far below the limit of a batch

GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_VERSION = 1
XERIAL_CHUNK_BYTES = 32 * 1024
# The snappy element with the highest ratio is a copy of 64 bytes, written in 3.
SNAPPY_EXPANSION_MAX = 22
LZ4_MAGIC = b"\x04\x22\x4d\x18"
KAFKA_LZ4_FAST = 9  # the level of its settings that means no high compression
LZ4_HIGH_MIN, LZ4_HIGH_MAX = 3, 12
ZSTD_MAGIC = 0xFD2FB528
ZSTD_SKIPPABLE_MAGIC = 0x184D2A50  # and the 15 numbers after it
# The largest window that zstd accepts by default, and that level 22 writes. The decoder uses no
# more of it than it has decoded, so size_max still limits the memory.
ZSTD_WINDOW_BYTES_MAX = 128 * 1024 * 1024


class CorruptCompressedData(ValueError):
    """The bytes are not complete, valid data of the codec."""


class DecompressedTooLarge(ValueError):
    """The data would decompress to more than size_max bytes."""


class UnknownCodec(ValueError):
    """The codec does not exist, or batches of this magic cannot have it (zstd needs magic 2)."""


def compress(codec: int, data: Buffer, *, level: int | None = None, magic: int = 2) -> bytes:
    """Returns the data in the framing of the codec, as Kafka's producer writes it into a batch.

    level: on the scale of the codec; None is its default. snappy has no levels. Raises
    UnknownCodec.
    """
    check_codec(codec, magic)
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        return _gzip_compress(data, zlib.Z_DEFAULT_COMPRESSION if level is None else level)
    if codec == SNAPPY:
        return _snappy_compress(data)
    if codec == LZ4:
        return _lz4_compress(data, 0 if level is None else level, magic)
    return _zstd_compress(data, 3 if level is None else level)


def level_of_setting(codec: int, level: int | None) -> int | None:
    """Returns on the scale of `compress` what the setting compression.CODEC.level says. Kafka's lz4
    has a fast form at its default, 9, and levels of high compression elsewhere."""
    if codec != LZ4 or level is None:
        return level
    return 0 if level == KAFKA_LZ4_FAST else max(LZ4_HIGH_MIN, min(level, LZ4_HIGH_MAX))


def decompress(codec: int, data: Buffer, *, size_max: int, magic: int = 2) -> bytes:
    """Returns the bytes before compression, at most size_max. Raises CorruptCompressedData,
    DecompressedTooLarge, UnknownCodec."""
    chunks: list[bytes] = []
    decompress_into(chunks.append, codec, data, size_max=size_max, magic=magic)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def decompress_into(
    take: Callable[[bytes], object], codec: int, data: Buffer, *, size_max: int, magic: int = 2
) -> None:
    """Decompresses as `decompress` does, and gives each piece to `take` as soon as it is decoded. A
    piece of gzip, lz4 or zstd has at most CHUNK_BYTES; a piece of snappy is a chunk of its
    framing."""
    check_codec(codec, magic)
    assert size_max >= 0
    _DECODERS[codec](memoryview(data).cast("B"), _Inflated(size_max, take))


def check_codec(codec: int, magic: int) -> None:
    """Raises UnknownCodec unless the codec (0 to 4, see CODECS) exists, and batches of this magic
    may have it: zstd needs magic 2 (KIP-110)."""
    if codec not in CODEC_NAMES:
        raise UnknownCodec(f"codec {codec} is not one of {', '.join(CODECS)}")
    if codec == ZSTD and magic < 2:
        raise UnknownCodec(f"zstd needs magic 2, not {magic}")


class _Inflated:
    """Gives decoded chunks to `take`, and counts their bytes against the limit."""

    def __init__(self, size_max: int, take: Callable[[bytes], object]) -> None:
        self.size_max = size_max
        self.size_bytes = 0
        self.take = take

    def ask(self) -> int:
        """Returns the number of bytes to request from the decoder: at most one more than the limit
        allows."""
        return min(CHUNK_BYTES, self.size_max - self.size_bytes + 1)

    def reserve(self, size_bytes: int) -> None:
        """Refuses an announced size before memory is allocated for it. Raises
        DecompressedTooLarge."""
        if self.size_bytes + size_bytes > self.size_max:
            raise DecompressedTooLarge(f"inflates to more than {self.size_max} bytes")

    def add(self, chunk: bytes) -> None:
        self.reserve(len(chunk))
        if chunk:
            self.size_bytes += len(chunk)
            self.take(chunk)


def _copy(view: memoryview, inflated: _Inflated) -> None:
    inflated.reserve(len(view))
    inflated.add(bytes(view))


def _gzip_compress(data: Buffer, level: int) -> bytes:
    # zlib's own header names Unix and the level; Kafka's names neither.
    deflater = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = deflater.compress(data) + deflater.flush()
    size_bytes = memoryview(data).nbytes
    return GZIP_HEADER + body + struct.pack("<II", zlib.crc32(data), size_bytes & 0xFFFFFFFF)


def _gzip_decompress(view: memoryview, inflated: _Inflated) -> None:
    # The input is given in slices, because each call of zlib copies the input that it did not use.
    member = zlib.decompressobj(zlib.MAX_WBITS | 16)
    at = 0
    slice_: bytes | memoryview = b""
    try:
        while True:
            if not slice_ and not member.eof:
                slice_ = view[at : at + CHUNK_BYTES]
                at += len(slice_)
            chunk = member.decompress(slice_, inflated.ask())
            inflated.add(chunk)
            if member.eof:
                slice_ = member.unused_data
                if not slice_ and at == len(view):
                    return
                member = zlib.decompressobj(zlib.MAX_WBITS | 16)
            else:
                slice_ = member.unconsumed_tail
                if not slice_ and not chunk and at == len(view):
                    raise CorruptCompressedData("gzip: the data ends inside a member")
    except zlib.error as error:
        raise CorruptCompressedData(f"gzip: {error}") from None


def _snappy_compress(data: Buffer) -> bytes:
    import snappy

    view = memoryview(data).cast("B")
    parts = [XERIAL_HEADER]
    for at in range(0, len(view), XERIAL_CHUNK_BYTES):
        block = snappy.compress(view[at : at + XERIAL_CHUNK_BYTES])
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _snappy_decompress(view: memoryview, inflated: _Inflated) -> None:
    # No raw block begins with these bytes: it would copy bytes from before the start of its output.
    if view[:8] != XERIAL_MAGIC:
        _snappy_block(view, inflated)
        return
    at = 0
    while at < len(view):
        # A header may precede any chunk: concatenated streams are one stream.
        if view[at : at + 8] == XERIAL_MAGIC:
            if at + 16 > len(view):
                raise CorruptCompressedData("snappy: the data ends inside the framing's header")
            lowest = int.from_bytes(view[at + 12 : at + 16], "big", signed=True)
            if lowest > XERIAL_VERSION:
                raise CorruptCompressedData(f"snappy: framing needs version {lowest} of its reader")
            at += 16
            continue
        size_bytes = int.from_bytes(view[at : at + 4], "big", signed=True)
        if at + 4 > len(view) or not 0 < size_bytes <= len(view) - at - 4:
            raise CorruptCompressedData(f"snappy: no whole chunk at byte {at}")
        at += 4
        _snappy_block(view[at : at + size_bytes], inflated)
        at += size_bytes


def _snappy_block(block: memoryview, inflated: _Inflated) -> None:
    import snappy

    announced = 0
    for i in range(5):
        if i >= len(block) or (i == 4 and block[i] > 0x0F):
            raise CorruptCompressedData("snappy: no size in front of a block")
        announced |= (block[i] & 0x7F) << (7 * i)
        if block[i] < 0x80:
            break
    if announced > len(block) * SNAPPY_EXPANSION_MAX:
        raise CorruptCompressedData(
            f"snappy: {len(block)} bytes cannot hold the {announced} they announce"
        )
    inflated.reserve(announced)
    try:
        inflated.add(snappy.uncompress(block))
    except snappy.UncompressError as error:
        raise CorruptCompressedData(f"snappy: {error.__cause__ or error}") from None


def _lz4_compress(data: Buffer, level: int, magic: int) -> bytes:
    import lz4.frame

    frame: bytes = lz4.frame.compress(
        data,
        compression_level=level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    if magic > 0:
        return frame
    return frame[:6] + _lz4_header_check(frame[:6]) + frame[7:]


def _lz4_decompress(view: memoryview, inflated: _Inflated) -> None:
    import lz4.frame

    at = 0
    pending: Buffer = _lz4_header_mended(view)
    context = lz4.frame.create_decompression_context()
    try:
        while True:
            chunk, used, ended = lz4.frame.decompress_chunk(
                context, pending[at : at + CHUNK_BYTES], max_length=inflated.ask()
            )
            inflated.add(chunk)
            at += used
            if ended:
                break
            if not used and not chunk:
                raise CorruptCompressedData("lz4: the data ends inside the frame")
    except RuntimeError as error:
        raise CorruptCompressedData(f"lz4: {error}") from None
    if at != len(pending):
        raise CorruptCompressedData(f"lz4: {len(pending) - at} bytes after the frame")


def _lz4_header_mended(view: memoryview) -> memoryview:
    """Returns the frame; corrects its header checksum if it is the wrong one of magic 0."""
    # Kafka supports neither skippable frames nor dictionaries (the lowest flag).
    if len(view) < 7 or view[:4] != LZ4_MAGIC or view[4] & 0x01:
        raise CorruptCompressedData("lz4: no frame, or one with a dictionary")
    at = 6 + (8 if view[4] & 0x08 else 0)
    if view[at : at + 1] != _lz4_header_check(view[:at]):
        return view
    return memoryview(bytes(view[:at]) + _lz4_header_check(view[4:at]) + bytes(view[at + 1 :]))


def _lz4_header_check(covered: Buffer) -> bytes:
    return bytes([hash32(covered) >> 8 & 0xFF])


def _zstd_compress(data: Buffer, level: int) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=level).compress(data)


def _zstd_decompress(view: memoryview, inflated: _Inflated) -> None:
    import zstandard

    # The package's reader takes the end of the input as the end of the content, and so would accept
    # a truncated frame. Therefore the walk over the blocks comes first.
    at = _zstd_frame_end(view, 0)
    while at < len(view):
        at = _zstd_frame_end(view, at)
    decoder = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX)
    try:
        announced = zstandard.frame_content_size(view)
        if announced > 0:  # -1: not announced
            inflated.reserve(announced)
        with decoder.stream_reader(view, read_across_frames=True) as reader:
            while chunk := reader.read(inflated.ask()):
                inflated.add(chunk)
    except zstandard.ZstdError as error:
        raise CorruptCompressedData(f"zstd: {error}") from None


def _zstd_frame_end(view: memoryview, at: int) -> int:
    """Returns where the frame that starts at `at` ends, from its block headers (RFC 8878, 3.1)."""
    size_bytes = len(view)
    number = int.from_bytes(view[at : at + 4], "little")
    if at + 8 <= size_bytes and number & ~0xF == ZSTD_SKIPPABLE_MAGIC:
        at += 8 + int.from_bytes(view[at + 4 : at + 8], "little")
        if at > size_bytes:
            raise CorruptCompressedData("zstd: the data ends inside a skippable frame")
        return at
    if at + 5 > size_bytes or number != ZSTD_MAGIC:
        raise CorruptCompressedData(f"zstd: no frame at byte {at}")
    flags = view[at + 4]
    single_segment = flags >> 5 & 1
    content_size_bytes = (single_segment, 2, 4, 8)[flags >> 6]
    at += 5 + (1 - single_segment) + (0, 1, 2, 4)[flags & 3] + content_size_bytes
    while at + 3 <= size_bytes:
        block = int.from_bytes(view[at : at + 3], "little")
        repeated = block >> 1 & 3 == 1  # one byte stands for the whole block
        at += 3 + (1 if repeated else block >> 3)
        if block & 1:
            at += 4 if flags & 4 else 0
            if at <= size_bytes:
                return at
            break
    raise CorruptCompressedData("zstd: the data ends inside a frame")


_DECODERS: dict[int, Callable[[memoryview, _Inflated], None]] = {
    NONE: _copy,
    GZIP: _gzip_decompress,
    SNAPPY: _snappy_decompress,
    LZ4: _lz4_decompress,
    ZSTD: _zstd_decompress,
}
