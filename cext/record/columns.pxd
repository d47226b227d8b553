"""A walk over batches into columns, and the builder that holds both; described in columns.pyx."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from barnabas.cext.codec.buffer cimport Buffer
from barnabas.cext.codec.inflate cimport Inflated
from barnabas.cext.record.column_table cimport Table, Wanted

cdef enum:  # why a walk ended
    WALK_END = 0                # all bytes are read
    WALK_CUT_OFF = 1            # the last batch is not whole
    WALK_FULL = 2               # the columns have bytes_max bytes
    WALK_PAST = 3               # all wanted offsets are read
    WALK_PACKED = 4             # the next batch is wanted, and the caller must decompress it

cdef struct Aborted:
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset

cdef struct Walk:
    Wanted wanted
    bint control                # markers are wanted too
    bint committed              # `aborted` is known
    Aborted* aborted            # ascending by first offset
    int64_t aborted_count
    int64_t aborted_at          # the transactions before it have begun
    Aborted* active             # those that have begun and not ended
    int64_t active_count
    int64_t active_capacity
    int64_t bytes_max
    int64_t body_bytes_max
    int64_t next_offset
    int64_t position            # of the first error, in the batch or in its decompressed body
    int stop
    Inflated scratch

# Continues at position at[0] and sets at[0] to the position it has reached. Returns 0 and sets
# w.stop, or returns a RecordsStatus or a status of column_table.pxd.
cdef int columns_walk(
    Table* t, Walk* w, const uint8_t* p, int64_t size, int64_t* at) noexcept nogil

cdef int walk_error(int status, int64_t position) except -1

cdef class Columns:
    cdef Table t
    cdef int32_t in_partition
    cdef bint expected

cdef class ColumnsBuilder:
    cdef Table t
    cdef Walk w
    cdef Buffer piece           # of a file, while it is walked
    cdef bint expected          # the caller gave the expected size, and memory was reserved for it
    cdef bint busy
    cdef int32_t partition
    cdef int64_t rows           # of the last finished table, where the next may be as large
    cdef int64_t key_bytes
    cdef int64_t value_bytes
    cdef int _begin(self) except -1
    cdef int _enter(self) except -1
