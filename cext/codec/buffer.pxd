"""A growable byte buffer and big-endian writes into it, without the GIL.

When memory runs out, a write sets `failed`, and every later write does nothing. The owner checks
the flag once, when the message is complete, and closes the connection. The owner also frees the
buffer.
"""
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from barnabas.cext.codec.endian cimport be16_store, be32_store, be64_store
from barnabas.cext.codec.varint cimport uvarint_size, uvarint_write

cdef struct Buffer:
    uint8_t* data
    int64_t size
    int64_t capacity
    bint failed

cdef inline void buffer_init(Buffer* b) noexcept nogil:
    b.data = NULL
    b.size = 0
    b.capacity = 0
    b.failed = False

cdef inline void buffer_free(Buffer* b) noexcept nogil:
    free(b.data)
    buffer_init(b)

cdef inline uint8_t* buffer_reserve(Buffer* b, int64_t n) noexcept nogil:
    """Adds n bytes at the end and returns them, not yet written; NULL when memory ran out."""
    cdef int64_t capacity
    cdef uint8_t* grown
    if b.failed:
        return NULL
    if n > b.capacity - b.size:
        capacity = b.capacity * 2 if b.capacity else 256
        while capacity < b.size + n:
            capacity *= 2
        grown = <uint8_t*>realloc(b.data, capacity)
        if grown == NULL:
            b.failed = True
            return NULL
        b.data = grown
        b.capacity = capacity
    b.size += n
    return b.data + b.size - n

cdef inline void buffer_i8(Buffer* b, int8_t v) noexcept nogil:
    cdef uint8_t* at = buffer_reserve(b, 1)
    if at != NULL:
        at[0] = <uint8_t>v

cdef inline void buffer_i16(Buffer* b, int16_t v) noexcept nogil:
    cdef uint8_t* at = buffer_reserve(b, 2)
    if at != NULL:
        be16_store(at, v)

cdef inline void buffer_i32(Buffer* b, int32_t v) noexcept nogil:
    cdef uint8_t* at = buffer_reserve(b, 4)
    if at != NULL:
        be32_store(at, v)

cdef inline void buffer_i64(Buffer* b, int64_t v) noexcept nogil:
    cdef uint8_t* at = buffer_reserve(b, 8)
    if at != NULL:
        be64_store(at, v)

cdef inline void buffer_uvarint(Buffer* b, uint64_t v) noexcept nogil:
    cdef uint8_t* at = buffer_reserve(b, uvarint_size(v))
    if at != NULL:
        uvarint_write(at, v)

cdef inline void buffer_bytes(Buffer* b, const void* p, int64_t n) noexcept nogil:
    cdef uint8_t* at = buffer_reserve(b, n)
    if at != NULL and n:
        memcpy(at, p, n)
