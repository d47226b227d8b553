"""Records as columns, for threads without the GIL; described in column_table.pyx."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from barnabas.cext.codec.buffer cimport Buffer
from barnabas.cext.record.messageset cimport MessageView
from barnabas.cext.record.records cimport BatchHeader

cdef enum:  # beyond a RecordsStatus
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
    Buffer timestamp_valid      # made by table_end, when a record has no time
    Binary key
    Binary value
    Buffer header_ends          # of the list: how many headers there are up to and with this row
    Binary header_name
    Binary header_value
    int64_t rows
    int64_t timeless            # records whose timestamp is -1

cdef struct Mark:               # what a batch that turns out to be damaged is cut back to
    int64_t rows
    int64_t timeless
    int64_t headers
    int64_t nulls[3]
    int64_t data_bytes[4]

cdef struct Wanted:             # the offsets of the records that are kept
    int64_t offset_min
    int64_t offset_end

# False when memory ran out; the table is to be freed all the same.
cdef bint table_begin(Table* t) noexcept nogil
cdef void table_free(Table* t) noexcept nogil
cdef Mark table_mark(const Table* t) noexcept nogil
cdef void table_cut(Table* t, const Mark* m) noexcept nogil
cdef int64_t table_bytes(const Table* t) noexcept nogil
# Reserves memory for so many more rows and bytes at once, so that the columns do not grow by
# doubling.
cdef int table_reserve(Table* t, int64_t rows, int64_t key_bytes, int64_t value_bytes) noexcept nogil
# What is the same for all rows, and which of them have a time.
cdef bint table_end(Table* t, int32_t partition) noexcept nogil

# All add the wanted records of something whole, or nothing: a RecordsStatus, COLUMNS_FULL or
# COLUMNS_NO_MEMORY. `position` is where in the bytes given the first wrong record begins.
cdef int table_add_body(
    Table* t, const uint8_t* body, int64_t size, const BatchHeader* h, const Wanted* wanted,
    int64_t* position) noexcept nogil
cdef int table_add_message(Table* t, const MessageView* m, const Wanted* wanted) noexcept nogil
# The content of a wrapper that was opened; of `wrapper` magic, offset, timestamp and attributes.
cdef int table_add_wrapped(
    Table* t, const uint8_t* content, int64_t size, const MessageView* wrapper,
    const Wanted* wanted, int64_t* position) noexcept nogil
