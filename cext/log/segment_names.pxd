"""The names of a segment's files change together; described in segment_names.pyx. 0 or -errno."""
from barnabas.cext.log.segment cimport Segment
from barnabas.cext.memory.sys cimport System

# Renames the files that end in `suffix` and `ending` so that they end in `suffix` and `target`,
# the .log last.
cdef int segment_rename_all(const char* stem, System* system, const char* ending, const char* target) noexcept nogil
# Renames its files to NAME.deleted, the .log first, for somebody to unlink; cut_off when the name may come again.
cdef int segment_rename_deleted(Segment* segment, System* system, bint cut_off) noexcept nogil
