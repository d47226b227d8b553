"""The latest offset of each record key, for compaction; described in offset_map.pyx."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

cdef extern from "siphash.h" nogil:
    ctypedef struct hash128:
        uint64_t low
        uint64_t high
    hash128 siphash128(const uint8_t* key, const uint8_t* p, int64_t n)

cdef struct MapSlot:            # 24 bytes a key
    uint64_t low                # of the key's hash
    uint64_t high
    int64_t offset_after        # offset + 1; 0: the slot is free

cdef class OffsetMap:
    cdef MapSlot* slots
    cdef int64_t slot_count
    cdef readonly int64_t keys_max
    cdef readonly int64_t count
    cdef readonly int64_t latest_offset     # -1: the map has seen no record
    cdef int64_t slots_max
    cdef double load_factor
    cdef uint8_t secret[16]
    # Returns a key's hash and prefetches its slot into the CPU cache: call it for several keys
    # before put or get.
    cdef hash128 ask(self, const uint8_t* key, int64_t size) noexcept nogil
    # Sets the key's latest offset. Returns 1; 0 when the map is full and does not contain the key.
    cdef int put(self, hash128 hashed, int64_t offset) noexcept nogil
    # Returns the key's latest offset; -1 when the map does not contain the key.
    cdef int64_t get(self, hash128 hashed) noexcept nogil
