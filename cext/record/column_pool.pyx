"""A pool of memory of released columns, for the next columns.

To get and clear a page costs more than to fill it with records, and malloc returns large blocks to
the system, which takes their pages away. So the pool keeps released tables whole, and a new table
of about the same size gets the one that was released last.

Limits: KEPT_BYTES_MAX in total, and KEPT_TABLES_MAX tables; beyond them the pool frees the oldest.
Beyond PLAIN_BYTES_MAX the system may take the pages when it needs them (MADV_FREE), because their
content is not used. malloc manages small tables, and the pool gives out no table that would leave
more than half of its memory unused.

No thread waits for the one lock: a thread that finds it taken allocates memory instead. So a
process that was forked while another thread held the lock goes on without the pool.

Next on the data path: cext/record/columns.pyx.
"""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memmove, memset

from barnabas.cext.codec.buffer cimport Buffer
from barnabas.cext.memory.atomics cimport (
    atomic_cas_i32, atomic_load_i64, atomic_store_i32, atomic_store_i64,
)
from barnabas.cext.record.column_table cimport Mark, Table, table_cut, table_free

cdef extern from "filemap.h" nogil:
    void memory_may_be_taken(void* p, int64_t size)

cdef enum:
    KEPT_BYTES_MAX = 1024 * 1024 * 1024
    PLAIN_BYTES_MAX = 64 * 1024 * 1024
    KEPT_TABLES_MAX = 1024
    LARGE_BYTES = 256 * 1024            # of a column: malloc manages smaller ones
    ROW_BYTES = 34                      # of a row in all columns, without the data of binary columns
    LOOKED_AT_MAX = 8                   # tables that a search for a fitting one checks

cdef int32_t locked = 0
cdef int64_t kept_bytes = 0
cdef int64_t kept_count = 0
cdef Table[KEPT_TABLES_MAX] kept


cdef inline bint _lock() noexcept nogil:
    return atomic_cas_i32(&locked, 0, 1)


cdef inline void _unlock() noexcept nogil:
    atomic_store_i32(&locked, 0)


cdef int64_t _data_capacity_bytes(const Table* t) noexcept nogil:
    return t.key.data.capacity + t.value.data.capacity


cdef int64_t _capacity_bytes(const Table* t) noexcept nogil:
    return (t.partitions.capacity + t.offsets.capacity + t.timestamps.capacity
            + t.timestamp_types.capacity + t.timestamp_valid.capacity + t.header_ends.capacity
            + t.key.ends.capacity + t.key.data.capacity + t.key.valid.capacity
            + t.value.ends.capacity + t.value.data.capacity + t.value.valid.capacity
            + t.header_name.ends.capacity + t.header_name.data.capacity
            + t.header_value.ends.capacity + t.header_value.data.capacity)


cdef bint column_pool_take(Table* t, int64_t rows, int64_t data_bytes) noexcept nogil:
    global kept_bytes, kept_count
    cdef int64_t at, lowest
    cdef Table found
    cdef bint fits = False
    if data_bytes < LARGE_BYTES or not _lock():
        return False
    lowest = max(kept_count - LOOKED_AT_MAX, <int64_t>0)
    at = kept_count
    while at > lowest and not fits:
        at -= 1
        fits = (_data_capacity_bytes(&kept[at]) >= data_bytes // 2
                and _capacity_bytes(&kept[at]) <= 2 * (data_bytes + ROW_BYTES * rows))
    if fits:
        found = kept[at]
        kept_count -= 1
        kept[at] = kept[kept_count]
        atomic_store_i64(&kept_bytes, kept_bytes - _capacity_bytes(&found))
    _unlock()
    if fits:
        table_free(t)
        t[0] = found
    return fits


cdef void _offer(const Buffer* b) noexcept nogil:
    if b.capacity >= LARGE_BYTES:
        memory_may_be_taken(b.data, b.capacity)


cdef bint _keep(const Table* t, int64_t bytes, Table* oldest) noexcept nogil:
    """Puts a table into the pool. Returns False when the caller must free memory: `oldest`, which
    then belongs to the caller, or an empty one when another thread holds the lock."""
    global kept_bytes, kept_count
    cdef bint fits
    memset(oldest, 0, sizeof(Table))
    if not _lock():
        return False
    fits = kept_count < KEPT_TABLES_MAX and kept_bytes + bytes <= KEPT_BYTES_MAX
    if fits:
        kept[kept_count] = t[0]
        kept_count += 1
        atomic_store_i64(&kept_bytes, kept_bytes + bytes)
    elif kept_count:
        oldest[0] = kept[0]
        kept_count -= 1
        memmove(kept, kept + 1, kept_count * sizeof(Table))
        atomic_store_i64(&kept_bytes, kept_bytes - _capacity_bytes(oldest))
    _unlock()
    return fits


cdef void column_pool_give(Table* t) noexcept nogil:
    cdef Mark empty
    cdef Table oldest
    cdef int64_t bytes = _capacity_bytes(t)
    cdef bint is_kept = False
    if _data_capacity_bytes(t) >= LARGE_BYTES and bytes <= KEPT_BYTES_MAX:
        memset(&empty, 0, sizeof(Mark))
        table_cut(t, &empty)
        t.partitions.size = t.timestamp_valid.size = 0
        if atomic_load_i64(&kept_bytes) + bytes > PLAIN_BYTES_MAX:
            _offer(&t.value.data)
            _offer(&t.key.data)
            _offer(&t.header_name.data)
            _offer(&t.header_value.data)
        is_kept = _keep(t, bytes, &oldest)
        while not is_kept and _capacity_bytes(&oldest):
            table_free(&oldest)
            is_kept = _keep(t, bytes, &oldest)
    if not is_kept:
        table_free(t)
    memset(t, 0, sizeof(Table))


def column_pool_bytes() -> int:
    """Returns the number of bytes in the pool."""
    return atomic_load_i64(&kept_bytes)
