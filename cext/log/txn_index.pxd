"""The transaction index of a segment: which of its markers abort what; see txn_index.pyx."""
from libc.stdint cimport int64_t

from barnabas.cext.log.producers cimport AbortedTxn
from barnabas.cext.log.segment cimport Segment
from barnabas.cext.memory.sys cimport System

cdef enum:
    ABORTED_TXN_BYTES = 34

cdef struct AbortedTxns:        # what a reader has to skip
    AbortedTxn* items
    int64_t count
    int64_t capacity

cdef void aborted_txns_free(AbortedTxns* list) noexcept nogil
cdef bint aborted_txns_add(AbortedTxns* list, const AbortedTxn* aborted) noexcept nogil     # False: no memory

# Writers hold the log's lock. All give 0 or -errno.
cdef int txn_index_append(Segment* segment, System* system, const AbortedTxn* aborted) noexcept nogil
# Drops entries whose marker is at `end_offset` or later; the file too when nothing is left.
cdef int txn_index_cut(Segment* segment, System* system, int64_t end_offset) noexcept nogil
# Makes it durable, when entries came since the last time.
cdef int txn_index_sync(Segment* segment, System* system) noexcept nogil
# The whole index, durable, in the place of what was there.
cdef int txn_index_replace(Segment* segment, System* system, const AbortedTxns* list) noexcept nogil
# 1 when the file, if there is one, holds whole entries in order, and the batches that they name are
# of their producers; 0, -errno.
cdef int txn_index_agrees(Segment* segment, System* system) noexcept nogil

# Adds the aborted transactions that reach into [from_offset, to_offset): 1 when there can be no more
# in later segments, 0 to go on with the next one, -errno, SEGMENT_CORRUPT.
cdef int txn_index_collect(Segment* segment, System* system, int64_t from_offset, int64_t to_offset, AbortedTxns* found) noexcept nogil
