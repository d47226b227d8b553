"""A partition's log: segments, append, read. The file format is Kafka's (see segment.pyx).

Writers take one short mutex per log; readers never lock: they read published values and the
copy-on-write segment list inside an epoch (epoch.pxd). All functions return a Kafka error code
(0 none, 1 OFFSET_OUT_OF_RANGE, 2 CORRUPT_MESSAGE, 45 OUT_OF_ORDER_SEQUENCE_NUMBER,
47 INVALID_PRODUCER_EPOCH, 56 KAFKA_STORAGE_ERROR, 59 UNKNOWN_PRODUCER_ID, ...).
"""
from libc.stdint cimport int32_t, int64_t, uint8_t
from barnabas.cext.records cimport BatchHeader
from barnabas.cext.segment cimport Segment       # segment_retain / segment_release, .fd, .base_offset
from barnabas.cext.sys cimport System
from barnabas.cext.epoch cimport EpochDomain

cdef struct LogConfig:
    int64_t segment_bytes
    int64_t segment_ms
    int64_t segment_jitter_ms
    int64_t index_interval_bytes
    int64_t segment_index_bytes
    int64_t producer_id_expiration_ms
    bint preallocate

cdef struct LogSlice:
    Segment* segment            # retained for the taker, who calls segment_release
    int64_t position
    int64_t size_bytes

cdef struct Appended:
    int64_t first_offset
    int64_t last_offset
    int64_t log_start_offset
    bint duplicate              # an idempotent batch that is already in the log; offsets are the original's

cdef struct Log                 # fields are private to log.pyx; use the functions

# As leader: assigns offsets, stamps base offset and leader epoch into `batch` in place, checks and
# updates producer state, rolls when due, writes, indexes, publishes. The batch was validated before.
cdef int log_append(Log* log, uint8_t* batch, int64_t size_bytes, const BatchHeader* h,
                    int32_t leader_epoch, Appended* out) noexcept nogil
# Finds what a fetch at `offset` may read below `limit_offset`. size 0 with error 0: nothing there yet.
# The first batch is given whole even beyond size_max when whole_first. The slice may end inside a
# later batch. offset == limit is empty; offset > log end or < log start is OFFSET_OUT_OF_RANGE.
cdef int log_read(Log* log, int64_t offset, int64_t size_max, int64_t limit_offset,
                  bint whole_first, LogSlice* out) noexcept nogil
# Everything appended before the call is on disk after it (fdatasync of dirty segments; new files' directory too).
# 0 or KAFKA_STORAGE_ERROR: after a failed fdatasync the log is offline for good until it is opened again.
cdef int log_flush(Log* log) noexcept nogil
cdef int64_t log_start_offset(Log* log) noexcept nogil
cdef int64_t log_end_offset(Log* log) noexcept nogil
cdef int64_t log_flushed_offset(Log* log) noexcept nogil
cdef bint log_is_offline(Log* log) noexcept nogil
# The end offset of the largest epoch <= `epoch` (KIP-101): found_epoch -1 and end_offset -1 when none.
cdef void log_epoch_end(Log* log, int32_t epoch, int32_t* found_epoch, int64_t* end_offset) noexcept nogil

cdef class LogHandle:
    """Python's owner of one Log: open, append, read, flush, roll, truncate, delete segments, close."""
    cdef Log* log
