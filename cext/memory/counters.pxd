"""Counters of a topic, in stripes, so that network threads do not share a cache line.

A thread counts in the stripe of its index; a stripe is allocated with its first count, so an unused
topic has none. Readers sum over the stripes. The counters live in the Topic of the partition table
and are freed with it; the table keeps the sums of deleted topics.
"""
from libc.stdint cimport int32_t, int64_t

from barnabas.cext.memory.atomics cimport atomic_add_i64, atomic_load_pointer

cdef enum:                          # what a topic counts; see COUNT_NAMES
    COUNT_BATCHES = 0
    COUNT_MESSAGES = 1
    COUNT_BYTES = 2
    COUNT_DUPLICATES = 3
    COUNT_REJECTED_CORRUPT = 4      # frame or checksum
    COUNT_REJECTED_INVALID = 5      # content against the rules
    COUNT_REJECTED_NO_KEY = 6
    COUNT_REJECTED_TIMESTAMP = 7
    COUNT_REJECTED_TOO_LARGE = 8
    COUNT_REJECTED_CODEC = 9
    COUNT_REJECTED_SEQUENCE = 10    # producer ids, epochs, sequences
    COUNT_REJECTED_OTHER = 11
    COUNT_PRODUCES = 12             # partitions of requests that reached the log or its checks
    COUNT_PRODUCES_FAILED = 13      # of them, those with an error that Kafka counts as a failure
    COUNT_BYTES_REJECTED = 14       # of batches that are too large
    COUNT_FETCHES = 15              # partitions of requests
    COUNT_FETCHES_FAILED = 16       # of them, likewise
    COUNT_BYTES_OUT = 17
    COUNT_PRODUCE_CONVERSIONS = 18  # records converted from an older format
    COUNT_FETCH_CONVERSIONS = 19    # records converted to an older format
    COUNTS = 20

cdef enum:
    STRIPES = 8                     # a power of two; more threads share

cdef struct TopicCounters:
    void* stripes[STRIPES]          # int64_t[COUNTS] each, NULL until counted in

# Makes a stripe and returns its counters; NULL when memory ran out: then nothing is counted.
cdef int64_t* stripe_make(TopicCounters* c, int32_t stripe) noexcept nogil
cdef void counters_free(TopicCounters* c) noexcept nogil
# Adds what was counted since `seen` to `totals`, and brings `seen` up to date.
cdef void counters_fold(const TopicCounters* c, int64_t* seen, int64_t* totals) noexcept nogil

# Returns the sums over all stripes by the names of COUNT_NAMES.
cdef dict counters_dict(const TopicCounters* c)

cdef inline int64_t* counters_of(TopicCounters* c, int32_t thread_index) noexcept nogil:
    cdef int64_t* found = <int64_t*>atomic_load_pointer(&c.stripes[thread_index & (STRIPES - 1)])
    return found if found != NULL else stripe_make(c, thread_index & (STRIPES - 1))

cdef inline void count(TopicCounters* c, int32_t thread_index, int what, int64_t n) noexcept nogil:
    cdef int64_t* counts = counters_of(c, thread_index)
    if counts != NULL:
        atomic_add_i64(&counts[what], n)

# Returns whether clients meet the error in normal operation, so that Kafka does not count it as
# failed.
cdef inline bint produce_error_is_expected(int error) noexcept nogil:
    return error in (2, 3, 6, 10, 18, 56)       # corrupt, unknown, not leader, too large, storage

cdef inline bint fetch_error_is_expected(int error) noexcept nogil:
    return error in (1, 3, 6, 9, 56, 74, 75, 100, 103)  # the same, out of range, epochs, ids
