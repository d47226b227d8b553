"""The fields of one partition in a Produce response."""
from libc.stdint cimport int16_t, int32_t, int64_t

from barnabas.cext.codec.buffer cimport Buffer
from barnabas.cext.produce.request cimport Walk
from barnabas.cext.record.validate cimport Verdict

cdef struct Answer:
    int16_t error
    int64_t base_offset
    int64_t append_time_ms
    int64_t log_start
    int32_t leader_id               # -1: absent
    int32_t leader_epoch

# Writes the fields, and returns the position of the error code in the buffer.
cdef int64_t produce_write(Buffer* b, const Walk* w, const Answer* a, const Verdict* verdict) noexcept nogil
