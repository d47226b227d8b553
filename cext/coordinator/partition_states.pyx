"""The states of a coordinator's partitions: see partition_states.pxd.

Only the journal writes, under its lock. An array that has become too small stays in memory as long
as this object, because a network thread may still read it; each array is twice as large as the one
before.
"""
from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport int16_t, int32_t, uint8_t, uint32_t
from libc.string cimport memcpy

from barnabas.cext.codec.error_codes cimport (
    ERROR_COORDINATOR_LOAD_IN_PROGRESS, ERROR_NONE, ERROR_NOT_COORDINATOR,
)
from barnabas.cext.memory.atomics cimport (
    atomic_load_i32, atomic_load_pointer, atomic_store_i32, atomic_store_pointer,
)

NOT_LED, LOADING, LED = PARTITION_NOT_LED, PARTITION_LOADING, PARTITION_LED

cdef enum:
    CAPACITY_MIN = 64


cdef int32_t _code_point(const uint8_t* p, int32_t left, int32_t* size_bytes) noexcept nogil:
    """Decodes one character of UTF-8; -1: the bytes are not UTF-8."""
    cdef int32_t point, i
    cdef uint8_t first = p[0]
    size_bytes[0] = 1 if first < 0x80 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if first < 0x80:
        return first
    if first < 0xC2 or first > 0xF4 or size_bytes[0] > left:
        return -1
    point = first & (0x7F >> size_bytes[0])
    for i in range(1, size_bytes[0]):
        if p[i] & 0xC0 != 0x80:
            return -1
        point = point << 6 | (p[i] & 0x3F)
    return point


cdef int32_t java_string_hash(const uint8_t* p, int32_t n) noexcept nogil:
    cdef uint32_t found = 0
    cdef int32_t at = 0, point, size_bytes
    while at < n:
        point = _code_point(p + at, n - at, &size_bytes)
        if point < 0:
            return -1
        if point >= 0x10000:            # a pair of surrogates in UTF-16
            found = 31 * found + <uint32_t>(0xD7C0 + (point >> 10))
            point = 0xDC00 + (point & 0x3FF)
        found = 31 * found + <uint32_t>point
        at += size_bytes
    if found >= 0x80000000u:
        found = 0 - found
    return 0 if found == 0x80000000u else <int32_t>found


cdef int32_t states_partition_of(PartitionState* log, const uint8_t* id, int32_t id_bytes) noexcept nogil:
    cdef int32_t count = atomic_load_i32(&log.count)
    cdef int32_t hashed = java_string_hash(id, id_bytes)
    return hashed % count if count > 0 and hashed >= 0 else -1


cdef inline int32_t* _at(PartitionState* log, int32_t partition) noexcept nogil:
    return <int32_t*>atomic_load_pointer(&log.states) + partition


cdef int16_t states_error(PartitionState* log, int32_t partition) noexcept nogil:
    cdef int32_t state = PARTITION_NOT_LED
    if 0 <= partition < atomic_load_i32(&log.count):
        state = atomic_load_i32(_at(log, partition))
    if state == PARTITION_LED:
        return ERROR_NONE
    if state == PARTITION_LOADING:
        return ERROR_COORDINATOR_LOAD_IN_PROGRESS
    return ERROR_NOT_COORDINATOR


cdef class PartitionStates:
    """The states of one coordinator's log. A new object has no partitions."""

    def __cinit__(self):
        self.arrays = []

    def __init__(self):
        pass

    @property
    def count(self) -> int:
        """The number of the topic's partitions; 0 while there is no topic. A new partition is not
        led."""
        return atomic_load_i32(&self.log.count)

    @count.setter
    def count(self, int32_t count):
        cdef int32_t known = atomic_load_i32(&self.log.count)
        cdef int32_t partition
        if count > self.capacity:
            self.grow(count, known)
        for partition in range(known, count):
            atomic_store_i32(_at(&self.log, partition), PARTITION_NOT_LED)
        atomic_store_i32(&self.log.count, count)

    cdef grow(self, int32_t count, int32_t known):
        cdef int32_t capacity = max(count, 2 * self.capacity, CAPACITY_MIN)
        cdef bytearray array = bytearray(capacity * sizeof(int32_t))
        cdef void* states = PyByteArray_AS_STRING(array)
        if known:
            memcpy(states, _at(&self.log, 0), known * sizeof(int32_t))
        self.arrays.append(array)
        self.capacity = capacity
        atomic_store_pointer(&self.log.states, states)

    def set(self, int32_t partition, int32_t state) -> None:
        """`state`: NOT_LED, LOADING or LED. A partition that the topic does not have is ignored."""
        if 0 <= partition < atomic_load_i32(&self.log.count):
            atomic_store_i32(_at(&self.log, partition), state)

    def get(self, int32_t partition) -> int:
        """Returns the state of a partition; NOT_LED for one that the topic does not have."""
        if not 0 <= partition < atomic_load_i32(&self.log.count):
            return NOT_LED
        return atomic_load_i32(_at(&self.log, partition))
