"""The transactions that a compaction has met so far; described in cleaned_txns.pyx."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from barnabas.cext.codec.buffer cimport Buffer
from barnabas.cext.log.producers cimport AbortedTxn
from barnabas.cext.memory.int64_map cimport Int64Map
from barnabas.cext.record.records cimport BatchHeader

cdef struct CleanedTxns:
    AbortedTxn* aborted         # ascending by first offset; those before `next` have begun
    int64_t count
    int64_t next
    Int64Map open_aborted       # producer id: 2 * index into `aborted`, + 1 when data of it was found
    Int64Map open_committed     # producer ids with data whose marker was not found yet
    Buffer* index               # gets the entries of the transactions that are kept; NULL: none
    bint failed                 # memory ran out

cdef void cleaned_txns_init(CleanedTxns* t) noexcept nogil
cdef void cleaned_txns_free(CleanedTxns* t) noexcept nogil
# Returns whether a data batch belongs to an aborted transaction, so that compaction may remove it.
cdef bint cleaned_txns_data(CleanedTxns* t, const BatchHeader* h) noexcept nogil
# Returns whether the transaction that a control batch ends has no data left, so that compaction may
# remove the batch, too.
cdef bint cleaned_txns_marker(CleanedTxns* t, const uint8_t* batch, const BatchHeader* h, int64_t size_bytes) noexcept nogil
