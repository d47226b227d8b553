"""A pool of memory of released columns; described in column_pool.pyx."""
from libc.stdint cimport int64_t

from barnabas.cext.record.column_table cimport Table

# Takes an empty table with about this capacity from the pool. Returns False when the pool has none;
# `t` has not changed then.
cdef bint column_pool_take(Table* t, int64_t rows, int64_t data_bytes) noexcept nogil
# Puts a table's memory into the pool, or frees it.
cdef void column_pool_give(Table* t) noexcept nogil
