"""The marks "this log cannot be used", and the number of their changes.

A cache whose entries depend on usable logs (cext/network/response_cache.pyx) checks the count
instead of every log. The count belongs to the whole process: with several brokers in it a cache
drops more entries than necessary, and never keeps a wrong one.
"""
from libc.stdint cimport int32_t, int64_t

from barnabas.cext.memory.atomics cimport atomic_add_i64, atomic_load_i64, atomic_store_i32

cdef int64_t marks = 0


cdef void mark_offline(int32_t* flag) noexcept nogil:
    # The mark comes first: a reader of the new count must not take the log for usable.
    atomic_store_i32(flag, 1)
    atomic_add_i64(&marks, 1)


cdef void mark_online(int32_t* flag) noexcept nogil:
    """Marks the log as usable again. This counts as a change, too, because cached responses about
    it are wrong now."""
    atomic_store_i32(flag, 0)
    atomic_add_i64(&marks, 1)


cdef int64_t offline_marks() noexcept nogil:
    return atomic_load_i64(&marks)


def offline_changes():
    """Returns how often a log of this process was marked or unmarked."""
    return offline_marks()
