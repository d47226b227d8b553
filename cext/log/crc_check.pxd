"""Checking old bytes before they are first served; described in crc_check.pyx."""
from libc.stdint cimport int16_t, int64_t

from barnabas.cext.log.log cimport LogSlice
from barnabas.cext.log.recover cimport BatchReader
from barnabas.cext.log.segment cimport Segment
from barnabas.cext.memory.sys cimport System

cdef bint slice_is_verified(const LogSlice* slice) noexcept nogil
# One turn of the check, towards the slice's end: 1 it is reached, 0 there is more to do, -errno.
cdef int slice_verify(Segment* segment, System* system, int64_t until) noexcept nogil
cdef int64_t slice_end(const LogSlice* slice) noexcept nogil
# Leaves of a slice what may be sent: cut before bad bytes, emptied (and released) when it is not
# verified yet. Kafka's error code when it begins in bad bytes or could not be read.
cdef int16_t slice_settle(LogSlice* slice) noexcept nogil
# Checks the batches from *position on until one begins at or behind `end`; bad ones are noted.
# *position is where it got to. 0 or -errno.
cdef int verify_batches(
    BatchReader* reader, Segment* segment, int64_t* position, int64_t end) noexcept nogil
