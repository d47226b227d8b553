"""The latest offset of each record key, from which compaction decides which records stay.

The map is a table of 24-byte slots with open addressing in a fixed amount of memory. A slot holds
the key's 128-bit hash and its offset, and not the key: two keys with the same hash count as one.
The hash is keyed with a random secret of the process (siphash.h), so a producer cannot provoke
this; by chance it happens once in 2^88 passes with a million keys. When the map is full, the pass
ends there; the next pass continues.

Slots lie anywhere in up to 128 MB, so a look-up misses every CPU cache. Therefore callers call
`ask` for several keys first, which prefetches their slots, and the table uses huge pages where the
system has them (one pass over 0.6 GB with 1,000,000 keys spent 80 % of its time on these misses:
docs/performance.md).

Next on the data path: cext/log/cleaner/compact.pyx.
"""
import os

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uintptr_t
from libc.stdlib cimport calloc, free

cdef extern from *:
    void __builtin_prefetch(const void* p) noexcept nogil

cdef extern from "<sys/mman.h>" nogil:
    int MADV_HUGEPAGE
    int madvise(void* address, size_t size, int advice)

cdef enum:
    SLOT_BYTES = 24
    HUGE_PAGE_BYTES = 2097152
    SLOTS_MIN = 16


cdef inline MapSlot* _find(MapSlot* slots, int64_t slot_count, hash128 key) noexcept nogil:
    """Returns the key's slot, or the free slot where the key belongs. There is always a free slot,
    because keys_max is smaller than the number of slots."""
    cdef int64_t at = <int64_t>(key.low % <uint64_t>slot_count)
    cdef MapSlot* slot = &slots[at]
    while slot.offset_after != 0 and (slot.low != key.low or slot.high != key.high):
        at += 1
        if at == slot_count:
            at = 0
        slot = &slots[at]
    return slot


cdef void _ask_for_huge_pages(void* memory, int64_t size_bytes) noexcept nogil:
    """Advises the kernel to use huge pages. Where it does not, the map is slower."""
    cdef uintptr_t first = <uintptr_t>memory + HUGE_PAGE_BYTES - 1
    cdef uintptr_t end = <uintptr_t>memory + <uintptr_t>size_bytes
    first -= first % HUGE_PAGE_BYTES
    end -= end % HUGE_PAGE_BYTES
    if first < end:
        madvise(<void*>first, end - first, MADV_HUGEPAGE)


cdef class OffsetMap:
    def __cinit__(self, int64_t memory_bytes, double load_factor=0.9, bytes secret=None):
        """Makes an empty map without slots; call reset() before use.

        `memory_bytes`: the most memory that the slots may take; `load_factor`: the largest part of
        the slots in use, above 0 and at most 0.99; `secret`: 16 bytes for the hash, None: random.
        Raises ValueError for other values."""
        cdef int i
        chosen = os.urandom(16) if secret is None else secret
        if len(chosen) != 16:
            raise ValueError(f"secret has {len(chosen)} bytes; it must have 16")
        if not 0.0 < load_factor <= 0.99:
            raise ValueError(f"load_factor is {load_factor}; it must be above 0 and at most 0.99")
        if memory_bytes < SLOTS_MIN * SLOT_BYTES:
            raise ValueError(
                f"memory_bytes is {memory_bytes}; it must be at least {SLOTS_MIN * SLOT_BYTES}")
        for i in range(16):
            self.secret[i] = chosen[i]
        self.slots_max = memory_bytes // SLOT_BYTES
        self.load_factor = load_factor
        self.latest_offset = -1

    def __dealloc__(self):
        free(self.slots)

    def reset(self, int64_t keys_wanted) -> None:
        """Empties the map and allocates slots for `keys_wanted` keys, or for as many as
        memory_bytes allows. Raises MemoryError; the map has no slots then."""
        cdef int64_t slot_count = min(
            self.slots_max, max(<int64_t>SLOTS_MIN, <int64_t>(keys_wanted / self.load_factor) + 1))
        free(self.slots)
        self.count = 0
        self.latest_offset = -1
        self.slots = <MapSlot*>calloc(slot_count, SLOT_BYTES)
        if self.slots == NULL:
            self.slot_count = self.keys_max = 0
            raise MemoryError(
                f"cannot allocate {slot_count * SLOT_BYTES} bytes for the keys of a compaction")
        _ask_for_huge_pages(self.slots, slot_count * SLOT_BYTES)
        self.slot_count = slot_count
        self.keys_max = max(<int64_t>1, <int64_t>(slot_count * self.load_factor))

    def release(self) -> None:
        """Frees the slots until the next reset()."""
        free(self.slots)
        self.slots = NULL
        self.slot_count = self.keys_max = self.count = 0

    cdef hash128 ask(self, const uint8_t* key, int64_t size) noexcept nogil:
        cdef hash128 hashed = siphash128(self.secret, key, size)
        if self.slot_count:
            __builtin_prefetch(&self.slots[hashed.low % <uint64_t>self.slot_count])
        return hashed

    cdef int put(self, hash128 hashed, int64_t offset) noexcept nogil:
        cdef MapSlot* slot
        if self.slot_count == 0:
            return 0
        slot = _find(self.slots, self.slot_count, hashed)
        if slot.offset_after == 0:
            if self.count >= self.keys_max:
                return 0
            slot.low = hashed.low
            slot.high = hashed.high
            self.count += 1
        slot.offset_after = offset + 1
        self.latest_offset = offset
        return 1

    cdef int64_t get(self, hash128 hashed) noexcept nogil:
        if self.slot_count == 0:
            return -1
        return _find(self.slots, self.slot_count, hashed).offset_after - 1

    def learn(self, key not None, int64_t offset) -> bool:
        """Sets the latest offset of `key` (bytes or another buffer). Returns False when the map is
        full and does not contain the key."""
        cdef Py_buffer view
        PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
        try:
            return self.put(self.ask(<const uint8_t*>view.buf, view.len), offset) == 1
        finally:
            PyBuffer_Release(&view)

    def latest(self, key not None) -> int:
        """Returns the latest offset of `key`, or -1 when the map does not contain the key."""
        cdef Py_buffer view
        PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
        try:
            return self.get(self.ask(<const uint8_t*>view.buf, view.len))
        finally:
            PyBuffer_Release(&view)
