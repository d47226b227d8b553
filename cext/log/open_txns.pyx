"""The transactions that bound the last stable offset, in the order of their first offsets.

A transaction is added at the end, because first offsets only grow while a log is written to, and
removed at the front. A marker for a transaction in the middle is only noted: the transaction in
front holds readers back anyway. So the earliest open transaction is known at once, an append costs
the same with many transactions, and a binary search finds the transaction of a marker. A marker
counts when the high watermark has passed it: before that a crash could still undo it.

Memory: 24 bytes for each transaction that is open, or decided behind an open one. When the array is
full, decided ones in between are removed first.

Next on the data path: cext/log/producers.pyx.
"""
from libc.stdint cimport int64_t
from libc.stdlib cimport free
from libc.string cimport memmove, memset

from barnabas.cext.memory.array cimport array_room


cdef void open_txns_init(OpenTxns* o) noexcept nogil:
    memset(o, 0, sizeof(OpenTxns))


cdef void open_txns_free(OpenTxns* o) noexcept nogil:
    free(o.items)
    open_txns_init(o)


cdef int64_t _floor(const OpenTxns* o, int64_t first_offset) noexcept nogil:
    """Returns the index of the last item at or below `first_offset`; o.first - 1 when there is
    none."""
    cdef int64_t low = o.first, high = o.end, middle
    while low < high:
        middle = (low + high) >> 1
        if o.items[middle].first_offset <= first_offset:
            low = middle + 1
        else:
            high = middle
    return low - 1


cdef void _drop_decided(OpenTxns* o) noexcept nogil:
    """Removes decided transactions behind an open one and moves the others to the front. A removed
    one no longer matters: the open one is earlier, and its marker, which comes later, becomes
    visible later, too."""
    cdef int64_t i, kept = 0
    cdef bint behind_open = False
    for i in range(o.first, o.end):
        if o.items[i].marker_offset < 0:
            behind_open = True
        elif behind_open:
            continue
        o.items[kept] = o.items[i]
        kept += 1
    o.first_open -= o.first
    o.first = 0
    o.end = kept


cdef bint _reserve(OpenTxns* o) noexcept nogil:
    if o.end < o.capacity:
        return True
    if o.capacity:
        _drop_decided(o)
        if o.end <= o.capacity // 2:
            return True
    return (
        array_room(&o.items, &o.capacity, o.capacity + 1, sizeof(OpenTxn)) or o.end < o.capacity
    )


cdef bint open_txns_begin(OpenTxns* o, int64_t producer_id, int64_t first_offset) noexcept nogil:
    cdef int64_t at
    if not _reserve(o):
        return False
    at = _floor(o, first_offset) + 1
    memmove(&o.items[at + 1], &o.items[at], (o.end - at) * sizeof(OpenTxn))
    o.items[at].first_offset = first_offset
    o.items[at].producer_id = producer_id
    o.items[at].marker_offset = -1
    o.end += 1
    if at < o.first_open:
        o.first_open = at
    return True


cdef void open_txns_end(OpenTxns* o, int64_t first_offset, int64_t marker_offset) noexcept nogil:
    cdef int64_t at = _floor(o, first_offset)
    if at < o.first or o.items[at].first_offset != first_offset:
        return
    o.items[at].marker_offset = marker_offset
    while o.first_open < o.end and o.items[o.first_open].marker_offset >= 0:
        o.first_open += 1


cdef bint open_txns_settle(OpenTxns* o, int64_t high_watermark) noexcept nogil:
    cdef int64_t before = o.first
    while o.first < o.first_open and o.items[o.first].marker_offset < high_watermark:
        o.first += 1
    if o.first == before:
        return False
    if o.first == o.end:
        o.first = o.end = o.first_open = 0
    return True


cdef int64_t open_txns_first_open(const OpenTxns* o) noexcept nogil:
    return o.items[o.first_open].first_offset if o.first_open < o.end else -1


cdef int64_t open_txns_first_unstable(const OpenTxns* o) noexcept nogil:
    return o.items[o.first].first_offset if o.first < o.end else -1


cdef bint open_txns_unsettled(const OpenTxns* o) noexcept nogil:
    return o.first < o.first_open
