"""The header of a batch or message in a segment; described in batch_at.pyx."""
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    SEGMENT_CORRUPT = -74       # EBADMSG: no batch where one must begin

cdef struct BatchAt:            # the header of a batch or message
    int64_t position
    int64_t size_bytes
    int64_t base_offset         # of a message set v0 or v1: the same as last_offset
    int64_t last_offset
    int64_t max_timestamp
    int32_t magic
    int32_t attributes
    int32_t leader_epoch

cdef int batch_header_at(const uint8_t* p, int64_t left, int64_t file_left, BatchAt* found) noexcept nogil
