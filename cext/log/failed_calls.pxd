"""Failures of the disk that a log met, for log lines: see failed_calls.pyx."""
from barnabas.cext.log.segment cimport SegmentPool

cdef enum:                      # what failed; FAILED_WHAT in failed_calls.pyx has the same order
    FAILED_WRITE = 0            # of a batch
    FAILED_OPEN = 1             # of the files of a segment, or space for its indexes
    FAILED_CUT = 2              # of a write that failed: the log is offline
    FAILED_FLUSH = 3            # the log is offline

# `stem`: the path without ".log"; status: -errno. The caller holds no lock of the pool.
cdef void failed_call_note(SegmentPool* pool, const char* stem, int what, int status) noexcept nogil
