"""Histograms of times: log-linear buckets, sixteen to each power of two.

A bucket is at most 1/16 of its value wide, so a quantile read from it is within 3 % of the truth.
The unit is 1,024 ns; times over 73 minutes are counted in the last bucket.
A histogram has one writer (or a lock around it). A reader sees each count as it was at some moment.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t

cdef extern from *:
    int __builtin_clzll(unsigned long long) nogil

cdef enum:
    HISTOGRAM_BUCKETS = 464
    HISTOGRAM_UNIT_BITS = 10

cdef struct Histogram:
    int64_t sum_ns
    int64_t buckets[HISTOGRAM_BUCKETS]

cdef inline int32_t histogram_bucket(int64_t time_ns) noexcept nogil:
    cdef uint64_t units
    cdef int32_t top
    if time_ns < <int64_t>16 << HISTOGRAM_UNIT_BITS:
        return 0 if time_ns < 0 else <int32_t>(time_ns >> HISTOGRAM_UNIT_BITS)
    units = <uint64_t>time_ns >> HISTOGRAM_UNIT_BITS
    if units > 0xFFFFFFFFu:
        return HISTOGRAM_BUCKETS - 1
    top = 63 - __builtin_clzll(units)
    return (top - 3) * 16 + <int32_t>((units >> (top - 4)) & 15)

cdef inline void histogram_add(Histogram* h, int64_t time_ns) noexcept nogil:
    h.buckets[histogram_bucket(time_ns)] += 1
    if time_ns > 0:
        h.sum_ns += time_ns

# Returns (sum_ns, {bucket: count}) over several histograms; it leaves out NULLs among them.
cdef tuple histogram_sum(const Histogram** all_of_them, int count)
