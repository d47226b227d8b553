"""The transactions of one log that hold readers of committed records back; see open_txns.pyx."""
from libc.stdint cimport int64_t

cdef struct OpenTxn:
    int64_t first_offset
    int64_t producer_id
    int64_t marker_offset       # -1: no marker yet

cdef struct OpenTxns:
    OpenTxn* items              # ascending by first offset, from `first` to `end`
    int64_t capacity
    int64_t first
    int64_t end
    int64_t first_open          # the first item without a marker, or `end`

cdef void open_txns_init(OpenTxns* o) noexcept nogil
cdef void open_txns_free(OpenTxns* o) noexcept nogil
# False: no memory, and nothing has changed.
cdef bint open_txns_begin(OpenTxns* o, int64_t producer_id, int64_t first_offset) noexcept nogil
cdef void open_txns_end(OpenTxns* o, int64_t first_offset, int64_t marker_offset) noexcept nogil
# Forgets what was decided by a marker below the high watermark; whether anything went.
cdef bint open_txns_settle(OpenTxns* o, int64_t high_watermark) noexcept nogil
# The first offset of the earliest transaction without a marker, -1 when there is none.
cdef int64_t open_txns_first_open(const OpenTxns* o) noexcept nogil
# The same of those whose marker is not visible so far as well.
cdef int64_t open_txns_first_unstable(const OpenTxns* o) noexcept nogil
# Whether a marker waits for the high watermark.
cdef bint open_txns_unsettled(const OpenTxns* o) noexcept nogil
