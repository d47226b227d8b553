"""Writes records into columns in Arrow's memory layout, without the GIL and without Python objects.

    partition       int32                     key    binary, null where the record has none
    offset          int64                     value  binary, null for a tombstone
    timestamp       int64, ms, null = none    headers    list of {key binary, value binary or null}
    timestamp_type  int8, -1 none, 0 of creation, 1 of appending

A binary column consists of int32 ends (one more than rows, the first is 0), the bytes of all
values, and a validity bit for each row. Names of headers are binary, because a producer may write
other bytes than UTF-8.

Invariants: a batch is added whole or not at all, so that damage leaves the columns unchanged; all
columns have `rows` rows. Limits: 2 GiB of data in a column (Arrow's 32-bit ends), then
COLUMNS_FULL. Memory grows with the given bytes: each batch reserves its own size once, so that the
loop over its records allocates nothing. Reserved pages that nothing is written to use no memory.

New pages are the largest cost of copying small records: in pages of 4 KiB they take longer than
reading the records. Therefore large columns use huge pages.

Next on the data path: cext/record/columns.pyx.
"""
from libc.stdint cimport INT32_MAX, int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy, memset

from barnabas.cext.codec.buffer cimport Buffer, buffer_free, buffer_reserve
from barnabas.cext.codec.cursor cimport Cursor, cursor_of, cursor_take, cursor_varint
from barnabas.cext.codec.endian cimport le64_load
from barnabas.cext.codec.varint cimport unzigzag
from barnabas.cext.record.messageset cimport (
    MessageView, message_crc_check, message_entry_size, message_view,
)
from barnabas.cext.record.records cimport (
    ATTR_APPEND_TIME, ATTR_CODEC_MASK, BATCH_BAD_COUNT, MESSAGE_BAD_NESTING, RECORD_SIZE_MIN,
    RECORDS_LEFT_OVER, RECORDS_MISSING, RECORDS_OK, BatchHeader, RecordView, record_next,
    short_uvarint,
)

cdef extern from "filemap.h" nogil:
    void memory_wants_huge_pages(void* p, int64_t size)

cdef enum:
    HUGE_FROM_BYTES = 256 * 1024
    CHUNK_BYTES = 32            # bytes of a value that are copied at once: up to 31 bytes too many
    CHUNKED_BYTES_MAX = 512     # larger values are copied by a call of memcpy
    RUN_BYTES_MIN = 32          # five short varints and the attributes have at most 16 bytes
    SHORT_DELTA_MAX = 1 << 21   # above the range of a varint of three bytes


# ------------------------------------------------------------------ room

cdef bint _grow(Buffer* b, int64_t capacity) noexcept nogil:
    cdef uint8_t* grown = <uint8_t*>realloc(b.data, capacity)
    if grown == NULL:
        b.failed = True
        return False
    b.data = grown
    b.capacity = capacity
    if capacity >= HUGE_FROM_BYTES:
        memory_wants_huge_pages(grown, capacity)
    return True


cdef inline bint _reserve(Buffer* b, int64_t n) noexcept nogil:
    cdef int64_t capacity
    if n <= b.capacity - b.size:
        return True
    capacity = max(2 * b.capacity, 256)
    return _grow(b, max(capacity, b.size + n))


cdef int _binary_reserve(Binary* c, int64_t rows, int64_t data_bytes) noexcept nogil:
    if c.data.size + data_bytes > INT32_MAX:
        return COLUMNS_FULL
    if not (_reserve(&c.ends, 4 * rows) and _reserve(&c.data, data_bytes)
            and _reserve(&c.valid, rows // 8 + 2)):
        return COLUMNS_NO_MEMORY
    return RECORDS_OK


cdef int table_reserve(
    Table* t, int64_t rows, int64_t key_bytes, int64_t value_bytes
) noexcept nogil:
    cdef int status = _binary_reserve(&t.key, rows, key_bytes)
    if status == RECORDS_OK:
        status = _binary_reserve(&t.value, rows, value_bytes)
    if status != RECORDS_OK:
        return status
    if not (_reserve(&t.offsets, 8 * rows) and _reserve(&t.timestamps, 8 * rows)
            and _reserve(&t.timestamp_types, rows) and _reserve(&t.header_ends, 4 * rows)):
        return COLUMNS_NO_MEMORY
    return RECORDS_OK


# ------------------------------------------------------------------ one binary column

cdef inline void _binary_put(Binary* c, const uint8_t* p, int64_t size) noexcept nogil:
    """Adds a value; a negative size is null. The caller has reserved memory."""
    cdef int64_t row = c.rows
    cdef uint8_t bit = <uint8_t>(1 << (row & 7))
    cdef uint8_t* valid = c.valid.data + (row >> 3)
    if row & 7 == 0:
        valid[0] = 0
        c.valid.size += 1
    if size < 0:
        valid[0] &= ~bit                    # it may be set by a batch that was cut back
        c.nulls += 1
    else:
        valid[0] |= bit
        memcpy(c.data.data + c.data.size, p, size)
        c.data.size += size
    (<int32_t*>(c.ends.data + c.ends.size))[0] = <int32_t>c.data.size
    c.ends.size += 4
    c.rows = row + 1


cdef void _binary_cut(Binary* c, int64_t rows, int64_t nulls, int64_t data_bytes) noexcept nogil:
    c.rows = rows
    c.nulls = nulls
    c.data.size = data_bytes
    c.ends.size = 4 * (rows + 1)
    c.valid.size = (rows + 7) // 8


cdef bint _begin_ends(Buffer* b) noexcept nogil:
    """Writes the 0 before the first row's end."""
    cdef uint8_t* at = buffer_reserve(b, 4)
    if at != NULL:
        (<int32_t*>at)[0] = 0
    return at != NULL


cdef void _binary_free(Binary* c) noexcept nogil:
    buffer_free(&c.ends)
    buffer_free(&c.data)
    buffer_free(&c.valid)


# ------------------------------------------------------------------ the table

cdef bint table_begin(Table* t) noexcept nogil:
    memset(t, 0, sizeof(Table))
    return (_begin_ends(&t.key.ends) and _begin_ends(&t.value.ends)
            and _begin_ends(&t.header_ends) and _begin_ends(&t.header_name.ends)
            and _begin_ends(&t.header_value.ends))


cdef void table_free(Table* t) noexcept nogil:
    buffer_free(&t.partitions)
    buffer_free(&t.offsets)
    buffer_free(&t.timestamps)
    buffer_free(&t.timestamp_types)
    buffer_free(&t.timestamp_valid)
    buffer_free(&t.header_ends)
    _binary_free(&t.key)
    _binary_free(&t.value)
    _binary_free(&t.header_name)
    _binary_free(&t.header_value)


cdef Mark table_mark(const Table* t) noexcept nogil:
    cdef Mark m
    m.rows = t.rows
    m.timeless = t.timeless
    m.headers = t.header_name.rows
    m.nulls = [t.key.nulls, t.value.nulls, t.header_value.nulls]
    m.data_bytes = [
        t.key.data.size, t.value.data.size, t.header_name.data.size, t.header_value.data.size,
    ]
    return m


cdef void table_cut(Table* t, const Mark* m) noexcept nogil:
    t.rows = t.timestamp_types.size = m.rows
    t.timeless = m.timeless
    t.offsets.size = t.timestamps.size = 8 * m.rows
    t.header_ends.size = 4 * (m.rows + 1)
    _binary_cut(&t.key, m.rows, m.nulls[0], m.data_bytes[0])
    _binary_cut(&t.value, m.rows, m.nulls[1], m.data_bytes[1])
    _binary_cut(&t.header_name, m.headers, 0, m.data_bytes[2])
    _binary_cut(&t.header_value, m.headers, m.nulls[2], m.data_bytes[3])


cdef int64_t table_bytes(const Table* t) noexcept nogil:
    return (t.key.data.size + t.value.data.size + t.header_name.data.size
            + t.header_value.data.size + 8 * t.header_name.rows + 29 * t.rows)


cdef bint table_end(Table* t, int32_t partition) noexcept nogil:
    cdef int64_t i
    cdef int32_t* partitions
    cdef uint8_t* valid
    if not _reserve(&t.partitions, 4 * t.rows):
        return False
    t.partitions.size = 4 * t.rows
    partitions = <int32_t*>t.partitions.data
    for i in range(t.rows):
        partitions[i] = partition
    if not t.timeless:
        return True
    if not _reserve(&t.timestamp_valid, t.rows // 8 + 1):
        return False
    t.timestamp_valid.size = (t.rows + 7) // 8
    valid = t.timestamp_valid.data
    memset(valid, 0, t.timestamp_valid.size)
    for i in range(t.rows):
        if (<int64_t*>t.timestamps.data)[i] != -1:
            valid[i >> 3] |= <uint8_t>(1 << (i & 7))
    return True


# ------------------------------------------------------------------ records of magic 2

cdef int _put_headers(Table* t, const RecordView* record) noexcept nogil:
    """Adds the headers of a record that record_next() accepted."""
    cdef Cursor c = cursor_of(record.headers, record.headers_size)
    cdef int32_t i, size
    cdef const uint8_t* at
    cdef int status = _binary_reserve(&t.header_name, record.header_count, record.headers_size)
    if status == RECORDS_OK:
        status = _binary_reserve(&t.header_value, record.header_count, record.headers_size)
    if status != RECORDS_OK:
        return status
    for i in range(record.header_count):
        size = cursor_varint(&c)
        at = cursor_take(&c, size)
        _binary_put(&t.header_name, at, size)
        size = cursor_varint(&c)
        at = cursor_take(&c, size) if size > 0 else c.p
        _binary_put(&t.header_value, at, size)
    return RECORDS_OK


cdef void _bits_fill(uint8_t* valid, int64_t start, int64_t end, bint value) noexcept nogil:
    """Sets the bits [start, end) to `value`; later bits of the last byte get any value."""
    cdef uint8_t below = <uint8_t>((1 << (start & 7)) - 1)
    cdef uint8_t filled = 0xFF if value else 0
    cdef int64_t at = start >> 3
    if end <= start:
        return
    if start & 7:
        valid[at] = (valid[at] & below) | (filled & ~below)
        at += 1
    if at <= (end - 1) >> 3:
        memset(valid + at, filled, ((end - 1) >> 3) - at + 1)


cdef inline void _fill_ends(int32_t* ends, int64_t start, int64_t end, int64_t value) noexcept nogil:
    cdef int64_t i
    for i in range(start, end):
        ends[i] = <int32_t>value


cdef inline void _binary_put_many(
    Binary* c, int64_t rows, int64_t nulls, const uint8_t* data_end
) noexcept nogil:
    """Adds to the column's size the `rows` rows that the loop in _put_records wrote behind its end."""
    c.rows += rows
    c.nulls += nulls
    c.data.size = data_end - c.data.data
    c.ends.size = 4 * (c.rows + 1)
    c.valid.size = (c.rows + 7) // 8


cdef struct Run:                    # values that are equal for all records of a batch
    int64_t base_offset
    int64_t base_time
    int64_t time_mask
    int64_t offset_min
    uint64_t span
    const uint8_t* end
    const uint8_t* first_value


cdef inline uint8_t* _put_value(uint8_t* into, const uint8_t* p, int64_t size) noexcept nogil:
    """Copies a value and returns the position of its end."""
    cdef uint8_t* end = into + size
    if size > CHUNKED_BYTES_MAX:
        memcpy(into, p, size)
    else:
        while into < end:
            memcpy(into, p, CHUNK_BYTES)
            into += CHUNK_BYTES
            p += CHUNK_BYTES
    return end


cdef inline int64_t _short_bytes(const uint8_t* p) noexcept nogil:
    """Returns the size of a varint that has at most two bytes."""
    return 2 if p[0] & 0x80 else 1


cdef int32_t _put_alike(
    const Run* run, const uint8_t* like, int64_t head_bytes, int64_t value_bytes, int32_t count,
    const uint8_t** from_at, int64_t* offsets, int64_t* times, int32_t* value_ends,
    uint8_t** values_at,
) noexcept nogil:
    """Copies the next records whose first `head_bytes` bytes are equal to those of the record at
    `like`, except for the values of the two deltas, and returns their number. These records have
    the same length, so only their last byte must still be checked. Records of equal length are
    frequent; this way one costs 13 ns instead of 18, on a busy core."""
    cdef int64_t time_at = _short_bytes(like) + 1
    cdef int64_t offset_at = time_at + _short_bytes(like + time_at)
    cdef int64_t key_at = offset_at + _short_bytes(like + offset_at)
    cdef int64_t record_bytes = head_bytes + value_bytes + 1
    cdef int64_t base_offset = run.base_offset, base_time = run.base_time
    cdef int64_t time_mask = run.time_mask, offset_min = run.offset_min
    cdef uint64_t span = run.span
    cdef const uint8_t* last = run.end - record_bytes - CHUNK_BYTES
    cdef const uint8_t* at = from_at[0]
    cdef uint8_t* values = values_at[0]
    cdef uint8_t[16] mask
    cdef uint64_t head = le64_load(like), tail = le64_load(like + 8), head_mask, tail_mask, word
    cdef int time_shift = <int>(8 * time_at), offset_shift = <int>(8 * offset_at)
    cdef uint32_t time_high = 0x3F80 if offset_at - time_at == 2 else 0
    cdef uint32_t offset_high = 0x3F80 if key_at - offset_at == 2 else 0
    cdef int64_t offset
    cdef int32_t n = 0
    if head_bytes != key_at + 1 + _short_bytes(like + key_at + 1):
        return 0                            # a varint of three bytes
    memset(mask, 0, sizeof(mask))
    memset(mask, 0xFF, head_bytes)
    memset(mask + time_at, 0x80, key_at - time_at)
    head_mask, tail_mask = le64_load(mask), le64_load(mask + 8)
    while n < count and at <= last:
        word = le64_load(at)
        if ((word ^ head) & head_mask) | ((le64_load(at + 8) ^ tail) & tail_mask):
            break
        if at[record_bytes - 1] != 0:       # headers
            break
        offset = <int64_t>(<uint64_t>base_offset + <uint64_t>unzigzag(
            (<uint32_t>(word >> offset_shift) & 0x7F)
            | (<uint32_t>(word >> (offset_shift + 1)) & offset_high)))
        if <uint64_t>offset - <uint64_t>offset_min >= span:
            break
        offsets[n] = offset
        times[n] = <int64_t>(<uint64_t>base_time + <uint64_t>(time_mask & unzigzag(
            (<uint32_t>(word >> time_shift) & 0x7F)
            | (<uint32_t>(word >> (time_shift + 1)) & time_high))))
        values = _put_value(values, at + head_bytes, value_bytes)
        value_ends[n] = <int32_t>(values - run.first_value)
        n += 1
        at += record_bytes
    from_at[0] = at
    values_at[0] = values
    return n


cdef int32_t _put_plain_run(
    Cursor* c, int32_t count, const BatchHeader* h, int64_t offset_min, uint64_t span,
    int64_t* offsets, int64_t* times, int32_t* value_ends, uint8_t** values_at,
    const uint8_t* first_value,
) noexcept nogil:
    """Copies the wanted records from the cursor on that have a value and neither key nor headers,
    and returns their number. It stops at another record, which the caller reads with record_next().

    This is a separate loop, because its local variables fit into the registers: a record of 100
    bytes takes 11 ns, and 22 with record_next() in _put_records. Memory for the last chunk of a
    value is there: the caller reserved memory for the whole body, of which at least a chunk is left
    then."""
    cdef Run run
    cdef const uint8_t* p = c.p
    cdef const uint8_t* at = p
    cdef const uint8_t* end = c.end
    cdef const uint8_t* start
    cdef const uint8_t* following
    cdef int64_t value_size
    cdef uint8_t* values = values_at[0]
    cdef uint8_t* values_now
    cdef uint32_t size, time_delta, offset_delta, value, size_before = 0
    cdef int64_t base_offset = h.base_offset
    cdef int64_t base_time = h.base_timestamp, time_mask = -1
    cdef int64_t offset
    cdef int32_t n = 0, alike
    cdef bint bad = False, looks_for_alike = True
    if h.attributes & ATTR_APPEND_TIME:
        base_time, time_mask = h.max_timestamp, 0
    if -SHORT_DELTA_MAX <= base_time <= SHORT_DELTA_MAX:
        return 0                            # records without a time (-1) are possible and are counted
    run.base_offset, run.base_time, run.time_mask = base_offset, base_time, time_mask
    run.offset_min, run.span, run.end, run.first_value = offset_min, span, end, first_value
    while n < count and end - at >= RUN_BYTES_MIN:
        p = at
        size = short_uvarint(&p, &bad)
        start = p
        p += 1
        time_delta = short_uvarint(&p, &bad)
        offset_delta = short_uvarint(&p, &bad)
        if p[0] != 1:                       # a key
            break
        p += 1
        value = short_uvarint(&p, &bad)
        value_size = value >> 1
        # The header count 0 is the last byte of the record, and a chunk follows the record.
        if bad or (size | value) & 1 or (p - start) + value_size + 1 != size >> 1:
            break
        if end - p < value_size + 1 + CHUNK_BYTES or p[value_size] != 0:
            break
        offset = <int64_t>(<uint64_t>base_offset + <uint64_t>unzigzag(offset_delta))
        if <uint64_t>offset - <uint64_t>offset_min >= span:
            break
        offsets[n] = offset
        times[n] = <int64_t>(<uint64_t>base_time + <uint64_t>(unzigzag(time_delta) & time_mask))
        values = _put_value(values, p, value_size)
        value_ends[n] = <int32_t>(values - first_value)
        n += 1
        following = start + (size >> 1)
        if size == size_before and looks_for_alike:
            values_now = values
            alike = _put_alike(
                &run, at, p - at, value_size, count - n, &following, offsets + n, times + n,
                value_ends + n, &values_now)
            values = values_now
            n += alike
            looks_for_alike = alike > 0
        size_before = size
        at = following
    c.p = at
    values_at[0] = values
    return n


# The loop writes through local pointers: otherwise the compiler would assume that a written byte
# could change any field of the table, and would load each field again. A whole batch often has no
# keys, nulls or headers: the loop writes nothing for them until the first one comes, and then adds
# the missing entries at once.
cdef int _put_records(
    Table* t, const uint8_t* body, int64_t size, const BatchHeader* h, const Wanted* wanted,
    int64_t* position,
) noexcept nogil:
    """Adds the wanted records of an uncompressed body. Returns as table_add_body does; after
    another result than 0 the caller must cut the table back. `position`: of the wrong record in the
    body."""
    cdef Cursor c = cursor_of(body, size)
    cdef RecordView r
    cdef const uint8_t* at = body
    cdef int32_t i, plain
    cdef int64_t offset, timestamp, rows = 0, timeless = 0, no_key = 0, no_value = 0
    cdef int64_t row = t.rows
    cdef int64_t offset_min = wanted.offset_min
    cdef uint64_t span = <uint64_t>wanted.offset_end - <uint64_t>wanted.offset_min
    cdef bint fixed_time = (h.attributes & ATTR_APPEND_TIME) != 0
    cdef bint keyed = False, headed = False
    cdef int64_t* offsets
    cdef int64_t* times
    cdef int32_t* header_ends
    cdef int32_t* key_ends
    cdef int32_t* value_ends
    cdef uint8_t* keys
    cdef uint8_t* values
    cdef uint8_t* first_key
    cdef uint8_t* first_value
    cdef int status
    position[0] = 0
    if h.record_count < 0 or h.record_count > size // RECORD_SIZE_MIN:
        return BATCH_BAD_COUNT
    if wanted.offset_end <= wanted.offset_min:
        span = 0
    status = table_reserve(t, h.record_count, size, size)
    if status != RECORDS_OK:
        return status
    offsets = <int64_t*>t.offsets.data + row
    times = <int64_t*>t.timestamps.data + row
    header_ends = <int32_t*>t.header_ends.data + row + 1
    key_ends = <int32_t*>t.key.ends.data + row + 1
    value_ends = <int32_t*>t.value.ends.data + row + 1
    first_key, first_value = t.key.data.data, t.value.data.data
    keys, values = first_key + t.key.data.size, first_value + t.value.data.size
    _bits_fill(t.value.valid.data, row, row + h.record_count, True)
    i = 0
    while i < h.record_count:
        if not (keyed or headed):
            plain = _put_plain_run(
                &c, h.record_count - i, h, offset_min, span, offsets + rows, times + rows,
                value_ends + rows, &values, first_value)
            i += plain
            rows += plain
            no_key += plain
            if i == h.record_count:
                break
        i += 1
        at = c.p
        status = RECORDS_MISSING if c.p == c.end else record_next(&c, &r)
        if status != RECORDS_OK:
            position[0] = at - body
            return status
        offset = <int64_t>(<uint64_t>h.base_offset + <uint64_t><int64_t>r.offset_delta)
        if <uint64_t>offset - <uint64_t>offset_min >= span:
            continue
        timestamp = h.max_timestamp
        if not fixed_time:
            timestamp = <int64_t>(<uint64_t>h.base_timestamp + <uint64_t>r.timestamp_delta)
        offsets[rows] = offset
        times[rows] = timestamp
        timeless += timestamp == -1
        if r.key_size >= 0:
            if not keyed:
                keyed = True
                _fill_ends(key_ends, 0, rows, keys - first_key)
                _bits_fill(t.key.valid.data, row, row + rows, False)
                _bits_fill(t.key.valid.data, row + rows, row + h.record_count, True)
            memcpy(keys, r.key, r.key_size)
            keys += r.key_size
            key_ends[rows] = <int32_t>(keys - first_key)
        else:
            no_key += 1
            if keyed:
                key_ends[rows] = <int32_t>(keys - first_key)
                t.key.valid.data[(row + rows) >> 3] &= ~<uint8_t>(1 << ((row + rows) & 7))
        if r.value_size >= 0:
            memcpy(values, r.value, r.value_size)
            values += r.value_size
        else:
            no_value += 1
            t.value.valid.data[(row + rows) >> 3] &= ~<uint8_t>(1 << ((row + rows) & 7))
        value_ends[rows] = <int32_t>(values - first_value)
        if r.header_count != 0 or headed:
            if not headed:
                headed = True
                _fill_ends(header_ends, 0, rows, t.header_name.rows)
            status = _put_headers(t, &r)
            if status != RECORDS_OK:
                position[0] = at - body
                return status
            header_ends[rows] = <int32_t>t.header_name.rows
        rows += 1
    position[0] = c.p - body
    if c.p != c.end:
        return RECORDS_LEFT_OVER
    if not keyed:
        _fill_ends(key_ends, 0, rows, keys - first_key)
        _bits_fill(t.key.valid.data, row, row + rows, False)
    if not headed:
        _fill_ends(header_ends, 0, rows, t.header_name.rows)
    _binary_put_many(&t.key, rows, no_key, keys)
    _binary_put_many(&t.value, rows, no_value, values)
    memset(t.timestamp_types.data + row, TIME_APPENDED if fixed_time else TIME_CREATED, rows)
    t.timestamp_types.size += rows
    t.offsets.size += 8 * rows
    t.timestamps.size += 8 * rows
    t.header_ends.size += 4 * rows
    t.timeless += timeless
    t.rows += rows
    return RECORDS_OK


cdef int table_add_body(
    Table* t, const uint8_t* body, int64_t size, const BatchHeader* h, const Wanted* wanted,
    int64_t* position,
) noexcept nogil:
    cdef Mark mark = table_mark(t)
    cdef int status = _put_records(t, body, size, h, wanted, position)
    if status != RECORDS_OK:
        table_cut(t, &mark)
    return status


# ------------------------------------------------------------------ messages of magic 0 and 1

cdef int _put_message(
    Table* t, const MessageView* m, int64_t offset, int64_t timestamp, int kind
) noexcept nogil:
    cdef int status = table_reserve(t, 1, max(m.key_size, 0), max(m.value_size, 0))
    if status != RECORDS_OK:
        return status
    (<int64_t*>t.offsets.data)[t.rows] = offset
    (<int64_t*>t.timestamps.data)[t.rows] = timestamp
    (<int8_t*>t.timestamp_types.data)[t.rows] = <int8_t>kind
    _binary_put(&t.key, m.key, m.key_size)
    _binary_put(&t.value, m.value, m.value_size)
    (<int32_t*>t.header_ends.data)[t.rows + 1] = <int32_t>t.header_name.rows
    t.offsets.size += 8
    t.timestamps.size += 8
    t.timestamp_types.size += 1
    t.header_ends.size += 4
    t.timeless += timestamp == -1
    t.rows += 1
    return RECORDS_OK


cdef inline int _time_kind(const MessageView* m) noexcept nogil:
    if m.magic == 0:
        return TIME_NONE
    return TIME_APPENDED if m.attributes & ATTR_APPEND_TIME else TIME_CREATED


cdef int table_add_message(Table* t, const MessageView* m, const Wanted* wanted) noexcept nogil:
    if m.offset < wanted.offset_min or m.offset >= wanted.offset_end:
        return RECORDS_OK
    return _put_message(t, m, m.offset, m.timestamp, _time_kind(m))


cdef int _last_inner_offset(
    const uint8_t* content, int64_t size, int magic, int64_t* found, int64_t* position
) noexcept nogil:
    """Checks all of a wrapper's content and finds the offset of its last entry, to which the
    wrapper's own offset belongs."""
    cdef MessageView m
    cdef int64_t at = 0
    cdef int status
    position[0] = 0
    if size == 0:
        return MESSAGE_BAD_NESTING
    while at < size:
        position[0] = at
        status = message_view(content + at, size - at, &m)
        if status == RECORDS_OK:
            status = message_crc_check(content + at, &m)
        if status != RECORDS_OK:
            return status
        if m.magic != magic or m.attributes & ATTR_CODEC_MASK:
            return MESSAGE_BAD_NESTING
        found[0] = m.offset
        at += message_entry_size(&m)
    return RECORDS_OK


cdef int table_add_wrapped(
    Table* t, const uint8_t* content, int64_t size, const MessageView* wrapper,
    const Wanted* wanted, int64_t* position,
) noexcept nogil:
    cdef MessageView m
    cdef Mark mark = table_mark(t)
    cdef int64_t at = 0
    cdef int64_t last = 0, offset
    cdef int kind = _time_kind(wrapper)
    cdef int status = _last_inner_offset(content, size, wrapper.magic, &last, position)
    while status == RECORDS_OK and at < size:
        status = message_view(content + at, size - at, &m)
        if status != RECORDS_OK:            # a mapped file may change while it is read
            break
        offset = m.offset
        if wrapper.magic == 1:
            offset = <int64_t>(<uint64_t>wrapper.offset - <uint64_t>last + <uint64_t>offset)
        if wanted.offset_min <= offset < wanted.offset_end:
            status = _put_message(
                t, &m, offset, wrapper.timestamp if kind == TIME_APPENDED else m.timestamp, kind)
        at += message_entry_size(&m)
    if status != RECORDS_OK:
        table_cut(t, &mark)
    return status
