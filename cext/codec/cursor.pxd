"""The checked cursor: the one way in which cext reads bytes from clients, peers and disks.

A cursor is a pointer, an end and a flag. A read past the end sets `bad` and gives 0 (or NULL),
so a parser may read a whole structure and look at `bad` once. Nothing is ever read past `end`.
"""
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from barnabas.cext.codec.endian cimport be16_load, be32_load, be64_load
from barnabas.cext.codec.varint cimport unzigzag

cdef struct Cursor:
    const uint8_t* p
    const uint8_t* end
    bint bad

cdef inline Cursor cursor_of(const void* p, int64_t size_bytes) noexcept nogil:
    cdef Cursor c
    c.p = <const uint8_t*>p
    c.end = c.p + size_bytes
    c.bad = False
    return c

cdef inline int64_t cursor_left(const Cursor* c) noexcept nogil:
    """Returns how many bytes are left."""
    return c.end - c.p

cdef inline const uint8_t* cursor_take(Cursor* c, int64_t n) noexcept nogil:
    """Steps over the next n bytes and returns them. When n is negative or fewer are left, it
    returns NULL and sets `bad`."""
    cdef const uint8_t* at = c.p
    if n < 0 or n > c.end - c.p:
        c.bad = True
        c.p = c.end
        return NULL
    c.p += n
    return at

cdef inline int8_t cursor_i8(Cursor* c) noexcept nogil:
    cdef const uint8_t* at = cursor_take(c, 1)
    return <int8_t>at[0] if at != NULL else 0

cdef inline int16_t cursor_i16(Cursor* c) noexcept nogil:
    cdef const uint8_t* at = cursor_take(c, 2)
    return <int16_t>be16_load(at) if at != NULL else 0

cdef inline int32_t cursor_i32(Cursor* c) noexcept nogil:
    cdef const uint8_t* at = cursor_take(c, 4)
    return <int32_t>be32_load(at) if at != NULL else 0

cdef inline int64_t cursor_i64(Cursor* c) noexcept nogil:
    cdef const uint8_t* at = cursor_take(c, 8)
    return <int64_t>be64_load(at) if at != NULL else 0

cdef inline uint64_t cursor_uvarint(Cursor* c, int bytes_max) noexcept nogil:
    """Reads an unsigned varint of at most bytes_max bytes (5 for 32 bits, 10 for 64); a longer one
    sets `bad`."""
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef int i
    cdef uint8_t b
    if c.p < c.end and c.p[0] < 0x80:
        b = c.p[0]
        c.p += 1
        return b
    for i in range(bytes_max):
        if c.p >= c.end:
            break
        b = c.p[0]
        c.p += 1
        value |= <uint64_t>(b & 0x7F) << shift
        if b < 0x80:
            # The last byte may not carry bits above the type's width.
            if (bytes_max == 5 and value > 0xFFFFFFFFu) or (i == 9 and b > 1):
                break
            return value
        shift += 7
    c.bad = True
    return 0

cdef inline int32_t cursor_varint(Cursor* c) noexcept nogil:
    """Reads a zigzag varint of 32 bits."""
    cdef uint32_t v = <uint32_t>cursor_uvarint(c, 5)
    return <int32_t>unzigzag(v)

cdef inline int64_t cursor_varlong(Cursor* c) noexcept nogil:
    """Reads a zigzag varint of 64 bits."""
    cdef uint64_t v = cursor_uvarint(c, 10)
    return unzigzag(v)
