"""Renames a segment's files together; described in segment_names.pyx. Functions return 0 or
-errno."""
from barnabas.cext.log.segment cimport Segment
from barnabas.cext.memory.sys cimport System

# Renames the files that end in `suffix` and `ending` so that they end in `suffix` and `target`,
# the .log last.
cdef int segment_rename_all(const char* stem, System* system, const char* ending, const char* target) noexcept nogil
# Renames a segment's files to NAME.deleted, the .log first; they are unlinked later. `cut_off`: a
# new segment may get the same name, so that readers must not open the files by name any more.
cdef int segment_rename_deleted(Segment* segment, System* system, bint cut_off) noexcept nogil
