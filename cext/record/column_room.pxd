"""A pool of memory of released columns; described in column_room.pyx."""
from libc.stdint cimport int64_t

from barnabas.cext.record.column_table cimport Table

# An empty table with about so much room; False when none is kept, and `t` is as it was then.
cdef bint room_take(Table* t, int64_t rows, int64_t data_bytes) noexcept nogil
# Keeps a table's room or frees it.
cdef void room_give(Table* t) noexcept nogil
