"""Python's owner of a partition's log: open, append, read, flush, truncate, delete segments.

The log itself is in log.pxd; requests on the data path do not use this class.
"""
from libc.stdint cimport int64_t

from barnabas.cext.log.log cimport Log
from barnabas.cext.log.segment cimport SegmentCache
from barnabas.cext.memory.epoch cimport Epochs
from barnabas.cext.memory.sys cimport SystemCalls

cdef class LogHandle:
    """Python's owner of one Log: open, append, read, flush, roll, truncate, delete segments, close."""
    cdef Log* log
    cdef SystemCalls system             # the Log uses it: this reference keeps it alive
    cdef Epochs epochs
    cdef SegmentCache cache
    cdef readonly object directory      # str
    cdef readonly bint holds_deleted    # .deleted files wait for unlink_deleted()
    cdef int64_t truncated_to           # the lowest offset of a truncation: see take_truncation()
    cdef readonly object recovered      # the result of the opening: see LogHandle.open
