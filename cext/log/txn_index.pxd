"""The transaction index of a segment: the transactions that its markers abort; see
txn_index.pyx."""
from libc.stdint cimport int64_t

from barnabas.cext.log.producers cimport AbortedTxn
from barnabas.cext.log.segment cimport Segment
from barnabas.cext.memory.sys cimport System

cdef enum:
    ABORTED_TXN_BYTES = 34

cdef struct AbortedTxns:        # the transactions that a reader must skip
    AbortedTxn* items
    int64_t count
    int64_t capacity

cdef void aborted_txns_free(AbortedTxns* list) noexcept nogil
# Adds a transaction at the end of the list. Returns False without memory.
cdef bint aborted_txns_add(AbortedTxns* list, const AbortedTxn* aborted) noexcept nogil

# Writers hold the log's lock. Functions return 0 or -errno.
cdef int txn_index_append(Segment* segment, System* system, const AbortedTxn* aborted) noexcept nogil
# Removes entries whose marker is at or above `end_offset`, and damaged entries at the end.
cdef int txn_index_cut(Segment* segment, System* system, int64_t end_offset) noexcept nogil
# Flushes the file to disk when it has new entries since the last time.
cdef int txn_index_sync(Segment* segment, System* system) noexcept nogil
# Replaces the whole index by `list`, which is on disk afterwards.
cdef int txn_index_replace(Segment* segment, System* system, const AbortedTxns* list) noexcept nogil
# Returns 1 when there is no file, or its entries are whole and in order and name batches of their
# producers; 0 when not; -errno.
cdef int txn_index_agrees(Segment* segment, System* system) noexcept nogil

# Adds the aborted transactions that reach into [from_offset, to_offset) to `found`. Returns 1 when
# later segments cannot have more, 0 when the caller must go on with the next segment, -errno,
# SEGMENT_CORRUPT.
cdef int txn_index_collect(Segment* segment, System* system, int64_t from_offset, int64_t to_offset, AbortedTxns* found) noexcept nogil
