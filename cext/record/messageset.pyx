"""Message sets v0 and v1 (magic 0 and 1, Kafka 0.8 to 0.10): read, check and write.

An entry:  offset int64, size int32 (of the message that follows)
A message: crc uint32 (CRC-32 of all that follows it), magic int8, attributes int8 (bits 0-2 codec,
bit 3 append time, magic 1 only), timestamp int64 (magic 1 only, -1 = none), key size int32, key,
value size int32, value; a size of -1 is null.

A plain set is entries one after another. A compressed set is one wrapper entry with a null key,
whose value is, once decompressed, a set of plain entries of the same magic:

    magic 0  inner offsets are absolute; the wrapper's offset is that of the last one
    magic 1  inner offsets are relative; absolute = wrapper - last inner + inner. With create time
             the wrapper has the largest inner timestamp; with append time its timestamp applies to
             all inner messages

Invariants: gaps in inner offsets (compaction) are kept; a wrapper holds at least one entry and
never another wrapper. Limits: no size field decides how much memory is allocated. Compression
happens elsewhere: these functions take and return the content of a wrapper uncompressed. A crash
may leave a torn last entry, which the size or the CRC shows.

Next on the data path: broker/wire/batches.py.
"""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from barnabas.cext.codec.crc cimport crc32_ieee
from barnabas.cext.codec.endian cimport be32_store, be64_store
from barnabas.cext.record.records cimport (
    BATCH_BAD_CRC, BATCH_BAD_MAGIC, MESSAGE_BAD_NESTING, RECORD_WITHOUT_KEY, REQUIRE_KEYS, Record,
    corrupt, record_of,
)


# ---------------------------------------------------------------------------- without the GIL

cdef int message_crc_check(const uint8_t* p, const MessageView* m) noexcept nogil:
    """Returns 0 or BATCH_BAD_CRC, for an entry that message_view() accepted."""
    cdef uint32_t crc = crc32_ieee(0, p + AT_MAGIC, m.size - (AT_MAGIC - LOG_OVERHEAD))
    return RECORDS_OK if crc == m.crc else BATCH_BAD_CRC


cdef int message_set_check(
    const uint8_t* p, int64_t size, int magic, int flags, int64_t* position,
) noexcept nogil:
    """Checks a wrapper's content: at least one entry, and only whole, uncompressed entries of one
    magic with right CRCs. Returns a RecordsStatus; `position`: where the first wrong entry
    begins."""
    cdef MessageView m
    cdef int64_t at = 0
    cdef int status
    position[0] = 0
    if size == 0:
        return MESSAGE_BAD_NESTING
    while at < size:
        position[0] = at
        status = message_view(p + at, size - at, &m)
        if status == RECORDS_OK:
            status = message_crc_check(p + at, &m)
        if status != RECORDS_OK:
            return status
        if m.magic != magic or m.attributes & ATTR_CODEC_MASK:
            return MESSAGE_BAD_NESTING
        if flags & REQUIRE_KEYS and m.key_size < 0:
            return RECORD_WITHOUT_KEY
        at += message_entry_size(&m)
    return RECORDS_OK


# ------------------------------------------------------------------------------ Python: reading

cdef class MessageInfo:
    """One entry, as parse_message() read it. The value of a plain message is that of its record;
    the value of a wrapper (codec not 0) is the compressed inner set, from position value_start
    on."""

    cdef MessageView m
    cdef readonly int64_t start
    cdef readonly int64_t value_start

    @property
    def offset(self): return self.m.offset
    @property
    def size_bytes(self): return message_entry_size(&self.m)
    @property
    def magic(self): return self.m.magic
    @property
    def crc(self): return self.m.crc
    @property
    def attributes(self): return self.m.attributes
    @property
    def codec(self): return self.m.attributes & ATTR_CODEC_MASK
    @property
    def append_time(self): return self.m.magic == 1 and bool(self.m.attributes & ATTR_APPEND_TIME)
    @property
    def timestamp(self): return self.m.timestamp
    @property
    def key_size(self): return self.m.key_size
    @property
    def value_size(self): return self.m.value_size


def parse_message(data not None, int64_t offset=0) -> MessageInfo:
    """Returns the entry at byte `offset`. Raises CorruptRecords unless it is whole with a right CRC."""
    cdef Py_buffer view
    cdef MessageInfo info = MessageInfo.__new__(MessageInfo)
    cdef const uint8_t* p
    cdef int status
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= offset <= view.len:
            raise ValueError(f"offset {offset} outside {view.len} bytes")
        p = <const uint8_t*>view.buf + offset
        with nogil:
            status = message_view(p, view.len - offset, &info.m)
            if status == RECORDS_OK:
                status = message_crc_check(p, &info.m)
        if status != RECORDS_OK:
            raise corrupt(status, offset)
        info.start = offset
        info.value_start = info.m.value - p + offset if info.m.value != NULL else -1
    finally:
        # The pointers are valid only as long as the buffer; only the numbers are kept.
        info.m.key = info.m.value = NULL
        PyBuffer_Release(&view)
    return info


cdef Record _record(const MessageView* m, int64_t offset, int64_t timestamp):
    return record_of(offset, timestamp, m.key, m.key_size, m.value, m.value_size, ())


cdef list _decode(const uint8_t* p, int64_t size, int magic, bint wrapped, object append_time):
    cdef MessageView m
    cdef int64_t at = 0
    cdef list found = []
    cdef int status
    while at < size:
        status = message_view(p + at, size - at, &m)
        if status == RECORDS_OK:
            status = message_crc_check(p + at, &m)
        if status == RECORDS_OK and m.attributes & ATTR_CODEC_MASK:
            status = MESSAGE_BAD_NESTING
        if status == RECORDS_OK and m.magic != magic:
            status = MESSAGE_BAD_NESTING if wrapped else BATCH_BAD_MAGIC
        if status != RECORDS_OK:
            raise corrupt(status, at)
        found.append(_record(&m, m.offset, m.timestamp if append_time is None else append_time))
        at += message_entry_size(&m)
    return found


def decode_message_set(data not None, *, int magic) -> list[Record]:
    """Returns the records of `data`, which has only uncompressed entries of one magic. Raises
    CorruptRecords."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return _decode(<const uint8_t*>view.buf, view.len, magic, False, None)
    finally:
        PyBuffer_Release(&view)


def decode_wrapped(
    content not None, *, int magic, int64_t wrapper_offset, append_time=None,
) -> list[Record]:
    """Returns the records inside a wrapper, from its decompressed content, with absolute offsets.
    `append_time`: the wrapper's timestamp in ms, if it has append time. Raises CorruptRecords
    (position in the content)."""
    cdef Py_buffer view
    cdef list found
    cdef Record r
    cdef uint64_t base
    PyObject_GetBuffer(content, &view, PyBUF_SIMPLE)
    try:
        found = _decode(<const uint8_t*>view.buf, view.len, magic, True, append_time)
    finally:
        PyBuffer_Release(&view)
    if not found:
        raise corrupt(MESSAGE_BAD_NESTING, 0)
    if magic == 1:
        base = <uint64_t>wrapper_offset - <uint64_t>(<Record>found[len(found) - 1]).offset
        for r in found:
            r.offset = <int64_t>(base + <uint64_t>r.offset)
    return found


def check_wrapped(content not None, *, int magic, bint require_keys=False) -> None:
    """Checks a wrapper's decompressed content as a leader does before an append: uncompressed
    entries of the wrapper's magic, at least one, and every CRC. Raises CorruptRecords."""
    cdef Py_buffer view
    cdef int64_t position
    cdef int status
    cdef int flags = REQUIRE_KEYS if require_keys else 0
    PyObject_GetBuffer(content, &view, PyBUF_SIMPLE)
    with nogil:
        status = message_set_check(<const uint8_t*>view.buf, view.len, magic, flags, &position)
    PyBuffer_Release(&view)
    if status != RECORDS_OK:
        raise corrupt(status, position)


# ------------------------------------------------------------------------------ Python: writing

cdef inline int64_t _size(int magic, bytes key, bytes value):
    cdef int64_t size = MESSAGE_V1_SIZE_MIN if magic == 1 else MESSAGE_V0_SIZE_MIN
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    return size


cdef inline uint8_t* _write_bytes(uint8_t* p, bytes data):
    cdef int64_t size = -1 if data is None else len(data)
    be32_store(p, <uint32_t>size)
    if size > 0:
        memcpy(p + 4, PyBytes_AS_STRING(data), size)
        p += size
    return p + 4


cdef uint8_t* _write(
    uint8_t* p, int magic, int attributes, int64_t offset, int64_t timestamp, bytes key, bytes value,
):
    """Writes one entry at p and returns the position of the next one. _size() has measured it."""
    cdef uint8_t* at = p + AT_MESSAGE_TIMESTAMP
    cdef int64_t size = _size(magic, key, value)
    be64_store(p, <uint64_t>offset)
    be32_store(p + AT_BATCH_LENGTH, <uint32_t>size)
    p[AT_MAGIC] = <uint8_t>magic
    p[AT_MESSAGE_ATTRIBUTES] = <uint8_t>attributes
    if magic == 1:
        be64_store(at, <uint64_t>timestamp)
        at += 8
    at = _write_bytes(at, key)
    at = _write_bytes(at, value)
    be32_store(p + AT_MESSAGE_CRC, crc32_ieee(0, p + AT_MAGIC, at - p - AT_MAGIC))
    return at


cdef int _checked_magic(int magic) except -1:
    if magic != 0 and magic != 1:
        raise ValueError(f"message sets have magic 0 or 1, not {magic}")
    return magic


cdef Record _as_record(object item):
    """Returns the record of an item: bytes are a value without a key. Raises ValueError for a
    record with headers, which message sets do not have."""
    if type(item) is bytes:
        return Record(item)
    if type(item) is not Record:
        raise TypeError(f"a record is a Record or bytes, not {type(item).__name__}")
    if item.headers:
        raise ValueError("message sets cannot carry headers")
    return item


def encode_message_set(
    records, *, int magic, int64_t base_offset=0, append_time=None, bint keep_offsets=False,
) -> bytes:
    """Returns uncompressed entries with the offsets base_offset, base_offset + 1, ..., or with
    `keep_offsets` their own. `append_time` (magic 1): the timestamp of every entry in ms; the
    entries then have append time. Raises TypeError and ValueError for records that the format
    cannot hold."""
    cdef list items = [_as_record(item) for item in records]
    cdef int64_t size = 0, offset = base_offset, timestamp
    cdef int attributes = 0
    cdef Record r
    cdef bytes out
    cdef uint8_t* p
    _checked_magic(magic)
    if append_time is not None:
        if magic == 0:
            raise ValueError("magic 0 has no timestamps")
        attributes = ATTR_APPEND_TIME
    for r in items:
        size += LOG_OVERHEAD + _size(magic, r.key, r.value)
    if size > INT32_MAX:
        raise ValueError("the records do not fit a message set of 2 GiB")
    out = PyBytes_FromStringAndSize(NULL, size)
    p = <uint8_t*>PyBytes_AS_STRING(out)
    for r in items:
        timestamp = r.timestamp if append_time is None else append_time
        p = _write(p, magic, attributes, r.offset if keep_offsets else offset, timestamp,
                   r.key, r.value)
        offset += 1
    return out


def encode_wrapper(
    bytes content not None, *, int magic, int codec, int64_t offset, int64_t timestamp=-1,
    bint append_time=False,
) -> bytes:
    """Returns the wrapper entry of an inner set that is compressed already. `offset`: that of the
    last inner record; `timestamp` (magic 1): the largest inner one, or with `append_time` the
    append time. Raises ValueError for codec 0, a timestamp in magic 0, or more than 2 GiB."""
    cdef bytes out
    cdef int attributes = codec
    _checked_magic(magic)
    if not 0 < codec <= ATTR_CODEC_MASK:
        raise ValueError(f"a wrapper is compressed; codec {codec} is not")
    if append_time:
        if magic == 0:
            raise ValueError("magic 0 has no timestamps")
        attributes |= ATTR_APPEND_TIME
    if _size(magic, None, content) > INT32_MAX - LOG_OVERHEAD:
        raise ValueError("the content does not fit a message of 2 GiB")
    out = PyBytes_FromStringAndSize(NULL, LOG_OVERHEAD + _size(magic, None, content))
    _write(<uint8_t*>PyBytes_AS_STRING(out), magic, attributes, offset, timestamp, None, content)
    return out
