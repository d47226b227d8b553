"""Python's owner of a partition's log: open, append, read, flush, truncate, delete segments.

The log itself is log.pxd; nothing on the data path comes through here.
"""
from barnabas.cext.log.log cimport Log
from barnabas.cext.log.segment cimport SegmentCache
from barnabas.cext.memory.epoch cimport Epochs
from barnabas.cext.memory.sys cimport SystemCalls

cdef class LogHandle:
    """Python's owner of one Log: open, append, read, flush, roll, truncate, delete segments, close."""
    cdef Log* log
    cdef SystemCalls system             # kept alive for the Log
    cdef Epochs epochs
    cdef SegmentCache cache
    cdef readonly object directory      # str
    cdef readonly bint holds_deleted    # .deleted files wait for unlink_deleted()
    cdef readonly object recovered      # facts of the opening: see LogHandle.open
