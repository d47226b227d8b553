"""The check of old bytes before their first read; described in crc_check.pyx."""
from libc.stdint cimport int16_t, int64_t

from barnabas.cext.log.log cimport LogSlice
from barnabas.cext.log.recover cimport BatchReader
from barnabas.cext.log.segment cimport Segment
from barnabas.cext.memory.sys cimport System

# Returns whether all bytes of the slice are checked.
cdef bint slice_is_verified(const LogSlice* slice) noexcept nogil
# Runs one turn of the check of a segment's bytes up to position `until`. Returns 1 when `until` is
# reached, 0 when more turns are needed, -errno.
cdef int slice_verify(Segment* segment, System* system, int64_t until) noexcept nogil
cdef int64_t slice_end(const LogSlice* slice) noexcept nogil
# Reduces a slice to the bytes that may be sent: it ends before bad bytes, and is emptied (and
# released) when it is not verified yet. Returns 0, CORRUPT_MESSAGE when it begins in bad bytes, or
# KAFKA_STORAGE_ERROR when the file could not be read.
cdef int16_t slice_settle(LogSlice* slice) noexcept nogil
# Checks the batches from *position on until one begins at or behind `end`, and notes bad ones. Sets
# *position to the end of the checked bytes. Returns 0 or -errno.
cdef int verify_batches(
    BatchReader* reader, Segment* segment, int64_t* position, int64_t end) noexcept nogil
