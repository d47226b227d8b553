"""Bounded decoders of lz4 and snappy for threads that never take the GIL.

A decoder fills an Inflated, which the caller keeps and reuses: its memory grows with what the
compressed bytes can really hold (lz4 at most 255 to 1, snappy 22 to 1), never with a size they
announce, and never past size_max. All return an InflateStatus. On any status but INFLATE_OK,
`reason` and `position` (a byte of the input) say what was wrong, and the data must not be used.

    cdef Inflated out
    inflated_init(&out)
    if lz4_frame_decode(&out, src, n, size_max) == INFLATE_OK:
        ...  # out.data, out.size_bytes: good until the next decode or inflated_free
    inflated_reset(&out, 1 << 20)  # gives memory back after an unusually large batch
    inflated_free(&out)

With out.take set, lz4_frame_decode and snappy_framed_decode pass the content to `take` in pieces
and keep only the bytes that later blocks may refer to, so that they need memory for one piece and
one block. They call `take` with out.context, also for the last piece, which may be empty. A frame
that ends in a checksum of its whole content is passed as one piece of at most size_max bytes.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t

cdef enum InflateStatus:
    INFLATE_OK = 0
    INFLATE_CORRUPT = 1
    INFLATE_TOO_LARGE = 2
    INFLATE_NO_MEMORY = 3

ctypedef void (*PieceTaker)(void* context, const uint8_t* piece, int64_t size) noexcept nogil

cdef struct Inflated:
    uint8_t* data
    int64_t size_bytes
    int64_t capacity_bytes
    int64_t taken_bytes         # of `data`: passed to `take` already, kept for later references
    int64_t gone_bytes          # passed to `take`, and no longer in `data`
    PieceTaker take             # NULL: everything is kept
    void* context
    int64_t position
    const char* reason

cdef void inflated_init(Inflated* out) noexcept nogil
cdef void inflated_reset(Inflated* out, int64_t keep_bytes_max) noexcept nogil
cdef void inflated_free(Inflated* out) noexcept nogil

cdef int lz4_frame_decode(
    Inflated* out, const uint8_t* src, int64_t n, int64_t size_max) noexcept nogil
cdef int lz4_block_decode(
    Inflated* out, const uint8_t* src, int64_t n, int64_t size_max) noexcept nogil
# Decodes Xerial's framing or a raw block: the first bytes say which of them it is.
cdef int snappy_framed_decode(
    Inflated* out, const uint8_t* src, int64_t n, int64_t size_max) noexcept nogil
cdef int snappy_block_decode(
    Inflated* out, const uint8_t* src, int64_t n, int64_t size_max) noexcept nogil

# Returns the xxHash32 (seed 0) of n bytes, which lz4 frames use as their checksum.
cdef uint32_t xxh32(const uint8_t* p, int64_t n) noexcept nogil
