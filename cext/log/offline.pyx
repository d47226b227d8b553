"""The marks "this log cannot be used", and how many were ever set.

Who remembers something that a usable log is part of (cext/network/response_cache.pyx) looks at the count
instead of at every log. It is of the whole process: brokers beside each other forget a little more
than they must, and nothing wrong is remembered.
"""
from libc.stdint cimport int32_t, int64_t

from barnabas.cext.memory.atomics cimport atomic_add_i64, atomic_load_i64, atomic_store_i32

cdef int64_t marks = 0


cdef void mark_offline(int32_t* flag) noexcept nogil:
    # The mark first: who has seen the new count must not take the log for a good one.
    atomic_store_i32(flag, 1)
    atomic_add_i64(&marks, 1)


cdef void mark_online(int32_t* flag) noexcept nogil:
    """The log is usable again; what was remembered of it is not true any more either."""
    atomic_store_i32(flag, 0)
    atomic_add_i64(&marks, 1)


cdef int64_t offline_marks() noexcept nogil:
    return atomic_load_i64(&marks)
