"""Failed disk operations of a log, for log lines: see failed_calls.pyx."""
from barnabas.cext.log.segment cimport SegmentPool

cdef enum:                      # what failed; FAILED_WHAT in failed_calls.pyx has the same order
    FAILED_WRITE = 0            # writing a batch
    FAILED_OPEN = 1             # opening a segment's files, or reserving space for its indexes
    FAILED_CUT = 2              # cutting off a write that failed: the log is offline
    FAILED_FLUSH = 3            # a flush: the log is offline

# Notes a failure. `stem`: the path without ".log"; `status`: -errno. The caller must not hold the
# pool's lock.
cdef void failed_call_note(SegmentPool* pool, const char* stem, int what, int status) noexcept nogil
