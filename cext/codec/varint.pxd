"""Varints of the record format and of the flexible versions: sizes, writes, and zigzag both ways.

Reads are in cursor.pxd, because a read must be checked. A write needs as many bytes of memory as
the `_size` function returns (at most 5 for 32 bits, 10 for 64). Source: formats "Primitive types".
"""
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef inline uint64_t zigzag(int64_t v) noexcept nogil:
    return (<uint64_t>v << 1) ^ <uint64_t>(v >> 63)

cdef inline int64_t unzigzag(uint64_t v) noexcept nogil:
    return <int64_t>(v >> 1) ^ -<int64_t>(v & 1)

cdef inline int uvarint_size(uint64_t v) noexcept nogil:
    cdef int n = 1
    while v >= 0x80:
        v >>= 7
        n += 1
    return n

cdef inline uint8_t* uvarint_write(uint8_t* p, uint64_t v) noexcept nogil:
    while v >= 0x80:
        p[0] = <uint8_t>(v | 0x80)
        p += 1
        v >>= 7
    p[0] = <uint8_t>v
    return p + 1

cdef inline int varint_size(int64_t v) noexcept nogil:
    return uvarint_size(zigzag(v))

cdef inline uint8_t* varint_write(uint8_t* p, int64_t v) noexcept nogil:
    return uvarint_write(p, zigzag(v))
