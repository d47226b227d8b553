"""Setting the mark of a log that cannot be used (see offline.pyx)."""
from libc.stdint cimport int32_t, int64_t

cdef void mark_offline(int32_t* flag) noexcept nogil
cdef void mark_online(int32_t* flag) noexcept nogil
# How often a mark was set in this process; never less than before.
cdef int64_t offline_marks() noexcept nogil
