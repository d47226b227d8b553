"""Appends batches that a leader sent; described in follower_append.pyx."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from barnabas.cext.log.log cimport Log

cdef struct FollowerAppend:
    int64_t size_bytes          # of the whole batches that were appended
    int64_t batches
    int64_t end_offset          # the log's end afterwards

cdef enum:                      # results beside 0 and Kafka's error codes
    APPEND_BELOW_START = -1     # the log is empty and its start lies inside the first batch

# Appends the whole batches at the beginning of `records` unchanged, up to the first one whose epoch
# is above `epoch_max`. Returns 0; CORRUPT_MESSAGE for bytes that are no sound, ascending batches;
# OFFSET_OUT_OF_RANGE when the first one begins below the log's end; KAFKA_STORAGE_ERROR: then
# batches before the failure may have been appended, as *out says. After other errors nothing was
# appended.
cdef int log_append_as_follower(Log* log, const uint8_t* records, int64_t size_bytes, int32_t epoch_max, FollowerAppend* out) noexcept nogil
# Returns the leader epoch of the log's last record; -1 when the log is empty or it is not known.
cdef int32_t log_last_epoch(Log* log) noexcept nogil
