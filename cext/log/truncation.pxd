"""Truncation and deletion for cext.log.log_handle; described in truncation.pyx. 0 or -errno."""
from libc.stdint cimport int64_t, uint8_t

from barnabas.cext.log.log cimport Log, SegmentList

# Producer state as of `offset`, from a snapshot's bytes (none when snapshot_bytes is 0).
cdef int log_restore_producers(Log* log, int64_t snapshot_offset, const uint8_t* snapshot, int64_t snapshot_bytes, int64_t offset) noexcept nogil
cdef void log_begin_truncation(Log* log) noexcept nogil
cdef void log_end_truncation(Log* log, int status) noexcept nogil     # offline when status is an error
# Between the two: the log ends at `offset`, which lies inside it.
cdef int log_cut_to(Log* log, int64_t offset) noexcept nogil
# Between the two: an empty log at `offset`. Takes `empty`, a list of one, unless it fails.
cdef int log_replace_all(Log* log, SegmentList* empty, int64_t offset) noexcept nogil
# Under the lock: how many segments below `offset` went, the active one never.
cdef int64_t log_delete_before(Log* log, int64_t offset) noexcept nogil
