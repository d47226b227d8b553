"""Records as columns, for threads without the GIL; described in column_table.pyx."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from barnabas.cext.codec.buffer cimport Buffer
from barnabas.cext.record.messageset cimport MessageView
from barnabas.cext.record.records cimport BatchHeader

cdef enum:  # results beside a RecordsStatus
    COLUMNS_FULL = -1           # a column would pass 2 GiB
    COLUMNS_NO_MEMORY = -2

cdef enum:  # the timestamp_type of a record
    TIME_NONE = -1              # magic 0 has no timestamps
    TIME_CREATED = 0
    TIME_APPENDED = 1

cdef struct Binary:             # one binary column
    Buffer ends
    Buffer data
    Buffer valid
    int64_t rows
    int64_t nulls

cdef struct Table:
    Buffer partitions           # filled by table_end
    Buffer offsets
    Buffer timestamps
    Buffer timestamp_types
    Buffer timestamp_valid      # made by table_end, when a record has no timestamp
    Binary key
    Binary value
    Buffer header_ends          # for each row: the number of headers up to and including it
    Binary header_name
    Binary header_value
    int64_t rows
    int64_t timeless            # records whose timestamp is -1

cdef struct Mark:               # the sizes of a table, to which it is cut back when a batch is damaged
    int64_t rows
    int64_t timeless
    int64_t headers
    int64_t nulls[3]
    int64_t data_bytes[4]

cdef struct Wanted:             # the range of offsets of the records that the caller wants
    int64_t offset_min
    int64_t offset_end

# Makes an empty table. Returns False when memory ran out; the caller must free the table even then.
cdef bint table_begin(Table* t) noexcept nogil
cdef void table_free(Table* t) noexcept nogil
cdef Mark table_mark(const Table* t) noexcept nogil
cdef void table_cut(Table* t, const Mark* m) noexcept nogil
cdef int64_t table_bytes(const Table* t) noexcept nogil
# Reserves memory for this number of further rows and bytes at once, so that the columns do not grow
# by doubling.
cdef int table_reserve(Table* t, int64_t rows, int64_t key_bytes, int64_t value_bytes) noexcept nogil
# Finishes the table: fills the columns that are equal for all rows, and marks which rows have a
# timestamp. Returns False without memory.
cdef bint table_end(Table* t, int32_t partition) noexcept nogil

# The next three add all wanted records of a batch or message, or none of them. They return a
# RecordsStatus, COLUMNS_FULL or COLUMNS_NO_MEMORY. `position`: where the first wrong record begins
# in the given bytes.
cdef int table_add_body(
    Table* t, const uint8_t* body, int64_t size, const BatchHeader* h, const Wanted* wanted,
    int64_t* position) noexcept nogil
cdef int table_add_message(Table* t, const MessageView* m, const Wanted* wanted) noexcept nogil
# Adds the decompressed content of a wrapper; uses the magic, offset, timestamp and attributes of
# `wrapper`.
cdef int table_add_wrapped(
    Table* t, const uint8_t* content, int64_t size, const MessageView* wrapper,
    const Wanted* wanted, int64_t* position) noexcept nogil
