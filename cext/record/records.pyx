"""Record batches v2 (magic 2, Kafka 0.11 and later): read, check, stamp and write.

    offset size field                   offset size field
         0    8 base offset                 27    8 base timestamp
         8    4 length of what follows      35    8 max timestamp
        12    4 leader epoch                43    8 producer id
        16    1 magic = 2                   51    2 producer epoch
        17    4 CRC-32C from 21 to the end  53    4 base sequence
        21    2 attributes                  57    4 record count
        23    4 last offset delta           61      records, as one block when compressed

Attributes: bits 0-2 codec, 3 append time, 4 transactional, 5 control, 6 the base timestamp is the
delete horizon. A record is: length, attributes int8, timestamp delta, offset delta, key size, key,
value size, value, header count, and per header key size, key, value size, value; all sizes, deltas
and counts are zigzag varints, and a size of -1 is null (not for a header's key).

Invariants: compaction keeps the last offset delta, so it may exceed the count; the CRC does not
cover base offset and leader epoch, which the leader writes in place; with append time the max
timestamp is the time of every record. Limits: a batch is below 2 GiB, and the bytes that are
present limit memory and loops, not the record count. After a crash a log may end in a cut-off batch
(BATCH_CUT_OFF) or a torn one (BATCH_BAD_CRC); recovery cuts it there.

Compression happens elsewhere: these functions take and return uncompressed bodies.
Next on the data path: cext/record/messageset.pyx for the older formats, broker/wire/batches.py
above.
"""
cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from barnabas.cext.codec.crc cimport crc32c
from barnabas.cext.codec.cursor cimport Cursor, cursor_of, cursor_take, cursor_varint
from barnabas.cext.codec.endian cimport be16_load, be16_store, be32_store, be64_store
from barnabas.cext.codec.varint cimport varint_size, varint_write

KINDS = ("", "corrupt", "invalid", "missing key")
REASONS = {
    BATCH_CUT_OFF: "fewer bytes than the length announces",
    BATCH_BAD_LENGTH: "the length is below the smallest possible",
    BATCH_BAD_MAGIC: "the magic byte is not one this reader knows",
    BATCH_BAD_CRC: "the checksum does not match",
    BATCH_BAD_OFFSET: "the offset is too large",
    BATCH_BAD_COUNT: "the record count cannot be true",
    BATCH_BAD_LAST_OFFSET: "last offset delta and record count do not agree",
    BATCH_IS_CONTROL: "a control batch from a producer",
    BATCH_NO_SEQUENCE: "a producer id without a sequence number",
    RECORD_BAD_SIZE: "a record's length is not within the body",
    RECORD_BAD_FIELD: "a field runs over the end of its record",
    RECORD_BAD_KEY_SIZE: "a key's size is not within its record",
    RECORD_BAD_VALUE_SIZE: "a value's size is not within its record",
    RECORD_BAD_HEADERS: "the headers are not within their record",
    RECORD_LEFT_OVER: "bytes left over inside a record",
    RECORD_BAD_OFFSET: "offset deltas are out of order",
    RECORDS_MISSING: "fewer records than the count announces",
    RECORDS_LEFT_OVER: "bytes left over after the last record",
    MESSAGE_BAD_NESTING: "a wrapper's content is not one plain message set of its own magic",
    RECORD_WITHOUT_KEY: "a record without a key",
}


class CorruptRecords(ValueError):
    """The bytes are not a valid record batch or message set. All functions that read them raise it.

    `position`: of the error, in bytes from the start of the given bytes; `reason`: what is wrong;
    `kind`: "corrupt" (frame or checksum), "invalid" (content), "missing key" or "too large".
    """

    def __init__(self, reason: str, position: int = 0, kind: str = "corrupt") -> None:
        super().__init__(f"{reason} (at byte {position})")
        self.reason = reason
        self.position = position
        self.kind = kind


cdef object corrupt(int status, int64_t position):
    """Returns the exception for a status; the caller raises it."""
    return CorruptRecords(REASONS[status], position, KINDS[records_kind(status)])


# ---------------------------------------------------------------------------- without the GIL

cdef int batch_crc_check(const uint8_t* p, const BatchHeader* h) noexcept nogil:
    """Returns 0 or BATCH_BAD_CRC, for a batch that batch_header() accepted."""
    cdef uint32_t crc = crc32c(0, p + AT_ATTRIBUTES, batch_size(h) - AT_ATTRIBUTES)
    return RECORDS_OK if crc == h.crc else BATCH_BAD_CRC


cdef void batch_set_append_time(uint8_t* p, const BatchHeader* h, int64_t now_ms) noexcept nogil:
    """Replaces the producer's timestamps by the leader's time, in place. `h`: the header as
    batch_header() read it; it keeps the old values until it is read again."""
    cdef uint16_t attributes = be16_load(p + AT_ATTRIBUTES) | ATTR_APPEND_TIME
    be16_store(p + AT_ATTRIBUTES, attributes)
    be64_store(p + AT_MAX_TIMESTAMP, <uint64_t>now_ms)
    be32_store(p + AT_CRC, crc32c(0, p + AT_ATTRIBUTES, batch_size(h) - AT_ATTRIBUTES))


cdef int batch_rules(const BatchHeader* h, int flags) noexcept nogil:
    """Checks the rules for the header alone, also of a compressed batch. Returns a RecordsStatus."""
    if h.record_count < 0:
        return BATCH_BAD_COUNT
    if h.last_offset_delta < 0 or h.record_count > <int64_t>h.last_offset_delta + 1:
        return BATCH_BAD_LAST_OFFSET
    if flags & CHECK_STRICT:
        if h.record_count == 0:
            return BATCH_BAD_COUNT
        if h.last_offset_delta != h.record_count - 1:
            return BATCH_BAD_LAST_OFFSET
        if h.attributes & ATTR_CONTROL:
            return BATCH_IS_CONTROL
        if h.producer_id >= 0 and h.base_sequence < 0:
            return BATCH_NO_SEQUENCE
    return RECORDS_OK


cdef int records_check(
    const uint8_t* body, int64_t size, const BatchHeader* h, int flags, RecordsSummary* out,
) noexcept nogil:
    """Checks the uncompressed records of a batch. Returns a RecordsStatus and fills `out`; after an
    error for the records before it. The number of bytes limits the loop, not the record count."""
    cdef Cursor c = cursor_of(body, size)
    cdef RecordView record
    cdef int64_t timestamp
    cdef int status = batch_rules(h, flags)
    out.count = 0
    out.max_timestamp = -1
    out.max_timestamp_delta = -1
    out.last_offset_delta = -1
    out.position = 0
    if status != RECORDS_OK:
        return status
    if h.record_count > size // RECORD_SIZE_MIN:
        return BATCH_BAD_COUNT
    while out.count < h.record_count:
        out.position = c.p - body
        if c.p == c.end:
            return RECORDS_MISSING
        status = record_next(&c, &record)
        if status != RECORDS_OK:
            return status
        if flags & CHECK_STRICT:
            if record.offset_delta != out.count:
                return RECORD_BAD_OFFSET
        elif record.offset_delta <= out.last_offset_delta:
            return RECORD_BAD_OFFSET
        if record.offset_delta > h.last_offset_delta:
            return RECORD_BAD_OFFSET
        if flags & REQUIRE_KEYS and record.key_size < 0:
            return RECORD_WITHOUT_KEY
        timestamp = <int64_t>(<uint64_t>h.base_timestamp + <uint64_t>record.timestamp_delta)
        if out.count == 0 or timestamp > out.max_timestamp:
            out.max_timestamp = timestamp
            out.max_timestamp_delta = record.offset_delta
        out.last_offset_delta = record.offset_delta
        out.count += 1
    out.position = c.p - body
    return RECORDS_OK if c.p == c.end else RECORDS_LEFT_OVER


# ------------------------------------------------------------------------------ Python: objects

# No reference cycle can contain a record (its fields are numbers, bytes, and a tuple that has only
# text and bytes), so the garbage collector does not track it: that halves the time to decode.
@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class Record:
    """One record: offset, timestamp (ms, -1 = none), key, value, headers ((name, value), ...).

    Bytes of a header name that are not UTF-8 become surrogate escapes, and are written unchanged.
    """

    def __init__(
        self, bytes value, bytes key=None, *, int64_t timestamp=-1, headers=(), int64_t offset=-1,
    ):
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = _checked_headers(headers)

    def __eq__(self, other):
        cdef Record o
        if type(other) is not Record:
            return NotImplemented
        o = <Record>other
        return (
            self.offset == o.offset and self.timestamp == o.timestamp and self.key == o.key
            and self.value == o.value and self.headers == o.headers
        )

    def __hash__(self):
        return hash((self.offset, self.timestamp, self.key, self.value, self.headers))

    def __repr__(self):
        return (
            f"Record({self.value!r}, {self.key!r}, timestamp={self.timestamp}, "
            f"headers={self.headers!r}, offset={self.offset})"
        )


cdef tuple _checked_headers(object headers):
    cdef list found = []
    if headers == ():
        return ()
    for name, value in headers:
        if type(name) is not str or not (value is None or type(value) is bytes):
            raise TypeError(f"a header is (str, bytes or None), not {(name, value)!r}")
        found.append((name, value))
    return tuple(found)


cdef Record record_of(
    int64_t offset, int64_t timestamp, const uint8_t* key, int64_t key_size,
    const uint8_t* value, int64_t value_size, tuple headers,
):
    """Returns a Record from checked bytes; a negative size means null."""
    cdef Record r = Record.__new__(Record)
    r.offset = offset
    r.timestamp = timestamp
    if key_size >= 0:
        r.key = PyBytes_FromStringAndSize(<const char*>key, key_size)
    if value_size >= 0:
        r.value = PyBytes_FromStringAndSize(<const char*>value, value_size)
    r.headers = headers
    return r


@cython.final
cdef class BatchInfo:
    """The header of a batch v2, as parse_header() read it; `start`: the position of the batch."""

    cdef BatchHeader h
    cdef readonly int64_t start

    @property
    def base_offset(self): return self.h.base_offset
    @property
    def batch_length(self): return self.h.batch_length
    @property
    def leader_epoch(self): return self.h.leader_epoch
    @property
    def magic(self): return self.h.magic
    @property
    def crc(self): return self.h.crc
    @property
    def attributes(self): return self.h.attributes
    @property
    def last_offset_delta(self): return self.h.last_offset_delta
    @property
    def base_timestamp(self): return self.h.base_timestamp
    @property
    def max_timestamp(self): return self.h.max_timestamp
    @property
    def producer_id(self): return self.h.producer_id
    @property
    def producer_epoch(self): return self.h.producer_epoch
    @property
    def base_sequence(self): return self.h.base_sequence
    @property
    def record_count(self): return self.h.record_count
    @property
    def size_bytes(self): return batch_size(&self.h)
    @property
    def codec(self): return self.h.attributes & ATTR_CODEC_MASK
    @property
    def append_time(self): return bool(self.h.attributes & ATTR_APPEND_TIME)
    @property
    def transactional(self): return bool(self.h.attributes & ATTR_TRANSACTIONAL)
    @property
    def control(self): return bool(self.h.attributes & ATTR_CONTROL)
    @property
    def delete_horizon(self): return bool(self.h.attributes & ATTR_DELETE_HORIZON)


# ------------------------------------------------------------------------------ Python: reading

cdef int _view(object data, int64_t offset, Py_buffer* view) except -1:
    PyObject_GetBuffer(data, view, PyBUF_SIMPLE)
    if not 0 <= offset <= view.len:
        size = view.len
        PyBuffer_Release(view)
        raise ValueError(f"offset {offset} outside {size} bytes")
    return 0


def parse_header(data not None, int64_t offset=0) -> BatchInfo:
    """Returns the header of the batch at byte `offset`; the data must contain the whole batch. It
    does not check the CRC. Raises CorruptRecords."""
    cdef Py_buffer view
    cdef BatchInfo info = BatchInfo.__new__(BatchInfo)
    cdef int status
    _view(data, offset, &view)
    info.start = offset
    status = batch_header(<const uint8_t*>view.buf + offset, view.len - offset, &info.h)
    PyBuffer_Release(&view)
    if status != RECORDS_OK:
        raise corrupt(status, offset)
    return info


def check_crc(data not None, int64_t offset=0) -> None:
    """Raises CorruptRecords unless a whole batch with a right CRC begins at byte `offset`."""
    cdef Py_buffer view
    cdef BatchHeader h
    cdef const uint8_t* p
    cdef int status
    _view(data, offset, &view)
    p = <const uint8_t*>view.buf + offset
    with nogil:
        status = batch_header(p, view.len - offset, &h)
        if status == RECORDS_OK:
            status = batch_crc_check(p, &h)
    PyBuffer_Release(&view)
    if status != RECORDS_OK:
        raise corrupt(status, offset)


def check_records(
    body not None, BatchInfo header not None, *, bint strict=True, bint require_keys=False,
) -> tuple[int, int, int]:
    """Checks an uncompressed body against its header as a leader does before an append.

    `strict`: the batch is a producer's, whose offsets have no gaps; `require_keys`: the topic is
    compacted. Returns (count, largest timestamp in ms, offset delta of the first record that has
    it). Raises CorruptRecords (position in the body).
    """
    cdef Py_buffer view
    cdef RecordsSummary found
    cdef int flags = (CHECK_STRICT if strict else 0) | (REQUIRE_KEYS if require_keys else 0)
    cdef int status
    cdef BatchHeader h = header.h
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    with nogil:
        status = records_check(<const uint8_t*>view.buf, view.len, &h, flags, &found)
    PyBuffer_Release(&view)
    if status != RECORDS_OK:
        raise corrupt(status, found.position)
    return found.count, found.max_timestamp, found.max_timestamp_delta


cdef tuple _headers_of(const RecordView* record):
    """Returns the headers of a record that record_next() accepted."""
    cdef Cursor c = cursor_of(record.headers, record.headers_size)
    cdef list found = []
    cdef int32_t i, size
    cdef const uint8_t* at
    for i in range(record.header_count):
        size = cursor_varint(&c)
        at = cursor_take(&c, size)
        name = PyBytes_FromStringAndSize(<const char*>at, size).decode("utf-8", "surrogateescape")
        size = cursor_varint(&c)
        if size < 0:
            found.append((name, None))
        else:
            at = cursor_take(&c, size)
            found.append((name, PyBytes_FromStringAndSize(<const char*>at, size)))
    return tuple(found)


cdef list _decode(
    const uint8_t* body, int64_t size, int32_t count, int64_t base_offset,
    int64_t base_timestamp, bint fixed_time,
):
    cdef Cursor c = cursor_of(body, size)
    cdef RecordView r
    cdef list found = []
    cdef int32_t i
    cdef int64_t position, offset, timestamp
    cdef int status
    cdef tuple headers
    if count < 0 or count > size // RECORD_SIZE_MIN:
        raise corrupt(BATCH_BAD_COUNT, 0)
    for i in range(count):
        position = c.p - body
        if c.p == c.end:
            raise corrupt(RECORDS_MISSING, position)
        status = record_next(&c, &r)
        if status != RECORDS_OK:
            raise corrupt(status, position)
        offset = <int64_t>(<uint64_t>base_offset + <uint64_t><int64_t>r.offset_delta)
        timestamp = base_timestamp
        if not fixed_time:
            timestamp = <int64_t>(<uint64_t>base_timestamp + <uint64_t>r.timestamp_delta)
        headers = () if r.header_count == 0 else _headers_of(&r)
        found.append(
            record_of(offset, timestamp, r.key, r.key_size, r.value, r.value_size, headers)
        )
    if c.p != c.end:
        raise corrupt(RECORDS_LEFT_OVER, c.p - body)
    return found


def decode_records(
    body not None, *, int32_t count, int64_t base_offset=0, int64_t base_timestamp=0,
    append_time=None,
) -> list[Record]:
    """Returns all records of an uncompressed body. `append_time`: the timestamp of every record in
    ms, if the batch has append time. Raises CorruptRecords (position in the body)."""
    cdef Py_buffer view
    cdef int64_t time = base_timestamp if append_time is None else append_time
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        return _decode(
            <const uint8_t*>view.buf, view.len, count, base_offset, time, append_time is not None
        )
    finally:
        PyBuffer_Release(&view)


# ------------------------------------------------------------------------------ Python: writing

cdef struct Item:
    int64_t timestamp
    int64_t offset
    const uint8_t* key
    Py_ssize_t key_size
    const uint8_t* value
    Py_ssize_t value_size
    const uint8_t* block        # the headers as bytes, with their count; NULL: none
    Py_ssize_t block_size

cdef struct Plan:
    int64_t size_bytes          # of the body
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t base_offset
    int32_t last_offset_delta
    bint keep_offsets


cdef inline int _item(object o, int64_t default_timestamp, Item* it) except -1:
    """Reads an item of the list into `it`, without its headers."""
    cdef Record r
    cdef bytes value, key
    if PyBytes_CheckExact(o):
        value = <bytes>o
        key = None
        it.timestamp = default_timestamp
        it.offset = -1
    elif type(o) is Record:
        r = <Record>o
        value = r.value
        key = r.key
        it.timestamp = r.timestamp
        it.offset = r.offset
    else:
        raise TypeError(f"a record is a Record or bytes, not {type(o).__name__}")
    # The pointers stay valid: the caller's tuple holds the item, and a Record never changes.
    it.key = it.value = NULL
    it.key_size = it.value_size = -1
    if key is not None:
        it.key = <const uint8_t*>PyBytes_AS_STRING(key)
        it.key_size = PyBytes_GET_SIZE(key)
    if value is not None:
        it.value = <const uint8_t*>PyBytes_AS_STRING(value)
        it.value_size = PyBytes_GET_SIZE(value)
    it.block = NULL
    it.block_size = 1
    return 0


cdef bytes _header_block(tuple headers):
    """Returns header count and headers as the bytes at the end of a record."""
    cdef uint8_t room[10]
    cdef list parts = []
    cdef bytes name
    parts.append(PyBytes_FromStringAndSize(
        <char*>room, varint_write(room, len(headers)) - room))
    for text, value in headers:
        name = text.encode("utf-8", "surrogateescape")
        parts.append(PyBytes_FromStringAndSize(<char*>room, varint_write(room, len(name)) - room))
        parts.append(name)
        size = -1 if value is None else len(value)
        parts.append(PyBytes_FromStringAndSize(<char*>room, varint_write(room, size) - room))
        if value is not None:
            parts.append(value)
    return b"".join(parts)


cdef inline int64_t _delta(int64_t a, int64_t b) noexcept nogil:
    return <int64_t>(<uint64_t>a - <uint64_t>b)


cdef inline int64_t _inner_size(const Item* it, int64_t time_delta, int64_t offset_delta) noexcept nogil:
    """Returns the size of a record after its length field, in bytes."""
    cdef int64_t size = 1 + varint_size(time_delta) + varint_size(offset_delta)
    size += varint_size(it.key_size) + varint_size(it.value_size) + it.block_size
    if it.key_size > 0:
        size += it.key_size
    if it.value_size > 0:
        size += it.value_size
    return size


cdef int _offset_delta(Plan* plan, const Item* it, Py_ssize_t i) except -1:
    cdef int64_t delta
    if not plan.keep_offsets:
        plan.last_offset_delta = <int32_t>i
        return 0
    delta = _delta(it.offset, plan.base_offset)
    if delta <= plan.last_offset_delta or delta > INT32_MAX:
        raise ValueError(f"offset {it.offset} does not follow, base offset {plan.base_offset}")
    plan.last_offset_delta = <int32_t>delta
    return 0


cdef list _measure(tuple items, Plan* plan, object base_timestamp):
    """The first pass: finds the size of the body and the fields of the batch header. Returns the
    header blocks of the records that have headers, in order."""
    cdef list blocks = []
    cdef Item it
    cdef Py_ssize_t i, n = len(items)
    cdef int64_t inner, default = -1 if base_timestamp is None else base_timestamp
    cdef bytes block
    plan.size_bytes = 0
    plan.last_offset_delta = -1
    plan.base_timestamp = default
    plan.max_timestamp = -1
    for i in range(n):
        o = items[i]
        _item(o, default, &it)
        if type(o) is Record and (<Record>o).headers is not None and len((<Record>o).headers):
            block = _header_block((<Record>o).headers)
            blocks.append(block)
            it.block_size = len(block)
        if i == 0:
            if base_timestamp is None:
                plan.base_timestamp = it.timestamp
            plan.max_timestamp = it.timestamp
        elif it.timestamp > plan.max_timestamp:
            plan.max_timestamp = it.timestamp
        _offset_delta(plan, &it, i)
        inner = _inner_size(&it, _delta(it.timestamp, plan.base_timestamp), plan.last_offset_delta)
        plan.size_bytes += varint_size(inner) + inner
        if plan.size_bytes > INT32_MAX - BATCH_OVERHEAD:
            raise ValueError("the records do not fit a batch of 2 GiB")
    return blocks


cdef uint8_t* _write(uint8_t* p, tuple items, list blocks, const Plan* plan) except NULL:
    """The second pass: writes the records into memory of the measured size. Returns the end."""
    cdef Item it
    cdef Py_ssize_t i, n = len(items), next_block = 0
    cdef int64_t time_delta, offset_delta
    cdef bytes block
    for i in range(n):
        o = items[i]
        _item(o, plan.base_timestamp, &it)
        if type(o) is Record and (<Record>o).headers is not None and len((<Record>o).headers):
            block = <bytes>blocks[next_block]
            next_block += 1
            it.block = <const uint8_t*>PyBytes_AS_STRING(block)  # `blocks` keeps it in memory
            it.block_size = PyBytes_GET_SIZE(block)
        time_delta = _delta(it.timestamp, plan.base_timestamp)
        offset_delta = _delta(it.offset, plan.base_offset) if plan.keep_offsets else i
        p = varint_write(p, _inner_size(&it, time_delta, offset_delta))
        p[0] = 0
        p = varint_write(p + 1, time_delta)
        p = varint_write(p, offset_delta)
        p = varint_write(p, it.key_size)
        if it.key_size > 0:
            memcpy(p, it.key, it.key_size)
            p += it.key_size
        p = varint_write(p, it.value_size)
        if it.value_size > 0:
            memcpy(p, it.value, it.value_size)
            p += it.value_size
        if it.block == NULL:
            p[0] = 0
        else:
            memcpy(p, it.block, it.block_size)
        p += it.block_size
    return p


cdef void _write_header(uint8_t* p, const BatchHeader* h) noexcept nogil:
    """Writes the 61 bytes of the header before a body that is written already, with the CRC over both."""
    be64_store(p + AT_BASE_OFFSET, <uint64_t>h.base_offset)
    be32_store(p + AT_BATCH_LENGTH, <uint32_t>h.batch_length)
    be32_store(p + AT_LEADER_EPOCH, <uint32_t>h.leader_epoch)
    p[AT_MAGIC] = 2
    be16_store(p + AT_ATTRIBUTES, <uint16_t>h.attributes)
    be32_store(p + AT_LAST_OFFSET_DELTA, <uint32_t>h.last_offset_delta)
    be64_store(p + AT_BASE_TIMESTAMP, <uint64_t>h.base_timestamp)
    be64_store(p + AT_MAX_TIMESTAMP, <uint64_t>h.max_timestamp)
    be64_store(p + AT_PRODUCER_ID, <uint64_t>h.producer_id)
    be16_store(p + AT_PRODUCER_EPOCH, <uint16_t>h.producer_epoch)
    be32_store(p + AT_BASE_SEQUENCE, <uint32_t>h.base_sequence)
    be32_store(p + AT_RECORD_COUNT, <uint32_t>h.record_count)
    be32_store(p + AT_CRC, crc32c(0, p + AT_ATTRIBUTES, batch_size(h) - AT_ATTRIBUTES))


def encode_records(
    records, *, base_timestamp=None, base_offset=None,
) -> tuple[bytes, int, int, int, int]:
    """Writes the uncompressed body of a batch, which the caller may compress and passes to
    seal_batch(). Each record is a Record, or bytes: a value without a key (its timestamp is
    base_timestamp, or -1 = none).

    `base_timestamp`: in ms; None: the first record's. `base_offset`: the records keep their
    offsets, which must ascend from there; None: they get the offsets 0, 1, 2, ... Returns (body,
    count, last offset delta, base timestamp, max timestamp). Raises TypeError for another object,
    ValueError for offsets out of order or more than 2 GiB.
    """
    cdef tuple items = tuple(records)
    cdef Plan plan
    cdef list blocks
    cdef bytes body
    plan.keep_offsets = base_offset is not None
    plan.base_offset = base_offset if base_offset is not None else 0
    blocks = _measure(items, &plan, base_timestamp)
    body = PyBytes_FromStringAndSize(NULL, plan.size_bytes)
    _write(<uint8_t*>PyBytes_AS_STRING(body), items, blocks, &plan)
    return body, len(items), plan.last_offset_delta, plan.base_timestamp, plan.max_timestamp


def encode_batch(
    records, *, int64_t base_offset=0, int attributes=0, int32_t leader_epoch=-1,
    int64_t producer_id=-1, int producer_epoch=-1, int32_t base_sequence=-1,
    base_timestamp=None, max_timestamp=None, last_offset_delta=None, bint keep_offsets=False,
) -> bytes:
    """Returns a whole uncompressed batch; records and errors as in encode_records.

    `max_timestamp`: in ms, the append time if the attributes have that bit; None: the largest of
    the records. `last_offset_delta`: None: the last record's. `keep_offsets`: the records keep
    their offsets.
    """
    cdef tuple items = tuple(records)
    cdef Plan plan
    cdef BatchHeader h
    cdef bytes batch
    cdef uint8_t* p
    if attributes & ATTR_CODEC_MASK:
        raise ValueError("encode_batch writes uncompressed batches; see seal_batch")
    plan.keep_offsets = keep_offsets
    plan.base_offset = base_offset
    blocks = _measure(items, &plan, base_timestamp)
    batch = PyBytes_FromStringAndSize(NULL, BATCH_OVERHEAD + plan.size_bytes)
    p = <uint8_t*>PyBytes_AS_STRING(batch)
    _write(p + BATCH_OVERHEAD, items, blocks, &plan)
    h.base_offset = base_offset
    h.batch_length = <int32_t>(BATCH_OVERHEAD - LOG_OVERHEAD + plan.size_bytes)
    h.leader_epoch = leader_epoch
    h.attributes = attributes
    h.last_offset_delta = plan.last_offset_delta if last_offset_delta is None else last_offset_delta
    h.base_timestamp = plan.base_timestamp
    h.max_timestamp = plan.max_timestamp if max_timestamp is None else max_timestamp
    h.producer_id = producer_id
    h.producer_epoch = producer_epoch
    h.base_sequence = base_sequence
    h.record_count = <int32_t>len(items)
    _write_header(p, &h)
    return batch


def seal_batch(
    body not None, *, int32_t count, int32_t last_offset_delta, int64_t base_timestamp,
    int64_t max_timestamp, int64_t base_offset=0, int attributes=0, int32_t leader_epoch=-1,
    int64_t producer_id=-1, int producer_epoch=-1, int32_t base_sequence=-1,
) -> bytes:
    """Returns a batch with a body that has its final, usually compressed, form. Raises ValueError
    for more than 2 GiB."""
    cdef Py_buffer view
    cdef BatchHeader h
    cdef bytes batch
    cdef uint8_t* p
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        if view.len > INT32_MAX - BATCH_OVERHEAD:
            raise ValueError("the body does not fit a batch of 2 GiB")
        batch = PyBytes_FromStringAndSize(NULL, BATCH_OVERHEAD + view.len)
        p = <uint8_t*>PyBytes_AS_STRING(batch)
        memcpy(p + BATCH_OVERHEAD, view.buf, view.len)
        h.batch_length = <int32_t>(BATCH_OVERHEAD - LOG_OVERHEAD + view.len)
    finally:
        PyBuffer_Release(&view)
    h.base_offset = base_offset
    h.leader_epoch = leader_epoch
    h.attributes = attributes
    h.last_offset_delta = last_offset_delta
    h.base_timestamp = base_timestamp
    h.max_timestamp = max_timestamp
    h.producer_id = producer_id
    h.producer_epoch = producer_epoch
    h.base_sequence = base_sequence
    h.record_count = count
    _write_header(p, &h)
    return batch


def stamp(data not None, int64_t base_offset, int32_t leader_epoch, *, int64_t offset=0,
          append_time=None) -> None:
    """Writes the fields that a leader assigns into the batch at byte `offset` of a writable buffer;
    with `append_time` (ms) also the timestamp type, the max timestamp and a new CRC. Raises
    CorruptRecords when no whole batch begins there."""
    cdef Py_buffer view
    cdef BatchHeader h
    cdef uint8_t* p
    cdef int status
    cdef int64_t now = 0 if append_time is None else append_time
    PyObject_GetBuffer(data, &view, PyBUF_WRITABLE)
    try:
        if not 0 <= offset <= view.len:
            raise ValueError(f"offset {offset} outside {view.len} bytes")
        p = <uint8_t*>view.buf + offset
        status = batch_header(p, view.len - offset, &h)
        if status != RECORDS_OK:
            raise corrupt(status, offset)
        batch_stamp(p, base_offset, leader_epoch)
        if append_time is not None:
            batch_set_append_time(p, &h, now)
    finally:
        PyBuffer_Release(&view)
