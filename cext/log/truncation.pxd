"""Truncation and deletion; described in truncation.pyx. Functions return 0 or -errno."""
from libc.stdint cimport int64_t, uint8_t

from barnabas.cext.log.log cimport Log, SegmentList

# Restores the producer state as of `offset`, from a snapshot's bytes (none when snapshot_bytes is
# 0) and
# the batches behind it.
cdef int log_restore_producers(Log* log, int64_t snapshot_offset, const uint8_t* snapshot, int64_t snapshot_bytes, int64_t offset) noexcept nogil
# Locks the log against writers, flushes and readers; the second function unlocks it, and marks the
# log offline when `status` is an error.
cdef void log_begin_truncation(Log* log) noexcept nogil
cdef void log_end_truncation(Log* log, int status) noexcept nogil
# Between the two: truncates the log to `offset`, which lies inside it.
cdef int log_cut_to(Log* log, int64_t offset) noexcept nogil
# Between the two: replaces all segments by an empty one at `offset`. On success it owns `empty`, a
# list with space for one segment.
cdef int log_replace_all(Log* log, SegmentList* empty, int64_t offset) noexcept nogil
# Moves the log's start up to `offset`, at most to its end. Returns the start offset.
cdef int64_t log_advance_start(Log* log, int64_t offset) noexcept nogil
# Removes the segments below `offset` from the list, never the active one, and renames their files
# to .deleted. The caller holds the lock. Returns their number or -errno.
cdef int64_t log_delete_before(Log* log, int64_t offset) noexcept nogil
