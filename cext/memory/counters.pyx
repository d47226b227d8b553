"""The slow part of counters.pxd: it allocates, frees and sums a topic's counters."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free
from libc.string cimport memset

from barnabas.cext.memory.atomics cimport atomic_cas_i64, atomic_load_i64

cdef extern from "<stdlib.h>" nogil:
    int posix_memalign(void** made, size_t alignment, size_t size)

cdef enum:
    CACHE_LINE_BYTES = 64
    STRIPE_BYTES = (COUNTS * 8 + 63) // 64 * 64     # whole lines: two stripes never share one

COUNT_NAMES = (
    "batches", "messages", "bytes", "duplicates", "rejected_corrupt", "rejected_invalid",
    "rejected_no_key", "rejected_timestamp", "rejected_too_large", "rejected_codec",
    "rejected_sequence", "rejected_other", "produces", "produces_failed", "bytes_rejected",
    "fetches", "fetches_failed", "bytes_out", "produce_conversions", "fetch_conversions",
)


cdef int64_t* stripe_make(TopicCounters* c, int32_t stripe) noexcept nogil:
    cdef void* made = NULL
    if posix_memalign(&made, CACHE_LINE_BYTES, STRIPE_BYTES) != 0:
        return NULL
    memset(made, 0, STRIPE_BYTES)
    if not atomic_cas_i64(<int64_t*>&c.stripes[stripe], 0, <int64_t>made):
        free(made)                  # another thread of the same stripe was faster
    return <int64_t*>atomic_load_pointer(&c.stripes[stripe])


cdef void counters_free(TopicCounters* c) noexcept nogil:
    cdef int i
    for i in range(STRIPES):
        free(c.stripes[i])
        c.stripes[i] = NULL


cdef void counters_fold(const TopicCounters* c, int64_t* seen, int64_t* totals) noexcept nogil:
    cdef int64_t now[COUNTS]
    cdef int64_t* counts
    cdef int i
    cdef int what
    memset(now, 0, sizeof(now))
    for i in range(STRIPES):
        counts = <int64_t*>atomic_load_pointer(<void**>&c.stripes[i])
        if counts != NULL:
            for what in range(COUNTS):
                now[what] += atomic_load_i64(&counts[what])
    for what in range(COUNTS):
        totals[what] += now[what] - seen[what]
        seen[what] = now[what]


cdef dict counters_dict(const TopicCounters* c):
    cdef int64_t seen[COUNTS]
    cdef int64_t now[COUNTS]
    cdef int what
    memset(seen, 0, sizeof(seen))
    memset(now, 0, sizeof(now))
    counters_fold(c, seen, now)
    return {COUNT_NAMES[what]: now[what] for what in range(COUNTS)}
