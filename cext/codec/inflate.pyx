"""Decoders of lz4 frames and snappy blocks: bounded, checked, without the GIL.

This is the most exposed parser of the broker: it reads bytes from any client. Its rules:

- it reads input below `iend` only, and writes output below `oend` only. Every allocation has
  SLACK_BYTES behind `oend`, so that a copy of 8 or 16 bytes at a time may write beyond it;
- a match refers to bytes between `low` (the first byte that it may read) and `op` (the end of output);
- it reserves memory block by block, at most what the block's compressed bytes can expand to;
- it adds lengths in 64 bits, from an input of less than 2^56 bytes, so that no sum can overflow.

    lz4 frame: 04 22 4d 18, FLG, BD, [content size 8], header checksum, blocks, 0 int32, [checksum]
               (integers little-endian; a block is size int32, top bit = stored as is, bytes, [sum])
    lz4 block: sequences of token, [literal length...], literals, offset 2, [match length...]
    snappy   : uvarint size, then elements: literals or copies with offsets of 11, 16 or 32 bits
    xerial   : 82 SNAPPY 00, two int32, then chunks of int32 size (big-endian) + snappy block

It accepts a last match nearer than 5 bytes to the end of a block, which liblz4 may refuse. It
refuses a dictionary id (Kafka has no dictionaries) and bytes after the frame, which liblz4 accepts.
Hand-written, because the lz4 and snappy packages have no functions for code without the GIL.
Next on the data path: cext/record/records.
"""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from barnabas.cext.codec.cursor cimport (
    Cursor, cursor_i32, cursor_left, cursor_of, cursor_take, cursor_uvarint,
)

cdef enum:
    SLACK_BYTES = 64
    LZ4_EXPANSION_MAX = 255  # a length byte of 255 stands for 255 bytes of a match
    SNAPPY_EXPANSION_MAX = 22  # a copy of 64 bytes in 3
    CAPACITY_MIN = 4096
    PIECE_BYTES = 256 * 1024  # the size from which decompressed bytes are passed to `take`
    LZ4_WINDOW_BYTES = 64 * 1024  # how far back a linked block may refer

cdef uint8_t* LZ4_MAGIC = b"\x04\x22\x4d\x18"
cdef uint8_t* XERIAL_MAGIC = b"\x82SNAPPY\x00"


class CorruptInput(ValueError):
    """The bytes are not whole, valid data of the codec."""


class TooLarge(ValueError):
    """The data would decompress to more than size_max bytes."""


# -- the buffer -----------------------------------------------------------------------------------

cdef inline void _begin(Inflated* out) noexcept nogil:
    out.size_bytes = 0
    out.taken_bytes = 0
    out.gone_bytes = 0

cdef void inflated_init(Inflated* out) noexcept nogil:
    memset(out, 0, sizeof(Inflated))

cdef void inflated_free(Inflated* out) noexcept nogil:
    free(out.data)
    inflated_init(out)

cdef void inflated_reset(Inflated* out, int64_t keep_bytes_max) noexcept nogil:
    """Empties the buffer and frees it if it holds more than keep_bytes_max."""
    _begin(out)
    if out.capacity_bytes > keep_bytes_max:
        inflated_free(out)

cdef inline int _fail(Inflated* out, int status, int64_t position, const char* reason) noexcept nogil:
    out.position = position
    out.reason = reason
    return status

cdef int _reserve(Inflated* out, int64_t extra_bytes, int64_t size_max) noexcept nogil:
    """Makes memory for `extra_bytes` behind size_bytes; it grows by doubling up to size_max. This
    may move out.data."""
    cdef int64_t wanted = out.size_bytes + extra_bytes
    cdef int64_t capacity = out.capacity_bytes
    cdef void* grown
    if wanted <= capacity and out.data != NULL:
        return INFLATE_OK
    capacity = min(max(capacity * 2, CAPACITY_MIN), size_max)
    capacity = max(capacity, wanted)
    grown = realloc(out.data, <size_t>(capacity + SLACK_BYTES))
    if grown == NULL:
        return INFLATE_NO_MEMORY
    out.data = <uint8_t*>grown
    out.capacity_bytes = capacity
    return INFLATE_OK


cdef inline void _hand_over(Inflated* out) noexcept nogil:
    """Passes the bytes that were not passed yet to `take`."""
    out.take(out.context, out.data + out.taken_bytes, out.size_bytes - out.taken_bytes)
    out.taken_bytes = out.size_bytes

cdef void _drain(Inflated* out, int64_t keep_bytes) noexcept nogil:
    """Passes the bytes to `take` when there is a full piece, and keeps the last `keep_bytes`."""
    cdef int64_t gone
    if out.take == NULL or out.size_bytes - out.taken_bytes < PIECE_BYTES:
        return
    _hand_over(out)
    gone = out.size_bytes - keep_bytes
    if gone > 0:
        memmove(out.data, out.data + gone, <size_t>keep_bytes)
        out.gone_bytes += gone
        out.size_bytes = keep_bytes
        out.taken_bytes = keep_bytes

cdef inline int _end(Inflated* out) noexcept nogil:
    if out.take != NULL:
        _hand_over(out)
    return INFLATE_OK


# -- copies ---------------------------------------------------------------------------------------

cdef inline void _copy_match(uint8_t* op, int64_t offset, int64_t size) noexcept nogil:
    """Copies `size` bytes from op - offset to op; the two may overlap, and then the copy repeats
    bytes that it has written. Writes at most 15 bytes too many."""
    cdef const uint8_t* src = op - offset
    cdef uint8_t* end = op + size
    cdef int i
    if offset >= 16:
        while op < end:
            memcpy(op, src, 16)
            op += 16
            src += 16
        return
    if offset == 1:
        memset(op, src[0], <size_t>size)
        return
    if offset < 8:
        # Eight bytes singly; after them the pattern also repeats at the next multiple of offset
        # that is at least 8, and from there whole words can be copied.
        for i in range(8):
            op[i] = src[i]
        op += 8
        src = op - offset * ((7 + offset) // offset)
    while op < end:
        memcpy(op, src, 8)
        op += 8
        src += 8


# -- lz4 ------------------------------------------------------------------------------------------

cdef inline uint32_t _le32(const uint8_t* p) noexcept nogil:
    cdef uint32_t v
    memcpy(&v, p, 4)
    return v

cdef inline uint32_t _le16(const uint8_t* p) noexcept nogil:
    cdef uint16_t v
    memcpy(&v, p, 2)
    return v

cdef inline int64_t _length_rest(const uint8_t** ip, const uint8_t* iend) noexcept nogil:
    """Returns the sum of the bytes that follow a length of 15: after a byte of 255 another follows.
    Returns -1 when the input ends."""
    cdef int64_t length = 0
    cdef uint8_t b = 255
    while b == 255:
        if ip[0] >= iend:
            return -1
        b = ip[0][0]
        ip[0] += 1
        length += b
    return length

cdef int _lz4_sequences(
    Inflated* out, const uint8_t* src, int64_t n, const uint8_t* low, uint8_t* oend
) noexcept nogil:
    """Decodes one block into `out`, up to `oend`. Returns INFLATE_TOO_LARGE when it does not fit."""
    cdef const uint8_t* ip = src
    cdef const uint8_t* iend = src + n
    cdef uint8_t* op = out.data + out.size_bytes
    cdef int64_t literals, length, offset
    cdef uint32_t token
    while ip < iend:
        token = ip[0]
        ip += 1
        literals = token >> 4
        if literals < 15 and iend - ip >= 16 and oend - op >= 16:
            memcpy(op, ip, 16)
        else:
            if literals == 15:
                length = _length_rest(&ip, iend)
                if length < 0:
                    return _fail(out, INFLATE_CORRUPT, ip - src, "lz4: torn literal length")
                literals += length
            if literals > iend - ip:
                return _fail(out, INFLATE_CORRUPT, ip - src, "lz4: literals beyond the block")
            if literals > oend - op:
                return INFLATE_TOO_LARGE
            memcpy(op, ip, <size_t>literals)
        ip += literals
        op += literals
        if ip == iend:
            out.size_bytes = op - out.data
            return INFLATE_OK
        if iend - ip < 2:
            return _fail(out, INFLATE_CORRUPT, ip - src, "lz4: torn match offset")
        offset = _le16(ip)
        ip += 2
        if offset == 0 or offset > op - low:
            return _fail(out, INFLATE_CORRUPT, ip - src - 2, "lz4: match before the first byte")
        length = token & 15
        if length == 15:
            length = _length_rest(&ip, iend)
            if length < 0:
                return _fail(out, INFLATE_CORRUPT, ip - src, "lz4: torn match length")
            length += 15
        length += 4
        if length > oend - op:
            return INFLATE_TOO_LARGE
        if offset >= 8 and length <= 16:
            memcpy(op, op - offset, 8)
            memcpy(op + 8, op + 8 - offset, 8)
        else:
            _copy_match(op, offset, length)
        op += length
    return _fail(out, INFLATE_CORRUPT, n, "lz4: the block ends without literals")

cdef int _lz4_block(
    Inflated* out, const uint8_t* src, int64_t n, bint linked, int64_t block_max, int64_t size_max
) noexcept nogil:
    cdef int64_t room = min(block_max, size_max - out.size_bytes)
    cdef bint limited = room < block_max
    cdef int64_t before = out.size_bytes
    cdef int status
    room = min(room, n * LZ4_EXPANSION_MAX)
    if _reserve(out, room, size_max) != INFLATE_OK:
        return _fail(out, INFLATE_NO_MEMORY, 0, "no memory")
    status = _lz4_sequences(
        out, src, n, out.data if linked else out.data + before, out.data + before + room)
    if status != INFLATE_TOO_LARGE:
        return status
    if limited:
        return _fail(out, INFLATE_TOO_LARGE, 0, "lz4: inflates past the limit")
    return _fail(out, INFLATE_CORRUPT, 0, "lz4: a block larger than the frame allows")

cdef int lz4_block_decode(
    Inflated* out, const uint8_t* src, int64_t n, int64_t size_max
) noexcept nogil:
    """Decodes a raw block, without frame or size."""
    _begin(out)
    return _lz4_block(out, src, n, False, <int64_t>1 << 62, size_max)

cdef struct _Frame:
    bint linked
    bint block_sums
    bint content_sum
    int64_t content_size  # -1: not in the frame
    int64_t block_max

cdef inline bint _header_sum_fits(const uint8_t* src, int64_t header, uint8_t given) noexcept nogil:
    """Returns whether the header checksum fits: over the descriptor, or, as clients of message
    format 0 write it, over the magic number too."""
    return (
        given == <uint8_t>(xxh32(src + 4, header - 4) >> 8)
        or given == <uint8_t>(xxh32(src, header) >> 8)
    )

cdef int _lz4_header(Inflated* out, Cursor* c, _Frame* frame) noexcept nogil:
    cdef const uint8_t* src = c.p
    cdef const uint8_t* at = cursor_take(c, 6)
    cdef int flags, block
    cdef uint64_t content_size
    if at == NULL or memcmp(at, LZ4_MAGIC, 4) != 0:
        return _fail(out, INFLATE_CORRUPT, 0, "lz4: no frame")
    flags = at[4]
    block = at[5]
    # Version 1; no reserved bit, no dictionary; block sizes 4 to 7 (64 KiB to 4 MiB).
    if flags >> 6 != 1 or flags & 0x03 or block & 0x8F or block >> 4 < 4:
        return _fail(out, INFLATE_CORRUPT, 4, "lz4: unknown frame flags")
    frame.linked = not flags & 0x20
    frame.block_sums = flags & 0x10
    frame.content_sum = flags & 0x04
    frame.block_max = <int64_t>1 << (8 + 2 * (block >> 4))
    frame.content_size = -1
    if flags & 0x08:
        at = cursor_take(c, 8)
        if at != NULL:
            memcpy(&content_size, at, 8)
            frame.content_size = <int64_t>min(content_size, <uint64_t>INT64_MAX)
    at = cursor_take(c, 1)
    if at == NULL:
        return _fail(out, INFLATE_CORRUPT, c.p - src, "lz4: torn frame header")
    if not _header_sum_fits(src, at - src, at[0]):
        return _fail(out, INFLATE_CORRUPT, at - src, "lz4: wrong header checksum")
    return INFLATE_OK

cdef int _lz4_stored(Inflated* out, const uint8_t* src, int64_t n, int64_t size_max) noexcept nogil:
    if n > size_max - out.size_bytes:
        return _fail(out, INFLATE_TOO_LARGE, 0, "lz4: inflates past the limit")
    if _reserve(out, n, size_max) != INFLATE_OK:
        return _fail(out, INFLATE_NO_MEMORY, 0, "no memory")
    memcpy(out.data + out.size_bytes, src, <size_t>n)
    out.size_bytes += n
    return INFLATE_OK

cdef int _lz4_tail(Inflated* out, Cursor* c, const uint8_t* src, _Frame* frame) noexcept nogil:
    cdef const uint8_t* sum
    if frame.content_sum:
        sum = cursor_take(c, 4)
        if sum == NULL or _le32(sum) != xxh32(out.data, out.size_bytes):
            return _fail(out, INFLATE_CORRUPT, c.p - src, "lz4: wrong content checksum")
    if frame.content_size >= 0 and frame.content_size != out.gone_bytes + out.size_bytes:
        return _fail(out, INFLATE_CORRUPT, c.p - src, "lz4: not of the announced size")
    if cursor_left(c) != 0:
        return _fail(out, INFLATE_CORRUPT, c.p - src, "lz4: bytes after the frame")
    return INFLATE_OK

cdef int lz4_frame_decode(
    Inflated* out, const uint8_t* src, int64_t n, int64_t size_max
) noexcept nogil:
    cdef Cursor c = cursor_of(src, n)
    cdef _Frame frame
    cdef const uint8_t* at
    cdef const uint8_t* sum
    cdef uint32_t word
    cdef int64_t size
    cdef int status
    _begin(out)
    status = _lz4_header(out, &c, &frame)
    if status != INFLATE_OK:
        return status
    if frame.content_size > size_max:
        return _fail(out, INFLATE_TOO_LARGE, 6, "lz4: inflates past the limit")
    while True:
        at = cursor_take(&c, 4)
        if at == NULL:
            return _fail(out, INFLATE_CORRUPT, n, "lz4: the data ends inside the frame")
        word = _le32(at)
        if word == 0:
            status = _lz4_tail(out, &c, src, &frame)
            return _end(out) if status == INFLATE_OK else status
        size = word & 0x7FFFFFFF
        at = cursor_take(&c, size)
        if at == NULL or size > frame.block_max:
            return _fail(out, INFLATE_CORRUPT, c.p - src, "lz4: a block beyond the frame")
        if frame.block_sums:
            sum = cursor_take(&c, 4)
            if sum == NULL or _le32(sum) != xxh32(at, size):
                return _fail(out, INFLATE_CORRUPT, c.p - src, "lz4: wrong block checksum")
        if not frame.content_sum:
            _drain(out, LZ4_WINDOW_BYTES if frame.linked else 0)
        if word >> 31:
            status = _lz4_stored(out, at, size, size_max - out.gone_bytes)
        else:
            status = _lz4_block(
                out, at, size, frame.linked, frame.block_max, size_max - out.gone_bytes)
        if status != INFLATE_OK:
            out.position += at - src
            return status


# -- snappy ---------------------------------------------------------------------------------------

cdef int _snappy_elements(
    Inflated* out, const uint8_t* src, int64_t n, int64_t size
) noexcept nogil:
    """Decodes the elements of one block, for whose `size` bytes memory is reserved."""
    cdef const uint8_t* ip = src
    cdef const uint8_t* iend = src + n
    cdef uint8_t* low = out.data + out.size_bytes
    cdef uint8_t* op = low
    cdef uint8_t* oend = low + size
    cdef int64_t length, offset
    cdef int tag, i, extra
    while ip < iend:
        tag = ip[0]
        ip += 1
        if tag & 3 == 0:
            length = (tag >> 2) + 1
            if length <= 16 and iend - ip >= 16 and oend - op >= 16:
                memcpy(op, ip, 16)
                ip += length
                op += length
                continue
            if length > 60:
                extra = <int>length - 60
                if iend - ip < extra:
                    return _fail(out, INFLATE_CORRUPT, ip - src, "snappy: torn literal length")
                length = 1
                for i in range(extra):
                    length += <int64_t>ip[i] << (8 * i)
                ip += extra
            if length > iend - ip or length > oend - op:
                return _fail(out, INFLATE_CORRUPT, ip - src, "snappy: literals beyond the block")
            memcpy(op, ip, <size_t>length)
            ip += length
            op += length
            continue
        extra = tag & 3 if tag & 3 < 3 else 4
        if iend - ip < extra:
            return _fail(out, INFLATE_CORRUPT, ip - src, "snappy: torn copy")
        if extra == 1:
            length = 4 + ((tag >> 2) & 7)
            offset = ((tag >> 5) << 8) | ip[0]
        else:
            length = 1 + (tag >> 2)
            offset = _le16(ip) if extra == 2 else _le32(ip)
        if offset == 0 or offset > op - low:
            return _fail(out, INFLATE_CORRUPT, ip - src, "snappy: copy from before the first byte")
        if length > oend - op:
            return _fail(out, INFLATE_CORRUPT, ip - src, "snappy: copy beyond the announced size")
        ip += extra
        if offset >= 8 and length <= 16:
            memcpy(op, op - offset, 8)
            memcpy(op + 8, op + 8 - offset, 8)
        else:
            _copy_match(op, offset, length)
        op += length
    if op != oend:
        return _fail(out, INFLATE_CORRUPT, n, "snappy: less than the announced size")
    out.size_bytes += size
    return INFLATE_OK

cdef int _snappy_block(
    Inflated* out, const uint8_t* src, int64_t n, int64_t size_max
) noexcept nogil:
    cdef Cursor c = cursor_of(src, n)
    cdef int64_t size = <int64_t>cursor_uvarint(&c, 5)
    cdef int status
    if c.bad:
        return _fail(out, INFLATE_CORRUPT, 0, "snappy: no size in front of a block")
    if size > n * SNAPPY_EXPANSION_MAX:
        return _fail(out, INFLATE_CORRUPT, 0, "snappy: announces more than it can hold")
    if size > size_max - out.size_bytes:
        return _fail(out, INFLATE_TOO_LARGE, 0, "snappy: inflates past the limit")
    if _reserve(out, size, size_max) != INFLATE_OK:
        return _fail(out, INFLATE_NO_MEMORY, 0, "no memory")
    status = _snappy_elements(out, c.p, cursor_left(&c), size)
    if status != INFLATE_OK:
        out.position += c.p - src
    return status

cdef int snappy_block_decode(
    Inflated* out, const uint8_t* src, int64_t n, int64_t size_max
) noexcept nogil:
    _begin(out)
    return _snappy_block(out, src, n, size_max)

cdef int snappy_framed_decode(
    Inflated* out, const uint8_t* src, int64_t n, int64_t size_max
) noexcept nogil:
    cdef Cursor c = cursor_of(src, n)
    cdef const uint8_t* at
    cdef int64_t size
    cdef int status
    _begin(out)
    # No raw block begins like Xerial's framing, because it would copy bytes before its first byte.
    if n < 8 or memcmp(src, XERIAL_MAGIC, 8) != 0:
        status = _snappy_block(out, src, n, size_max)
        return _end(out) if status == INFLATE_OK else status
    while cursor_left(&c) > 0:
        # A header may come before any chunk: streams written one after another are one stream.
        if cursor_left(&c) >= 8 and memcmp(c.p, XERIAL_MAGIC, 8) == 0:
            cursor_take(&c, 12)
            if cursor_i32(&c) > 1 or c.bad:
                return _fail(out, INFLATE_CORRUPT, c.p - src, "snappy: unknown framing")
            continue
        size = cursor_i32(&c)
        at = cursor_take(&c, size)
        if c.bad or size == 0:
            return _fail(out, INFLATE_CORRUPT, c.p - src, "snappy: no whole chunk")
        _drain(out, 0)
        status = _snappy_block(out, at, size, size_max - out.gone_bytes)
        if status != INFLATE_OK:
            out.position += at - src
            return status
    return _end(out)


# -- xxHash32, seed 0 (the checksum of the lz4 frame) ---------------------------------------------

cdef enum:
    P1 = 0x9E3779B1u
    P2 = 0x85EBCA77u
    P3 = 0xC2B2AE3Du
    P4 = 0x27D4EB2Fu
    P5 = 0x165667B1u

cdef inline uint32_t _rotated(uint32_t v, int bits) noexcept nogil:
    return (v << bits) | (v >> (32 - bits))

cdef inline uint32_t _round(uint32_t lane, const uint8_t* p) noexcept nogil:
    return _rotated(lane + _le32(p) * <uint32_t>P2, 13) * <uint32_t>P1

cdef uint32_t xxh32(const uint8_t* p, int64_t n) noexcept nogil:
    cdef const uint8_t* end = p + n
    cdef uint32_t h, a, b, c, d
    if n >= 16:
        a = <uint32_t>P1 + <uint32_t>P2
        b = <uint32_t>P2
        c = 0
        d = 0 - <uint32_t>P1
        while end - p >= 16:
            a = _round(a, p)
            b = _round(b, p + 4)
            c = _round(c, p + 8)
            d = _round(d, p + 12)
            p += 16
        h = _rotated(a, 1) + _rotated(b, 7) + _rotated(c, 12) + _rotated(d, 18)
    else:
        h = <uint32_t>P5
    h += <uint32_t>n
    while end - p >= 4:
        h = _rotated(h + _le32(p) * <uint32_t>P3, 17) * <uint32_t>P4
        p += 4
    while p < end:
        h = _rotated(h + p[0] * <uint32_t>P5, 11) * <uint32_t>P1
        p += 1
    h = (h ^ (h >> 15)) * <uint32_t>P2
    h = (h ^ (h >> 13)) * <uint32_t>P3
    return h ^ (h >> 16)


# -- for Python -----------------------------------------------------------------------------------

ctypedef int (*Decoder)(Inflated*, const uint8_t*, int64_t, int64_t) noexcept nogil

cdef bytes _decoded(Decoder decoder, object data, int64_t size_max):
    cdef Py_buffer view
    cdef Inflated out
    cdef int status
    if size_max < 0:
        raise ValueError("size_max below 0")
    inflated_init(&out)
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            status = decoder(&out, <const uint8_t*>view.buf, view.len, size_max)
        if status == INFLATE_OK:
            return PyBytes_FromStringAndSize(<const char*>out.data, out.size_bytes)
        if status == INFLATE_NO_MEMORY:
            raise MemoryError
        error = TooLarge if status == INFLATE_TOO_LARGE else CorruptInput
        raise error(f"{(<bytes>out.reason).decode()} (byte {out.position} of {view.len})")
    finally:
        inflated_free(&out)
        PyBuffer_Release(&view)


def lz4_decode(data, int64_t size_max) -> bytes:
    """Returns the content of one lz4 frame. `size_max`: bytes. Raises CorruptInput, TooLarge and
    MemoryError."""
    return _decoded(lz4_frame_decode, data, size_max)


def lz4_block(data, int64_t size_max) -> bytes:
    """Returns the content of one raw lz4 block; errors as in lz4_decode."""
    return _decoded(lz4_block_decode, data, size_max)


def snappy_decode(data, int64_t size_max) -> bytes:
    """Returns the content of snappy data in Xerial's framing, or of a raw block; errors as in
    lz4_decode."""
    return _decoded(snappy_framed_decode, data, size_max)


def hash32(data) -> int:
    """Returns the xxHash32 of the bytes, with seed 0."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    cdef uint32_t h = xxh32(<const uint8_t*>view.buf, view.len)
    PyBuffer_Release(&view)
    return h
