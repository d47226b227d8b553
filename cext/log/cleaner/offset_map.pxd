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
    int64_t offset_after        # the offset + 1; 0: the slot is free

cdef class OffsetMap:
    cdef MapSlot* slots
    cdef int64_t slot_count
    cdef readonly int64_t keys_max
    cdef readonly int64_t count
    cdef readonly int64_t latest_offset     # -1: nothing was learnt
    cdef int64_t slots_max
    cdef double load_factor
    cdef uint8_t secret[16]
    # A key's hash. Its slot is fetched into the cache meanwhile: ask for several keys before put or get.
    cdef hash128 ask(self, const uint8_t* key, int64_t size) noexcept nogil
    # 1; 0 when the map is full and the key is not in it
    cdef int put(self, hash128 hashed, int64_t offset) noexcept nogil
    cdef int64_t get(self, hash128 hashed) noexcept nogil
