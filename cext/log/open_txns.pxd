"""The transactions of one log that bound its last stable offset; see open_txns.pyx."""
from libc.stdint cimport int64_t

cdef struct OpenTxn:
    int64_t first_offset
    int64_t producer_id
    int64_t marker_offset       # -1: no marker yet

cdef struct OpenTxns:
    OpenTxn* items              # ascending by first offset; [first, end) are in use
    int64_t capacity
    int64_t first
    int64_t end
    int64_t first_open          # the first item without a marker, or `end`

cdef void open_txns_init(OpenTxns* o) noexcept nogil
cdef void open_txns_free(OpenTxns* o) noexcept nogil
# Adds an open transaction. Returns False without memory; nothing has changed then.
cdef bint open_txns_begin(OpenTxns* o, int64_t producer_id, int64_t first_offset) noexcept nogil
# Notes the marker of the transaction that begins at `first_offset`; does nothing when it is not
# known.
cdef void open_txns_end(OpenTxns* o, int64_t first_offset, int64_t marker_offset) noexcept nogil
# Removes, from the front, transactions whose marker is below the high watermark. Returns whether it
# removed any.
cdef bint open_txns_settle(OpenTxns* o, int64_t high_watermark) noexcept nogil
# Returns the first offset of the earliest transaction without a marker, -1 when there is none.
cdef int64_t open_txns_first_open(const OpenTxns* o) noexcept nogil
# The same for transactions without a marker, or with one that the high watermark has not passed.
cdef int64_t open_txns_first_unstable(const OpenTxns* o) noexcept nogil
# Returns whether a marker waits for the high watermark.
cdef bint open_txns_unsettled(const OpenTxns* o) noexcept nogil
