"""What was found damaged in segments, until it is told; described in damage.pyx."""
from libc.stdint cimport int64_t

from barnabas.cext.log.segment cimport Segment

# Bytes [first, end) of the .log hold no valid batch: counted, and kept to be told, unless they were.
cdef void damage_note(Segment* segment, int64_t first, int64_t end) noexcept nogil
