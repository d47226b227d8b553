"""Checksums for other modules of cext, callable without the GIL.

Both return the checksum of the n bytes at p. `crc` is the checksum of the bytes before them, 0 at
the beginning. crc32c is for record batches v2, crc32_ieee for message sets v0 and v1.
"""
from libc.stdint cimport uint8_t, uint32_t

cdef uint32_t crc32c(uint32_t crc, const uint8_t* p, size_t n) noexcept nogil
cdef uint32_t crc32_ieee(uint32_t crc, const uint8_t* p, size_t n) noexcept nogil
