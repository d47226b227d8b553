"""Sets and clears the mark of a log that cannot be used (see offline.pyx)."""
from libc.stdint cimport int32_t, int64_t

cdef void mark_offline(int32_t* flag) noexcept nogil
cdef void mark_online(int32_t* flag) noexcept nogil
# Returns how often a mark was set or cleared in this process; the number only grows.
cdef int64_t offline_marks() noexcept nogil
