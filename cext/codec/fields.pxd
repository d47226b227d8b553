"""Kafka's fields in their two encodings, read from a Cursor and written to a Buffer.

                    up to some version of each API      flexible versions (KIP-482)
    string          int16 length                        unsigned varint of length + 1
    array           int32 count                         unsigned varint of count + 1
    tagged fields   -                                   count, then (tag, size, bytes) each

Null is -1 in the first and 0 in the second. An invalid value sets the cursor's `bad`.
"""
from libc.stdint cimport INT16_MAX, int16_t, int32_t, int64_t, uint8_t, uint64_t

from barnabas.cext.codec.buffer cimport (
    Buffer, buffer_bytes, buffer_i16, buffer_i32, buffer_i8, buffer_uvarint,
)
from barnabas.cext.codec.cursor cimport (
    Cursor, cursor_i16, cursor_i32, cursor_left, cursor_take, cursor_uvarint,
)

cdef inline const uint8_t* read_string(Cursor* c, bint flexible, bint nullable, int32_t* size_bytes) noexcept nogil:
    """Reads a string. Null, which is allowed only if it is `nullable`, gives NULL and size -1."""
    cdef int64_t n = <int64_t>cursor_uvarint(c, 5) - 1 if flexible else cursor_i16(c)
    size_bytes[0] = -1
    if n < 0 or n > INT16_MAX:
        c.bad = c.bad or n != -1 or not nullable
        return NULL
    size_bytes[0] = <int32_t>n
    return cursor_take(c, n)

cdef inline const uint8_t* read_bytes(Cursor* c, bint flexible, int32_t* size_bytes) noexcept nogil:
    """Reads bytes that may not be null."""
    cdef int64_t n = <int64_t>cursor_uvarint(c, 5) - 1 if flexible else cursor_i32(c)
    if n < 0 or n > cursor_left(c):
        c.bad = True
        n = 0
    size_bytes[0] = <int32_t>n
    return cursor_take(c, n)

cdef inline int32_t read_count(Cursor* c, bint flexible) noexcept nogil:
    """Reads the length of an array that may not be null. Each element takes at least one byte, so a
    length above the number of bytes left sets `bad`."""
    cdef int64_t n = <int64_t>cursor_uvarint(c, 5) - 1 if flexible else cursor_i32(c)
    if n < 0 or n > cursor_left(c):
        c.bad = True
        return 0
    return <int32_t>n

cdef inline void read_no_tags(Cursor* c, bint flexible) noexcept nogil:
    """Reads an empty section of tagged fields. A tagged field sets `bad`: this is for native
    handlers that leave such requests to Python."""
    if flexible and cursor_uvarint(c, 5) != 0:
        c.bad = True

cdef inline void skip_tags(Cursor* c, bint flexible) noexcept nogil:
    """Skips a section of tagged fields."""
    cdef int64_t count = <int64_t>cursor_uvarint(c, 5) if flexible else 0
    while count > 0 and not c.bad:
        cursor_uvarint(c, 5)
        cursor_take(c, <int64_t>cursor_uvarint(c, 5))
        count -= 1

cdef inline void write_string(Buffer* b, bint flexible, const void* p, int32_t size_bytes) noexcept nogil:
    if flexible:
        buffer_uvarint(b, <uint64_t>size_bytes + 1)
    else:
        buffer_i16(b, <int16_t>size_bytes)
    buffer_bytes(b, p, size_bytes)

cdef inline void write_null_string(Buffer* b, bint flexible) noexcept nogil:
    if flexible:
        buffer_uvarint(b, 0)
    else:
        buffer_i16(b, -1)

cdef inline void write_bytes(Buffer* b, bint flexible, const void* p, int32_t size_bytes) noexcept nogil:
    if flexible:
        buffer_uvarint(b, <uint64_t>size_bytes + 1)
    else:
        buffer_i32(b, size_bytes)
    buffer_bytes(b, p, size_bytes)

cdef inline void write_count(Buffer* b, bint flexible, int64_t count) noexcept nogil:
    """Writes the length of an array; -1: null."""
    if flexible:
        buffer_uvarint(b, <uint64_t>(count + 1))
    else:
        buffer_i32(b, <int32_t>count)

cdef inline void write_no_tags(Buffer* b, bint flexible) noexcept nogil:
    if flexible:
        buffer_i8(b, 0)
