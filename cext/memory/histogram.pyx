"""Python's view of the histograms of histogram.pxd, and the bounds of their buckets."""
import threading

from libc.stdint cimport int32_t, int64_t

BUCKETS = HISTOGRAM_BUCKETS


cdef tuple histogram_sum(const Histogram** all_of_them, int count):
    cdef int32_t bucket
    cdef int i
    cdef int64_t n
    cdef int64_t sum_ns = 0
    cdef dict buckets = {}
    for i in range(count):
        if all_of_them[i] != NULL:
            sum_ns += all_of_them[i].sum_ns
    for bucket in range(HISTOGRAM_BUCKETS):
        n = 0
        for i in range(count):
            if all_of_them[i] != NULL:
                n += all_of_them[i].buckets[bucket]
        if n:
            buckets[bucket] = n
    return sum_ns, buckets


def bucket_of(int64_t time_ns) -> int:
    """Returns the bucket of a time in nanoseconds."""
    return histogram_bucket(time_ns)


def bucket_bounds_ns(int bucket) -> tuple[int, int]:
    """Returns (first nanosecond, last nanosecond + 1) of a bucket. Raises ValueError for another
    number."""
    cdef int shift
    if not 0 <= bucket < HISTOGRAM_BUCKETS:
        raise ValueError(f"bucket {bucket} is not within 0-{HISTOGRAM_BUCKETS - 1}")
    if bucket < 16:
        return bucket << HISTOGRAM_UNIT_BITS, (bucket + 1) << HISTOGRAM_UNIT_BITS
    shift = bucket // 16 - 1 + HISTOGRAM_UNIT_BITS
    return <int64_t>(16 + bucket % 16) << shift, <int64_t>(17 + bucket % 16) << shift


cdef class Times:
    """A histogram to which any Python thread may add."""
    cdef Histogram histogram
    cdef object lock

    def __init__(self):
        self.lock = threading.Lock()

    def add(self, int64_t time_ns) -> None:
        with self.lock:
            histogram_add(&self.histogram, time_ns)

    def read(self) -> tuple:
        """Returns (sum in ns, {bucket: count})."""
        cdef const Histogram* one = &self.histogram
        return histogram_sum(&one, 1)
