"""Finds the batches of aborted transactions while a compaction reads a log from its start.

The list of aborted transactions comes from the log's .txnindex files. A data batch of an aborted
transaction is never needed, except as the last trace of its producer. A marker is needed as long as
data of its transaction is in the log. The index entry of a transaction is kept together with its
marker: without the entry, consumers would read the remaining data as committed.

Next on the data path: cext/log/cleaner/compact.pyx.
"""
from libc.stdlib cimport free
from libc.string cimport memset

from barnabas.cext.codec.buffer cimport buffer_i16, buffer_i64
from barnabas.cext.log.producers cimport Marker, batch_marker
from barnabas.cext.memory.int64_map cimport (
    int64_map_free, int64_map_get, int64_map_put, int64_map_remove,
)
from barnabas.cext.record.records cimport ATTR_TRANSACTIONAL


cdef void cleaned_txns_init(CleanedTxns* t) noexcept nogil:
    memset(t, 0, sizeof(CleanedTxns))


cdef void cleaned_txns_free(CleanedTxns* t) noexcept nogil:
    free(t.aborted)
    int64_map_free(&t.open_aborted)
    int64_map_free(&t.open_committed)
    cleaned_txns_init(t)


cdef inline int64_t _last_offset(const BatchHeader* h) noexcept nogil:
    return h.base_offset + h.last_offset_delta


cdef void _begin_up_to(CleanedTxns* t, int64_t offset) noexcept nogil:
    """Opens the aborted transactions that begin at or before `offset`."""
    cdef int64_t producer_id
    while t.next < t.count and t.aborted[t.next].first_offset <= offset:
        producer_id = t.aborted[t.next].producer_id
        if not int64_map_put(&t.open_aborted, producer_id, t.next * 2):
            t.failed = True
        t.next += 1


cdef bint cleaned_txns_data(CleanedTxns* t, const BatchHeader* h) noexcept nogil:
    cdef int64_t state
    _begin_up_to(t, _last_offset(h))
    if not h.attributes & ATTR_TRANSACTIONAL:
        return False
    state = int64_map_get(&t.open_aborted, h.producer_id, -1)
    if state >= 0:
        # This includes data that this pass removes: a reader may still hold the old segments, and
        # looks for the entry in the new ones.
        if not int64_map_put(&t.open_aborted, h.producer_id, state | 1):
            t.failed = True
        return True
    if not int64_map_put(&t.open_committed, h.producer_id, 1):
        t.failed = True
    return False


cdef void _index(CleanedTxns* t, const AbortedTxn* aborted) noexcept nogil:
    """Adds an entry to the .txnindex; txn_index.pyx describes its bytes."""
    if t.index != NULL:
        buffer_i16(t.index, 0)
        buffer_i64(t.index, aborted.producer_id)
        buffer_i64(t.index, aborted.first_offset)
        buffer_i64(t.index, aborted.last_offset)
        buffer_i64(t.index, aborted.last_stable_offset)
        t.failed = t.failed or t.index.failed


cdef bint cleaned_txns_marker(
    CleanedTxns* t, const uint8_t* batch, const BatchHeader* h, int64_t size_bytes
) noexcept nogil:
    cdef Marker marker
    cdef int64_t state
    _begin_up_to(t, _last_offset(h))
    if h.record_count == 0:
        return True             # an earlier pass emptied it, because it was not needed
    if batch_marker(batch, size_bytes, &marker) != 1:
        return False            # a control record of an unknown type stays
    if marker.commit:
        return not int64_map_remove(&t.open_committed, h.producer_id)
    state = int64_map_get(&t.open_aborted, h.producer_id, -1)
    int64_map_remove(&t.open_aborted, h.producer_id)
    if state < 0 or not state & 1:
        return True
    _index(t, &t.aborted[state >> 1])
    return False
