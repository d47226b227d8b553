"""Damage found in segments, until Python logs it; described in damage.pyx."""
from libc.stdint cimport int64_t

from barnabas.cext.log.segment cimport Segment

# Counts and records that the bytes [first, end) of the .log contain no valid batch, unless these
# bytes are known already.
cdef void damage_note(Segment* segment, int64_t first, int64_t end) noexcept nogil
