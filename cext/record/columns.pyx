"""Puts the visible records of a log's batches into columns, and gives the finished table to Python.

The columns themselves are in column_table.pyx. A walk goes from batch to batch and checks CRCs. It
leaves out records outside the requested offsets, transaction markers, and records of aborted
transactions when these are known. Uncompressed, lz4 and snappy batches and messages of magic 0, 1
and 2 become rows here without the GIL; at gzip and zstd the walk stops, and its caller decompresses
the batch.

    aborted transactions   (producer id, first offset, last offset), ascending by first offset. One
                           applies from the first batch that ends at or above its first offset to its
                           last offset, or to the producer's next abort marker. In answers to a fetch
                           the last offset is not known; it is INT64_MAX then

Python reads the buffers of the result through the buffer protocol, and the whole table through
Arrow's C data interface (`pyarrow.record_batch(columns)`, polars, duckdb) without a copy.
Next on the data path: broker/wire/columns.py, which decompresses the batches at which the walk
stops, and cext/log/mapped_segment.pyx.
"""
cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.pycapsule cimport PyCapsule_Destructor, PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from barnabas.cext.codec.buffer cimport Buffer, buffer_free
from barnabas.cext.codec.cursor cimport Cursor, cursor_of
from barnabas.cext.codec.endian cimport be16_load
from barnabas.cext.codec.inflate cimport (
    INFLATE_OK, inflated_free, inflated_init, inflated_reset, lz4_frame_decode,
    snappy_framed_decode,
)
from barnabas.cext.memory.array cimport array_room
from barnabas.cext.record.column_pool cimport column_pool_give, column_pool_take
from barnabas.cext.record.column_table cimport (
    COLUMNS_FULL, COLUMNS_NO_MEMORY, Binary, Mark, Table, Wanted, table_add_body, table_add_message,
    table_add_wrapped, table_begin, table_bytes, table_cut, table_end, table_free, table_mark,
    table_reserve,
)
from barnabas.cext.record.messageset cimport (
    MessageView, message_crc_check, message_entry_size, message_view,
)
from barnabas.cext.record.records cimport (
    AT_MAGIC, ATTR_APPEND_TIME, ATTR_CODEC_MASK, ATTR_CONTROL, ATTR_TRANSACTIONAL, BATCH_BAD_OFFSET,
    BATCH_CUT_OFF, BATCH_OVERHEAD, MESSAGE_BAD_NESTING, OFFSET_MAX, RECORDS_OK, BatchHeader, RecordView, batch_crc_check,
    batch_header, batch_size, corrupt, record_next,
)

cdef enum:
    SNAPPY = 2
    LZ4 = 3
    MARKER_ABORT = 0            # the type in a marker's key
    SCRATCH_KEPT_BYTES = 4 * 1024 * 1024
    BODY_BYTES_MAX = 256 * 1024 * 1024

STOPS = ("end", "cut off", "full", "past", "packed")    # by a WALK_ number


# ------------------------------------------------------------------ aborted transactions

cdef bint _walk_into(Walk* w, int64_t last_offset) noexcept nogil:
    """Activates the aborted transactions that begin at or before this offset."""
    while w.aborted_at < w.aborted_count and w.aborted[w.aborted_at].first_offset <= last_offset:
        if not array_room(&w.active, &w.active_capacity, w.active_count + 1, sizeof(Aborted)):
            return False
        w.active[w.active_count] = w.aborted[w.aborted_at]
        w.active_count += 1
        w.aborted_at += 1
    return True


cdef inline void _no_longer(Walk* w, int64_t i) noexcept nogil:
    w.active_count -= 1
    w.active[i] = w.active[w.active_count]


cdef bint _is_aborted(Walk* w, const BatchHeader* h) noexcept nogil:
    cdef int64_t i = 0
    while i < w.active_count:
        if w.active[i].last_offset < h.base_offset:
            _no_longer(w, i)
        elif w.active[i].producer_id == h.producer_id:
            return True
        else:
            i += 1
    return False


cdef void _pass_marker(Walk* w, const uint8_t* batch, const BatchHeader* h) noexcept nogil:
    """Deactivates a producer's aborted transaction at its abort marker."""
    cdef Cursor c = cursor_of(batch + BATCH_OVERHEAD, batch_size(h) - BATCH_OVERHEAD)
    cdef RecordView r
    cdef int64_t i = 0
    if record_next(&c, &r) != RECORDS_OK or r.key_size < 4:
        return
    if <int16_t>be16_load(r.key + 2) != MARKER_ABORT:
        return
    while i < w.active_count:
        if w.active[i].producer_id == h.producer_id:
            _no_longer(w, i)
        else:
            i += 1


# ------------------------------------------------------------------ the walk

cdef int _inflate(Walk* w, int codec, const uint8_t* body, int64_t size) noexcept nogil:
    """Decompresses a body into w.scratch; returns 0 then. A body that this function cannot
    decompress is left to the caller, which also reports its damage."""
    cdef int status
    if codec == LZ4:
        status = lz4_frame_decode(&w.scratch, body, size, w.body_bytes_max)
    elif codec == SNAPPY:
        status = snappy_framed_decode(&w.scratch, body, size, w.body_bytes_max)
    else:
        return WALK_PACKED
    return RECORDS_OK if status == INFLATE_OK else WALK_PACKED


cdef int _walk_batch(Table* t, Walk* w, const uint8_t* p, const BatchHeader* h) noexcept nogil:
    """Adds a whole batch of magic 2 that has offsets in the wanted range."""
    cdef const uint8_t* body = p + BATCH_OVERHEAD
    cdef int64_t size = batch_size(h) - BATCH_OVERHEAD
    cdef int codec = h.attributes & ATTR_CODEC_MASK
    cdef int status
    w.position = 0
    if w.committed and not _walk_into(w, h.base_offset + h.last_offset_delta):
        return COLUMNS_NO_MEMORY
    if h.attributes & ATTR_CONTROL:
        _pass_marker(w, p, h)
        if not w.control:
            return RECORDS_OK
    elif w.committed and h.attributes & ATTR_TRANSACTIONAL and _is_aborted(w, h):
        return RECORDS_OK
    if codec and size:                      # compaction may have removed the last record
        status = _inflate(w, codec, body, size)
        if status != RECORDS_OK:
            return status
        body, size = w.scratch.data, w.scratch.size_bytes
    status = table_add_body(t, body, size, h, &w.wanted, &w.position)
    w.position = 0 if codec else w.position + BATCH_OVERHEAD
    return status


cdef int _walk_message(Table* t, Walk* w, const uint8_t* p, const MessageView* m) noexcept nogil:
    cdef int codec = m.attributes & ATTR_CODEC_MASK
    cdef int status
    w.position = 0
    if not codec:
        return table_add_message(t, m, &w.wanted)
    if m.value == NULL:
        return MESSAGE_BAD_NESTING
    status = _inflate(w, codec, m.value, m.value_size)
    if status != RECORDS_OK:
        return status
    status = table_add_wrapped(
        t, w.scratch.data, w.scratch.size_bytes, m, &w.wanted, &w.position)
    w.position = 0
    return status


cdef int columns_walk(
    Table* t, Walk* w, const uint8_t* p, int64_t size, int64_t* at
) noexcept nogil:
    cdef BatchHeader h
    cdef MessageView m
    cdef const uint8_t* here
    cdef int64_t first, last, entry_bytes
    cdef int status
    w.stop = WALK_END
    w.position = 0
    memset(&h, 0, sizeof(BatchHeader))
    memset(&m, 0, sizeof(MessageView))
    while at[0] < size:
        if table_bytes(t) >= w.bytes_max:
            w.stop = WALK_FULL
            return RECORDS_OK
        here = p + at[0]
        if size - at[0] <= AT_MAGIC:
            w.stop = WALK_CUT_OFF
            return RECORDS_OK
        if here[AT_MAGIC] < 2:
            status = message_view(here, size - at[0], &m)
            first = m.offset
            entry_bytes = message_entry_size(&m)
        else:
            status = batch_header(here, size - at[0], &h)
            first = h.base_offset
            entry_bytes = batch_size(&h)
        if status == BATCH_CUT_OFF:
            w.stop = WALK_CUT_OFF
            return RECORDS_OK
        if status != RECORDS_OK:
            return status
        if first > OFFSET_MAX:
            return BATCH_BAD_OFFSET
        last = first if here[AT_MAGIC] < 2 else first + h.last_offset_delta
        # For a wrapper only the last offset is known: its first one may be below the wanted end.
        if first >= w.wanted.offset_end and not (
                here[AT_MAGIC] < 2 and m.attributes & ATTR_CODEC_MASK):
            w.stop = WALK_PAST
            return RECORDS_OK
        if last >= w.wanted.offset_min:
            if here[AT_MAGIC] < 2:
                status = message_crc_check(here, &m)
                if status == RECORDS_OK:
                    status = _walk_message(t, w, here, &m)
            else:
                status = batch_crc_check(here, &h)
                if status == RECORDS_OK:
                    status = _walk_batch(t, w, here, &h)
            if status == WALK_PACKED:
                w.stop = WALK_PACKED
                w.next_offset = last + 1
                return RECORDS_OK
            if status != RECORDS_OK:
                return status
        at[0] += entry_bytes
        if last >= w.next_offset:
            w.next_offset = last + 1
        if last + 1 >= w.wanted.offset_end:
            w.stop = WALK_PAST
            return RECORDS_OK
    return RECORDS_OK


cdef int walk_error(int status, int64_t position) except -1:
    if status == RECORDS_OK:
        return 0
    if status == COLUMNS_FULL:
        raise OverflowError("a column takes 2 GiB at most: finish() and go on")
    if status == COLUMNS_NO_MEMORY:
        raise MemoryError("no memory for columns")
    raise corrupt(status, position)


# ------------------------------------------------------------------ Python: the finished table

@cython.final
cdef class ColumnBuffer:
    """The bytes of one buffer of a column, readable through Python's buffer protocol."""

    cdef Columns owner
    cdef void* data
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)

    def __len__(self) -> int:
        return self.size


cdef uint8_t[8] NOTHING         # an address for buffers of no bytes


cdef void _let_go(Table* t, bint expected) noexcept nogil:
    """Frees a table, or keeps its memory in the pool when it was reserved for an expected size:
    only callers that expect a size take memory from the pool."""
    if expected:
        column_pool_give(t)
    else:
        table_free(t)


cdef ColumnBuffer _buffer(Columns owner, const Buffer* b):
    cdef ColumnBuffer found = ColumnBuffer.__new__(ColumnBuffer)
    found.owner = owner
    found.data = b.data if b.data != NULL else NOTHING
    found.size = b.size
    return found


@cython.final
cdef class Columns:
    """Records as columns. `buffers()` returns each buffer; Arrow's readers get the whole table."""

    def __dealloc__(self):
        _let_go(&self.t, self.expected)

    def __len__(self) -> int:
        return self.t.rows

    @property
    def header_count(self) -> int:
        return self.t.header_name.rows

    @property
    def partition(self) -> int:
        return self.in_partition

    @property
    def size_bytes(self) -> int:
        """The size of all rows in bytes, with the columns of ends and validity."""
        return table_bytes(&self.t)

    def first_at(self, int64_t timestamp):
        """Returns the offset of the first row whose timestamp (ms) is at or after this, or None."""
        cdef const int64_t* times = <const int64_t*>self.t.timestamps.data
        cdef int64_t row = 0
        with nogil:
            while row < self.t.rows and times[row] < timestamp:
                row += 1
        if row == self.t.rows:
            return None
        return (<const int64_t*>self.t.offsets.data)[row]

    def buffers(self) -> dict:
        """Returns {name: ColumnBuffer}. `..._ends` are int32 and have one entry more than the
        column; `..._valid` have one bit for each row, the lowest first; numbers have this machine's
        byte order. The other buffers are the bytes themselves. See columns.pyi."""
        cdef Table* t = &self.t
        return {
            "partitions": _buffer(self, &t.partitions),
            "offsets": _buffer(self, &t.offsets),
            "timestamps": _buffer(self, &t.timestamps),
            "timestamp_valid": _buffer(self, &t.timestamp_valid),
            "timestamp_types": _buffer(self, &t.timestamp_types),
            "keys": _buffer(self, &t.key.data),
            "key_ends": _buffer(self, &t.key.ends),
            "key_valid": _buffer(self, &t.key.valid),
            "values": _buffer(self, &t.value.data),
            "value_ends": _buffer(self, &t.value.ends),
            "value_valid": _buffer(self, &t.value.valid),
            "header_ends": _buffer(self, &t.header_ends),
            "header_names": _buffer(self, &t.header_name.data),
            "header_name_ends": _buffer(self, &t.header_name.ends),
            "header_values": _buffer(self, &t.header_value.data),
            "header_value_ends": _buffer(self, &t.header_value.ends),
            "header_value_valid": _buffer(self, &t.header_value.valid),
        }

    def __arrow_c_schema__(self):
        return _schema_capsule()

    def __arrow_c_array__(self, requested_schema=None):
        """Returns (schema, array) as Arrow's PyCapsule interface defines. It ignores
        `requested_schema`, as the interface allows; the reader casts."""
        return _schema_capsule(), _array_capsule(self)


@cython.final
cdef class ColumnsBuilder:
    """Makes Columns from batches. One thread may use it at a time: a second one gets RuntimeError.

    `body_bytes_max`: the largest decompressed size of a batch in bytes."""

    def __cinit__(self, *, int32_t partition=0, int64_t body_bytes_max=BODY_BYTES_MAX):
        self.partition = partition
        self.w.body_bytes_max = body_bytes_max
        self.w.bytes_max = INT64_MAX
        self.w.wanted.offset_end = INT64_MAX
        inflated_init(&self.w.scratch)
        self._begin()

    def __dealloc__(self):
        _let_go(&self.t, self.expected)
        buffer_free(&self.piece)
        inflated_free(&self.w.scratch)
        free(self.w.aborted)
        free(self.w.active)

    def __len__(self) -> int:
        return self.t.rows

    @property
    def stop(self) -> str:
        """The reason why the last add() stopped: one of STOPS."""
        return STOPS[self.w.stop]

    @property
    def next_offset(self) -> int:
        """The offset after the last batch that was added or skipped."""
        return self.w.next_offset

    @property
    def body_bytes_max(self) -> int:
        return self.w.body_bytes_max

    def only(self, int64_t offset_min, int64_t offset_end, *, int64_t bytes_max=INT64_MAX) -> None:
        """Keeps only records with offsets in [offset_min, offset_end) from now on, and stops when
        the columns have `bytes_max` bytes."""
        self.w.wanted.offset_min, self.w.wanted.offset_end = offset_min, offset_end
        self.w.next_offset = offset_min
        self.w.bytes_max = bytes_max

    def expect(self, int64_t rows, int64_t key_bytes, int64_t value_bytes) -> None:
        """Reserves memory, so that the columns need not grow. An unused part takes address space
        only."""
        self._enter()
        try:
            self.expected = True
            if self.t.rows or not column_pool_take(&self.t, rows, key_bytes + value_bytes):
                walk_error(table_reserve(&self.t, rows, key_bytes, value_bytes), 0)
        finally:
            self.busy = False

    def without_aborted(self, transactions not None) -> None:
        """Leaves out the records of these aborted transactions: (producer id, first offset, last
        offset or None) of each. Of the transactions of an earlier call, only those that the walk is
        inside stay active. Raises MemoryError."""
        cdef list rows = sorted((first, pid, last) for pid, first, last in transactions)
        cdef Aborted* found = <Aborted*>calloc(max(len(rows), 1), sizeof(Aborted))
        cdef int64_t i
        if found == NULL:
            raise MemoryError
        self._enter()
        free(self.w.aborted)
        self.w.aborted, self.w.aborted_count, self.w.aborted_at = found, 0, 0
        self.w.committed = True
        try:
            for i, (first, producer_id, last) in enumerate(rows):
                found[i].producer_id, found[i].first_offset = producer_id, first
                found[i].last_offset = INT64_MAX if last is None else last
            self.w.aborted_count = len(rows)
        finally:
            self.busy = False

    cdef int _begin(self) except -1:
        self.expected = self.rows > 0
        cdef int64_t rows = self.rows + self.rows // 8
        cdef int64_t keys = self.key_bytes + self.key_bytes // 8
        cdef int64_t values = self.value_bytes + self.value_bytes // 8
        if self.rows and column_pool_take(&self.t, rows, keys + values):
            return 0
        if not table_begin(&self.t) or (
                self.rows and table_reserve(&self.t, rows, keys, values) != RECORDS_OK):
            table_free(&self.t)
            raise MemoryError("no memory for columns")
        return 0

    cdef int _enter(self) except -1:
        if self.busy:
            raise RuntimeError("another thread is adding to these columns")
        self.busy = True
        return 0

    def add(self, data not None, int64_t start=0) -> int:
        """Adds the records of a record set from byte `start` on, within the limits of only().
        Returns the position where it stopped; `stop` has the reason. Raises CorruptRecords, and
        OverflowError when a column would exceed 2 GiB; the batches before that one are added."""
        cdef Py_buffer view
        cdef int64_t at = start
        cdef int64_t size = 0
        cdef int status
        self._enter()
        try:
            PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
            size = view.len
            if 0 <= start <= size:
                with nogil:
                    status = columns_walk(&self.t, &self.w, <const uint8_t*>view.buf, size, &at)
            PyBuffer_Release(&view)
        finally:
            self.busy = False
        if not 0 <= start <= size:
            raise ValueError(f"start {start} outside {size} bytes")
        walk_error(status, at + self.w.position)
        return at

    def add_batches(
        self, data not None, int64_t start=0, *, int64_t offset_min=0, bint control=False,
    ) -> int:
        """Adds the batches of a record set from byte `start` on, without records below
        `offset_min`, and without control batches unless `control` is set.

        Returns the position where it stopped: the end; a batch that is cut off, as answers to a
        fetch may end; or a batch that the caller must decompress and pass to add_body or
        add_wrapped. Raises as add() does.
        """
        self.only(offset_min, INT64_MAX)
        self.w.control = control
        try:
            return self.add(data, start)
        finally:
            self.w.control = False

    def add_body(
        self, body not None, *, int32_t count, int64_t base_offset, int64_t base_timestamp,
        append_time=None, offset_min=None,
    ) -> None:
        """Adds the records of a decompressed body. `append_time`: the timestamp of every record in
        ms, if the batch has append time. Raises CorruptRecords (position in the body),
        OverflowError."""
        cdef Py_buffer view
        cdef BatchHeader h
        cdef int64_t position = 0
        cdef int status
        memset(&h, 0, sizeof(BatchHeader))
        h.record_count = count
        h.base_offset = base_offset
        h.base_timestamp = base_timestamp
        if append_time is not None:
            h.attributes = ATTR_APPEND_TIME
            h.max_timestamp = append_time
        self._enter()
        try:
            if offset_min is not None:
                self.w.wanted.offset_min = offset_min
            PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
            with nogil:
                status = table_add_body(
                    &self.t, <const uint8_t*>view.buf, view.len, &h, &self.w.wanted, &position
                )
            PyBuffer_Release(&view)
        finally:
            self.busy = False
        walk_error(status, position)

    def add_wrapped(
        self, content not None, *, int magic, int64_t offset, append_time=None
    ) -> None:
        """Adds the records of a wrapper's decompressed content. `offset`: the wrapper's;
        `append_time`: as in add_body. Raises CorruptRecords (position in the content),
        OverflowError."""
        cdef Py_buffer view
        cdef MessageView wrapper
        cdef int64_t position = 0
        cdef int status
        memset(&wrapper, 0, sizeof(MessageView))
        wrapper.magic = magic
        wrapper.offset = offset
        if append_time is not None:
            wrapper.attributes = ATTR_APPEND_TIME
            wrapper.timestamp = append_time
        self._enter()
        try:
            PyObject_GetBuffer(content, &view, PyBUF_SIMPLE)
            with nogil:
                status = table_add_wrapped(
                    &self.t, <const uint8_t*>view.buf, view.len, &wrapper, &self.w.wanted,
                    &position,
                )
            PyBuffer_Release(&view)
        finally:
            self.busy = False
        walk_error(status, position)

    def finish(self) -> Columns:
        """Returns the records added so far. The builder is empty then, and reserves memory for as
        many records again."""
        cdef Columns found = Columns.__new__(Columns)
        cdef bint whole
        self._enter()
        try:
            with nogil:
                whole = table_end(&self.t, self.partition)
            if not whole:
                raise MemoryError("no memory for columns")
            found.t = self.t
            found.in_partition = self.partition
            found.expected = self.expected
            memset(&self.t, 0, sizeof(Table))
            # After a table that reached the limit, the next one probably has the same size.
            self.rows = found.t.rows if self.w.stop == WALK_FULL else 0
            self.key_bytes, self.value_bytes = found.t.key.data.size, found.t.value.data.size
            inflated_reset(&self.w.scratch, SCRATCH_KEPT_BYTES)
            self._begin()
        finally:
            self.busy = False
        return found


# ------------------------------------------------------------------ Arrow's C data interface

cdef extern from "arrow.h":
    struct ArrowSchema:
        const char* format
        const char* name
        int64_t flags
        int64_t n_children
        ArrowSchema** children
        void (*release)(ArrowSchema*) noexcept with gil
    struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t n_buffers
        int64_t n_children
        const void** buffers
        ArrowArray** children
        void (*release)(ArrowArray*) noexcept with gil
        void* private_data

cdef enum:
    ARROW_NULLABLE = 2
    BUFFERS_MAX = 3

# A reader may move a child away and release it separately, so each node keeps the table alive
# itself.


cdef void _release_schema(ArrowSchema* s) noexcept with gil:
    cdef int64_t i
    for i in range(s.n_children):
        if s.children[i] != NULL:
            if s.children[i].release != NULL:
                s.children[i].release(s.children[i])
            free(s.children[i])
    free(s.children)
    s.release = NULL


cdef void _release_array(ArrowArray* a) noexcept with gil:
    cdef int64_t i
    for i in range(a.n_children):
        if a.children[i] != NULL:
            if a.children[i].release != NULL:
                a.children[i].release(a.children[i])
            free(a.children[i])
    free(a.children)
    free(a.buffers)
    a.release = NULL
    if a.private_data != NULL:
        Py_DECREF(<object>a.private_data)


cdef int _schema(
    ArrowSchema* s, const char* format, const char* name, bint nullable, int children,
) except -1:
    """Fills a node and allocates its children, which the caller fills."""
    cdef int i
    memset(s, 0, sizeof(ArrowSchema))
    s.format = format
    s.name = name
    s.flags = ARROW_NULLABLE if nullable else 0
    s.release = _release_schema
    if children:
        s.children = <ArrowSchema**>calloc(children, sizeof(ArrowSchema*))
        if s.children == NULL:
            raise MemoryError()
        s.n_children = children
        for i in range(children):
            s.children[i] = <ArrowSchema*>calloc(1, sizeof(ArrowSchema))
            if s.children[i] == NULL:
                raise MemoryError()
    return 0


cdef int _array(
    ArrowArray* a, Columns owner, int64_t length, int64_t nulls, int buffers, int children,
) except -1:
    cdef int i
    memset(a, 0, sizeof(ArrowArray))
    a.length = length
    a.null_count = nulls
    a.release = _release_array
    a.buffers = <const void**>calloc(BUFFERS_MAX, sizeof(void*))
    if a.buffers == NULL:
        raise MemoryError()
    a.n_buffers = buffers
    Py_INCREF(owner)
    a.private_data = <void*>owner
    if children:
        a.children = <ArrowArray**>calloc(children, sizeof(ArrowArray*))
        if a.children == NULL:
            raise MemoryError()
        a.n_children = children
        for i in range(children):
            a.children[i] = <ArrowArray*>calloc(1, sizeof(ArrowArray))
            if a.children[i] == NULL:
                raise MemoryError()
    return 0


cdef const void* _address(const Buffer* b) noexcept:
    return b.data if b.data != NULL else NOTHING


cdef int _binary_array(ArrowArray* a, Columns owner, const Binary* c) except -1:
    _array(a, owner, c.rows, c.nulls, 3, 0)
    a.buffers[0] = _address(&c.valid) if c.nulls else NULL
    a.buffers[1] = c.ends.data
    a.buffers[2] = _address(&c.data)
    return 0


cdef int _numbers_array(ArrowArray* a, Columns owner, const Buffer* numbers) except -1:
    _array(a, owner, owner.t.rows, 0, 2, 0)
    a.buffers[1] = _address(numbers)
    return 0


cdef void _end_schema_capsule(object capsule) noexcept:
    cdef ArrowSchema* s = <ArrowSchema*>PyCapsule_GetPointer(capsule, "arrow_schema")
    if s.release != NULL:
        s.release(s)
    free(s)


cdef void _end_array_capsule(object capsule) noexcept:
    cdef ArrowArray* a = <ArrowArray*>PyCapsule_GetPointer(capsule, "arrow_array")
    if a.release != NULL:
        a.release(a)
    free(a)


cdef object _schema_capsule():
    cdef ArrowSchema* s = <ArrowSchema*>calloc(1, sizeof(ArrowSchema))
    cdef ArrowSchema* item
    if s == NULL:
        raise MemoryError()
    capsule = PyCapsule_New(s, "arrow_schema", <PyCapsule_Destructor>_end_schema_capsule)
    _schema(s, "+s", "", False, 7)
    _schema(s.children[0], "i", "partition", False, 0)
    _schema(s.children[1], "l", "offset", False, 0)
    _schema(s.children[2], "tsm:UTC", "timestamp", True, 0)
    _schema(s.children[3], "c", "timestamp_type", False, 0)
    _schema(s.children[4], "z", "key", True, 0)
    _schema(s.children[5], "z", "value", True, 0)
    _schema(s.children[6], "+l", "headers", False, 1)
    item = s.children[6].children[0]
    _schema(item, "+s", "item", False, 2)
    _schema(item.children[0], "z", "key", False, 0)
    _schema(item.children[1], "z", "value", True, 0)
    return capsule


cdef object _array_capsule(Columns owner):
    cdef Table* t = &owner.t
    cdef ArrowArray* a = <ArrowArray*>calloc(1, sizeof(ArrowArray))
    cdef ArrowArray* item
    if a == NULL:
        raise MemoryError()
    capsule = PyCapsule_New(a, "arrow_array", <PyCapsule_Destructor>_end_array_capsule)
    _array(a, owner, t.rows, 0, 1, 7)
    _numbers_array(a.children[0], owner, &t.partitions)
    _numbers_array(a.children[1], owner, &t.offsets)
    _numbers_array(a.children[2], owner, &t.timestamps)
    if t.timeless:
        a.children[2].null_count = t.timeless
        a.children[2].buffers[0] = _address(&t.timestamp_valid)
    _numbers_array(a.children[3], owner, &t.timestamp_types)
    _binary_array(a.children[4], owner, &t.key)
    _binary_array(a.children[5], owner, &t.value)
    _array(a.children[6], owner, t.rows, 0, 2, 1)
    a.children[6].buffers[1] = t.header_ends.data
    item = a.children[6].children[0]
    _array(item, owner, t.header_name.rows, 0, 1, 2)
    _binary_array(item.children[0], owner, &t.header_name)
    _binary_array(item.children[1], owner, &t.header_value)
    return capsule
