"""What a compaction has to know of transactions; described in cleaned_txns.pyx."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from barnabas.cext.codec.buffer cimport Buffer
from barnabas.cext.log.producers cimport AbortedTxn
from barnabas.cext.memory.int64_map cimport Int64Map
from barnabas.cext.record.records cimport BatchHeader

cdef struct CleanedTxns:
    AbortedTxn* aborted         # ascending by first offset; those before `next` have begun
    int64_t count
    int64_t next
    Int64Map open_aborted       # producer id: index into `aborted`, and whether data of it was met
    Int64Map open_committed     # producer ids with data whose marker was not met yet
    Buffer* index               # where entries of the transactions that are kept go; NULL: nowhere
    bint failed                 # memory ran out

cdef void cleaned_txns_init(CleanedTxns* t) noexcept nogil
cdef void cleaned_txns_free(CleanedTxns* t) noexcept nogil
# Whether a data batch belongs to an aborted transaction, and may go.
cdef bint cleaned_txns_data(CleanedTxns* t, const BatchHeader* h) noexcept nogil
# Whether the transaction that a control batch ends has no data left, so that the batch may go too.
cdef bint cleaned_txns_marker(CleanedTxns* t, const uint8_t* batch, const BatchHeader* h, int64_t size_bytes) noexcept nogil
